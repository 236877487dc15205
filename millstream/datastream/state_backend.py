"""State backends as objects (PyFlink's `state_backend`).

They are only kept: in Flink 2 a program chooses its backend by configuration, and so it does here,
with `state.backend.type`: `hashmap` (in memory) or `lmdb` (on disk, where Flink has RocksDB).
"""

from __future__ import annotations

import re
from enum import Enum

from millstream.common.compat import no_effect
from millstream.errors import InvalidArgument, UnsupportedOperation

__all__ = [
    "CustomStateBackend",
    "EmbeddedRocksDBStateBackend",
    "HashMapStateBackend",
    "PredefinedOptions",
    "StateBackend",
]

_BY_OPTION = "the backend is chosen by state.backend.type: hashmap or lmdb"


class StateBackend:
    """The root of all state backends."""


@no_effect(_BY_OPTION)
class HashMapStateBackend(StateBackend):
    """State in memory: `state.backend.type: hashmap`."""

    def __init__(self, j_hashmap_state_backend: None = None) -> None:
        del j_hashmap_state_backend


class PredefinedOptions(Enum):
    """RocksDB's settings for kinds of disks; LMDB needs none."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


@no_effect(_BY_OPTION)
class EmbeddedRocksDBStateBackend(StateBackend):
    """State on disk; `state.backend.type: lmdb` is the same here.

    >>> backend = EmbeddedRocksDBStateBackend(True)
    >>> backend.set_number_of_transfer_threads(8)
    >>> backend.is_incremental_checkpoints_enabled(), backend.get_number_of_transfer_threads()
    (True, 8)
    """

    def __init__(
        self,
        enable_incremental_checkpointing: bool | None = None,
        j_embedded_rocks_db_state_backend: None = None,
    ) -> None:
        del j_embedded_rocks_db_state_backend
        self._incremental = bool(enable_incremental_checkpointing)
        self._paths: list[str] | None = None
        self._options = PredefinedOptions.DEFAULT
        self._factory: str | None = None
        self._threads = 4

    def set_db_storage_paths(self, *paths: str) -> None:
        """Keep folders of the workers: local and absolute, without scheme and final slash."""
        self._paths = [_local_folder(path) for path in paths] or None

    def get_db_storage_paths(self) -> list[str] | None:
        """The folders of the workers, None if none were set."""
        return self._paths

    def is_incremental_checkpoints_enabled(self) -> bool:
        """What the constructor was told; checkpoints here are always incremental."""
        return self._incremental

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Keep RocksDB's settings."""
        self._options = options

    def get_predefined_options(self) -> PredefinedOptions:
        """RocksDB's settings, as they were set."""
        return self._options

    def set_options(self, options_factory_class_name: str) -> None:
        """Keep the name of a Java class."""
        self._factory = options_factory_class_name

    def get_options(self) -> str | None:
        """The name of the Java class that was set, or None."""
        return self._factory

    def get_number_of_transfer_threads(self) -> int:
        """How many threads move files."""
        return self._threads

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Keep how many threads move files."""
        self._threads = number_of_transfering_threads


def _local_folder(path: str) -> str:
    """
    >>> _local_folder("file:///var/state/"), _local_folder("/var//state")
    ('/var/state', '/var/state')
    """
    match = re.fullmatch(r"(?:([^:/]+):(?://[^/]*)?)?(.*)", path or "")
    assert match is not None
    scheme, rest = match.groups()
    if scheme not in (None, "file"):
        raise InvalidArgument(f"Path {path} has a non-local scheme")
    if not rest.startswith("/"):
        raise InvalidArgument("Relative paths are not supported", got=path)
    return re.sub("/+", "/", rest).rstrip("/") or "/"


class CustomStateBackend(StateBackend):
    """A backend written in Java, which cannot be used."""

    def __init__(self, j_custom_state_backend: object) -> None:
        msg = "a CustomStateBackend is written in Java, and cannot be used here"
        raise UnsupportedOperation(msg, hint="set state.backend.type to hashmap or lmdb")
