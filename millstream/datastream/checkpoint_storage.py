"""Places for checkpoints as objects (PyFlink's `checkpoint_storage`).

They are only kept: in Flink 2 a program names the place by configuration, and so it does here, with
`execution.checkpointing.dir`.
"""

from __future__ import annotations

import re

from millstream.common.compat import no_effect
from millstream.errors import InvalidArgument, UnsupportedOperation

__all__ = [
    "CheckpointStorage",
    "CustomCheckpointStorage",
    "FileSystemCheckpointStorage",
    "JobManagerCheckpointStorage",
]

_BY_OPTION = "the place is set by execution.checkpointing.dir"


def _place(path: str) -> str:
    """A path as Flink's `Path` writes it: scheme, host, and one slash between names.

    >>> _place("hdfs://host:8020//checkpoints/"), _place("file:///c")
    ('hdfs://host:8020/checkpoints', 'file:/c')
    """
    match = _URI.fullmatch(str(path).strip())
    assert match is not None
    scheme, host, rest = match.groups()
    names = re.sub("/+", "/", rest.replace("\\", "/"))
    if not scheme:
        msg = "The scheme (hdfs://, file://, etc) is null. Please specify the file system scheme explicitly in the URI."
        raise InvalidArgument(msg, got=path)
    if names in ("", "/"):
        raise InvalidArgument("Cannot use the root directory for checkpoints.", got=path)
    return f"{scheme}:{'//' + host if host else ''}{names.rstrip('/')}"


_URI = re.compile(r"(?:([^:/]+):)?(?://([^/]*))?(.*)", re.DOTALL)


class CheckpointStorage:
    """The root of all places."""


@no_effect(_BY_OPTION)
class JobManagerCheckpointStorage(CheckpointStorage):
    """Checkpoints in the driver's memory, which Millstream does not have: it writes files.

    >>> JobManagerCheckpointStorage("file:///c", max_state_size=1024).get_max_state_size()
    1024
    """

    DEFAULT_MAX_STATE_SIZE = 5 << 20

    def __init__(
        self,
        checkpoint_path: str | None = None,
        max_state_size: int | None = None,
        j_jobmanager_checkpoint_storage: None = None,
    ) -> None:
        del j_jobmanager_checkpoint_storage
        self._path = None if checkpoint_path is None else _place(checkpoint_path)
        self._size = self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size
        if self._size <= 0:
            raise InvalidArgument("maxStateSize must be > 0", got=max_state_size)

    def get_checkpoint_path(self) -> str | None:
        """The folder that was given."""
        return self._path

    def get_savepoint_path(self) -> str | None:
        """None: `execution.checkpointing.savepoint-dir` says it."""
        return None

    def get_max_state_size(self) -> int:
        """The size that was given."""
        return self._size


@no_effect(_BY_OPTION)
class FileSystemCheckpointStorage(CheckpointStorage):
    """Checkpoints in a folder.

    >>> FileSystemCheckpointStorage("file:///checkpoints/").get_checkpoint_path()
    'file:/checkpoints'
    """

    MAX_FILE_STATE_THRESHOLD = 1 << 20

    def __init__(
        self,
        checkpoint_path: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int = -1,
        j_filesystem_checkpoint_storage: None = None,
    ) -> None:
        del j_filesystem_checkpoint_storage
        if checkpoint_path is None:
            raise InvalidArgument("checkpoint_path must not be None")
        most = self.MAX_FILE_STATE_THRESHOLD
        if file_state_size_threshold is not None and not -1 <= file_state_size_threshold <= most:
            msg = (
                f"The threshold for file state size must be in [-1, {most}], where '-1' means to use the value "
                "from the deployment's configuration."
            )
            raise InvalidArgument(msg, got=file_state_size_threshold)
        if write_buffer_size < -1:
            msg = (
                "The write buffer size must be not less than '-1', where '-1' means to use the value from the "
                "deployment's configuration."
            )
            raise InvalidArgument(msg, got=write_buffer_size)
        self._path = _place(checkpoint_path)
        # Flink's defaults.
        self._threshold = (
            20 << 10 if file_state_size_threshold in (None, -1) else file_state_size_threshold
        )
        self._buffer = 4096 if write_buffer_size < 0 else write_buffer_size

    def get_checkpoint_path(self) -> str:
        """The folder that was given."""
        return self._path

    def get_savepoint_path(self) -> str | None:
        """None: `execution.checkpointing.savepoint-dir` says it."""
        return None

    def get_min_file_size_threshold(self) -> int:
        """The size that was given."""
        return self._threshold

    def get_write_buffer_size(self) -> int:
        """The size that was given."""
        return max(self._buffer, self._threshold)


class CustomCheckpointStorage(CheckpointStorage):
    """A place written in Java, which cannot be used."""

    def __init__(self, j_custom_checkpoint_storage: object) -> None:
        msg = "a CustomCheckpointStorage is written in Java, and cannot be used here"
        raise UnsupportedOperation(msg, hint="set execution.checkpointing.dir")
