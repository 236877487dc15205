"""CSV, under PyFlink's module name."""

from millstream.connectors.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from millstream.connectors.formats.csv_files import (
    CsvBulkWriters,
    CsvReaderFormat,
    CsvSchema,
    CsvSchemaBuilder,
)

__all__ = [
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]
