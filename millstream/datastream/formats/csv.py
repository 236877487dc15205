"""CSV, under PyFlink's module name."""

from millstream.connectors.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema

__all__ = ["CsvRowDeserializationSchema", "CsvRowSerializationSchema"]
