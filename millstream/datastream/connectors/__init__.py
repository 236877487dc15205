"""Sources and sinks under PyFlink's names; what they do is in `millstream.connectors`."""

from millstream.datastream.connectors.base import DeliveryGuarantee, Sink, Source
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.connectors.socket import SocketTextSource

__all__ = [
    "DataGeneratorSource",
    "DeliveryGuarantee",
    "FileSink",
    "FileSource",
    "NumberSequenceSource",
    "Sink",
    "SocketTextSource",
    "Source",
    "StreamFormat",
]
