"""Schemas and encoders: how records become bytes at the edges of a job, and bytes records.

Sources deserialize with them, sinks serialize. In PyFlink they wrap Java objects; here they are
Python, and one of your own is a class with one method. Answers to Flink's `SerializationSchema`,
`DeserializationSchema`, `SimpleStringSchema` and `Encoder`.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from typing import Any, BinaryIO

from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.typeinfo_convert import misfit
from millstream.common.types import Row, format_row
from millstream.errors import InvalidArgument

__all__ = [
    "BulkWriter",
    "BulkWriterFactory",
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]


class SerializationSchema(ABC):
    """Makes bytes of a record.

    >>> class Shout(SerializationSchema):
    ...     def serialize(self, element):
    ...         return element.upper().encode()
    >>> Shout().serialize("a")
    b'A'
    """

    def open(self) -> None:
        """Called once per subtask, before the first record."""
        return

    @abstractmethod
    def serialize(self, element: Any) -> bytes | None:
        """The bytes of a record."""


class DeserializationSchema(ABC):
    """Makes a record of bytes.

    >>> class Number(DeserializationSchema):
    ...     def deserialize(self, message):
    ...         return int(message)
    >>> Number().deserialize(b"12")
    12
    """

    def open(self) -> None:
        """Called once per subtask, before the first record."""
        return

    @abstractmethod
    def deserialize(self, message: bytes) -> Any:
        """The record of a message; None if the message is none."""

    def is_end_of_stream(self, next_element: Any) -> bool:
        """Whether this record says that nothing follows.

        >>> SimpleStringSchema().is_end_of_stream("a")
        False
        """
        return False

    def get_produced_type(self) -> TypeInformation:
        """What the records are.

        >>> SimpleStringSchema().get_produced_type()
        String
        """
        return Types.PICKLED_BYTE_ARRAY()


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Text as bytes of a charset.

    >>> SimpleStringSchema().serialize("é")
    b'\\xc3\\xa9'
    >>> SimpleStringSchema("latin-1").deserialize(b"\\xe9")
    'é'
    """

    def __init__(self, charset: str = "UTF-8") -> None:
        self._charset = _check_charset(charset)

    def get_charset(self) -> str:
        """The charset that was given.

        >>> SimpleStringSchema().get_charset()
        'UTF-8'
        """
        return self._charset

    def serialize(self, element: Any) -> bytes:
        """The text in the charset; a character it lacks becomes "?", as in Java."""
        if not isinstance(element, str):
            raise misfit(element, "String")
        return element.encode(self._charset, "replace")

    def deserialize(self, message: bytes) -> str:
        """The text of the bytes; bytes the charset lacks become U+FFFD, as in Java."""
        return bytes(message).decode(self._charset, "replace")

    def get_produced_type(self) -> TypeInformation:
        """The type of texts."""
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Bytes as they are.

    >>> ByteArraySchema().deserialize(b"ab")
    b'ab'
    """

    def serialize(self, element: Any) -> bytes:
        """The bytes as they are."""
        return bytes(_check_bytes(element))

    def deserialize(self, message: bytes) -> bytes:
        """The bytes as they are."""
        return bytes(_check_bytes(message))

    def get_produced_type(self) -> TypeInformation:
        """The type of bytes."""
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema):
    """One field of a row, which must be bytes; None as nothing.

    >>> RowFieldExtractorSchema(1).serialize(Row("key", b"value"))
    b'value'
    >>> RowFieldExtractorSchema(1) == RowFieldExtractorSchema(1)
    True
    """

    def __init__(self, field_index: int) -> None:
        if isinstance(field_index, bool) or not isinstance(field_index, int):
            raise InvalidArgument("a field index is a whole number", got=repr(field_index)[:200])
        if field_index < 0:
            raise InvalidArgument(f"Field index must be non-negative, got: {field_index}")
        self._field_index = field_index

    @property
    def field_index(self) -> int:
        """Which field is written.

        >>> RowFieldExtractorSchema(0).field_index
        0
        """
        return self._field_index

    def get_field_index(self) -> int:
        """Which field is written.

        >>> RowFieldExtractorSchema(0).get_field_index()
        0
        """
        return self._field_index

    def serialize(self, element: Any) -> bytes:
        """The bytes of the field."""
        if element is None:
            return b""
        at = self._field_index
        if at >= len(element):
            raise InvalidArgument(f"Cannot access field {at} in Row with arity {len(element)}")
        field = element[at]
        if field is None:
            return b""
        if not isinstance(field, bytes | bytearray):
            kind = type(field).__name__
            raise InvalidArgument(
                f"Field at index {at} must be of type byte[], but was {kind}",
                hint="encode the field in a map function before the sink",
            )
        return bytes(field)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._field_index == self._field_index

    def __hash__(self) -> int:
        return self._field_index


class BulkWriter(ABC):
    """Writes the records of one file, many at a time (Flink's `BulkWriter`)."""

    held: int = 0
    """About how many bytes were given to the writer and are not in the stream yet."""

    @abstractmethod
    def add_element(self, element: Any) -> None:
        """Take one record."""

    def add_columns(self, columns: Any, *, named: bool) -> bool:
        """Take the rows of Arrow's `RecordBatch`, where the factory says that writers do; `named` says whether the
        records have names for their fields, or only places. False if none was taken: they have to come as records."""
        return False

    @abstractmethod
    def finish(self) -> None:
        """Write what is held, and whatever a file ends in. The stream stays open."""

    def discard(self) -> None:
        """Let go of everything; the file will be removed. Called, while the stream is open, instead of `finish`."""


class BulkWriterFactory(ABC):
    """Makes the writers of `FileSink.for_bulk_format`, one for each file. It travels to the workers.

    >>> import io, json
    >>> class Everything(BulkWriter):
    ...     def __init__(self, stream):
    ...         self.stream, self.records = stream, []
    ...
    ...     def add_element(self, element):
    ...         self.records.append(element)
    ...
    ...     def finish(self):
    ...         self.stream.write(json.dumps(self.records).encode())
    >>> class JsonLists(BulkWriterFactory):
    ...     def create(self, stream):
    ...         return Everything(stream)
    >>> stream = io.BytesIO()
    >>> writer = JsonLists().create(stream)
    >>> writer.add_element(1)
    >>> writer.finish()
    >>> stream.getvalue()
    b'[1]'
    """

    concatenable: bool = False
    """True if two files, one after the other, are a file again."""

    takes_columns: bool = False
    """True if its writers have `add_columns`."""

    @abstractmethod
    def create(self, stream: BinaryIO) -> BulkWriter:
        """A writer into a new file."""


class Encoder(ABC):
    """Writes records into a file.

    >>> import io
    >>> stream = io.BytesIO()
    >>> encoder = Encoder.simple_string_encoder()
    >>> encoder.encode("a", stream)
    >>> encoder.encode(Row("b", 1), stream)
    >>> stream.getvalue()
    b'a\\n+I[b, 1]\\n'
    """

    @abstractmethod
    def encode(self, element: Any, stream: BinaryIO) -> None:
        """Write one record."""

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """An encoder that writes each record as a line of text."""
        return SimpleStringEncoder(charset_name)


class SimpleStringEncoder(Encoder):
    """A line of text per record.

    >>> SimpleStringEncoder("latin-1").to_line("é")
    b'\\xe9\\n'
    """

    def __init__(self, charset_name: str = "UTF-8") -> None:
        self._charset = _check_charset(charset_name)

    def to_line(self, element: Any) -> bytes:
        """The line of a record, with its end."""
        text = format_row(element, ", ") if isinstance(element, Row) else str(element)
        return (text + "\n").encode(self._charset, "replace")

    def encode(self, element: Any, stream: BinaryIO) -> None:
        """Write one record."""
        stream.write(self.to_line(element))


def _check_charset(charset: str) -> str:
    try:
        codecs.lookup(charset)
    except LookupError:
        raise InvalidArgument(
            "this charset is not known", got=charset, hint="Python's names: utf-8, latin-1, ..."
        ) from None
    return charset


def _check_bytes(value: Any) -> bytes | bytearray | memoryview:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return value
    raise misfit(value, repr(Types.PRIMITIVE_ARRAY(Types.BYTE())))
