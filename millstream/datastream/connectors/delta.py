"""Delta tables as a sink."""

from millstream.connectors.delta.sink import DeltaSink, DeltaSinkBuilder

__all__ = ["DeltaSink", "DeltaSinkBuilder"]
