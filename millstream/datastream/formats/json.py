"""JSON, under PyFlink's module name."""

from millstream.connectors.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]
