"""JSON, under PyFlink's module name."""

from millstream.common.json_format import JsonRowDeserializationSchema, JsonRowSerializationSchema

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]
