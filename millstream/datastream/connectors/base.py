"""What a source and a sink of your own are made of (PyFlink's `connectors.base`)."""

from millstream.api.sink import Committer, DeliveryGuarantee, Sink, SinkWriter, WriterContext
from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator, SplitPosition

__all__ = [
    "Boundedness",
    "Committer",
    "DeliveryGuarantee",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceReader",
    "SplitEnumerator",
    "SplitPosition",
    "WriterContext",
]
