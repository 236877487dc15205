"""Files as sources and sinks (PyFlink's `connectors.file_system`)."""

from millstream.connectors.file.bucket_assigner import BucketAssigner
from millstream.connectors.file.format import StreamFormat
from millstream.connectors.file.rolling_policy import OutputFileConfig, RollingPolicy
from millstream.connectors.file.sink import FileSink, FileSinkBuilder
from millstream.connectors.file.source import FileSource, FileSourceBuilder

__all__ = [
    "BucketAssigner",
    "FileSink",
    "FileSinkBuilder",
    "FileSource",
    "FileSourceBuilder",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
]
