"""Files as sources and sinks (PyFlink's `connectors.file_system`)."""

from millstream.connectors.file.bucket_assigner import BucketAssigner
from millstream.connectors.file.compact import FileCompactor, FileCompactStrategy
from millstream.connectors.file.format import BulkFormat, StreamFormat
from millstream.connectors.file.rolling_policy import (
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from millstream.connectors.file.sink import FileSink, FileSinkBuilder
from millstream.connectors.file.source import FileSource, FileSourceBuilder

__all__ = [
    "BucketAssigner",
    "BulkFormat",
    "DefaultRollingPolicy",
    "FileCompactStrategy",
    "FileCompactor",
    "FileSink",
    "FileSinkBuilder",
    "FileSource",
    "FileSourceBuilder",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
]
