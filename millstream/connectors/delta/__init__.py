"""Delta tables: an exactly-once sink."""

from millstream.connectors.delta.sink import DeltaSink, DeltaSinkBuilder

__all__ = ["DeltaSink", "DeltaSinkBuilder"]
