"""Iceberg tables: an exactly-once sink."""

from millstream.connectors.iceberg.sink import IcebergSink, IcebergSinkBuilder

__all__ = ["IcebergSink", "IcebergSinkBuilder"]
