"""Files as sources and sinks (PyFlink's `connectors.file_system`)."""

from millstream.connectors.bucket_assigner import BucketAssigner
from millstream.connectors.file_format import StreamFormat
from millstream.connectors.file_sink import FileSink, FileSinkBuilder
from millstream.connectors.file_sink_policy import OutputFileConfig, RollingPolicy
from millstream.connectors.file_source import FileSource, FileSourceBuilder

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
