"""Iceberg tables as a sink."""

from millstream.connectors.iceberg.sink import IcebergSink, IcebergSinkBuilder

__all__ = ["IcebergSink", "IcebergSinkBuilder"]
