"""CSV, under PyFlink's module name."""

from millstream.common.csv_format import CsvRowDeserializationSchema, CsvRowSerializationSchema

__all__ = ["CsvRowDeserializationSchema", "CsvRowSerializationSchema"]
