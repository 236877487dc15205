"""From what Kafka has to the records of a stream (Flink's `KafkaRecordDeserializationSchema`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from millstream.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    SimpleStringSchema,
)
from millstream.connectors.formats.csv import CsvRowDeserializationSchema
from millstream.connectors.formats.json import JsonRowDeserializationSchema
from millstream.connectors.kafka.record import KafkaRecord
from millstream.errors import InvalidArgument

__all__ = ["KafkaRecordDeserializationSchema", "ValueOnly", "WholeRecords"]


class KafkaRecordDeserializationSchema(ABC):
    """Makes a record of the stream from one of Kafka's; None is left out.

    >>> class KeyAndValue(KafkaRecordDeserializationSchema):
    ...     def deserialize(self, record):
    ...         return record.key.decode(), int(record.value)
    >>> KeyAndValue().deserialize(KafkaRecord("orders", 0, 41, 1700000000000, b"ann", b"3"))
    ('ann', 3)
    """

    def open(self) -> None:
        """Called once per subtask, before the first record."""

    @abstractmethod
    def deserialize(self, record: KafkaRecord) -> Any:
        """The record of the stream, or None."""

    def makes_new_objects(self) -> bool:
        """True if no object that it gives is given again, or kept."""
        return False

    @staticmethod
    def value_only(deserialization_schema: DeserializationSchema) -> ValueOnly:
        """The value alone; a record without a value is left out."""
        return ValueOnly(deserialization_schema)

    @staticmethod
    def records() -> WholeRecords:
        """All of it, as a `KafkaRecord`."""
        return WholeRecords()


class ValueOnly(KafkaRecordDeserializationSchema):
    """The value alone.

    >>> ValueOnly(SimpleStringSchema()).deserialize(KafkaRecord("t", 0, 0, 0, None, b"a"))
    'a'
    """

    def __init__(self, schema: DeserializationSchema) -> None:
        given: Any = schema
        if not isinstance(given, DeserializationSchema):
            raise InvalidArgument(
                "this is not a DeserializationSchema",
                got=type(given).__name__,
                hint="SimpleStringSchema(), ByteArraySchema(), JsonRowDeserializationSchema...",
            )
        self.schema = schema

    def open(self) -> None:
        """Open the schema."""
        self.schema.open()

    def deserialize(self, record: KafkaRecord) -> Any:
        """What the schema makes of the value."""
        return None if record.value is None else self.schema.deserialize(record.value)

    def makes_new_objects(self) -> bool:
        """True of schemas that are known."""
        return type(self.schema) in _KNOWN


class WholeRecords(KafkaRecordDeserializationSchema):
    """All of it.

    >>> WholeRecords().deserialize(KafkaRecord("t", 0, 0, 0, None, b"a")).value
    b'a'
    """

    def deserialize(self, record: KafkaRecord) -> KafkaRecord:
        """The record itself."""
        return record

    def makes_new_objects(self) -> bool:
        """True: nobody else holds a `KafkaRecord` that was just made."""
        return True


_KNOWN = {
    ByteArraySchema,
    CsvRowDeserializationSchema,
    JsonRowDeserializationSchema,
    SimpleStringSchema,
}
