"""From a root to the storage behind it: a local folder, or what PyArrow and fsspec reach."""

from __future__ import annotations

from millstream.storage.seal import Seal
from millstream.storage.storage import (
    LocalStorage,
    Storage,
    _local,
)

__all__ = ["open_storage"]


def open_storage(root: str, *, durable: bool = True, seal: Seal | None = None) -> Storage:
    """The storage behind a root, in any process.

    A path or `file://` is a local folder. `s3`, `gs`, `hdfs` and `abfs` go through PyArrow, all
    else through fsspec; `arrow+s3://` and `fsspec+s3://` say which of the two. What `durable` says
    (see `LocalStorage`) concerns local folders only. With a `seal`, state is signed and checked.

    >>> open_storage("file:///data/state").root
    '/data/state'
    """
    path = _local(root)
    storage: Storage
    if path is not None:
        storage = LocalStorage(path, durable=durable)
    else:
        # Loads PyArrow's file systems or fsspec, which a local job does not need.
        from millstream.storage.remote import open_remote

        storage = open_remote(root)
    storage.seal = seal
    return storage
