"""From the records of a stream to what Kafka takes (PyFlink's `KafkaRecordSerializationSchema`)."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from millstream.api.error_policy import DeadLetter
from millstream.common.serialization import SerializationSchema
from millstream.connectors.kafka.record import KafkaRecord
from millstream.connectors.kafka.settings import topic_name
from millstream.errors import InvalidArgument

__all__ = [
    "KafkaProducerRecord",
    "KafkaRecordSerializationSchema",
    "KafkaRecordSerializationSchemaBuilder",
    "KafkaTopicSelector",
    "dead_letters",
]

# A dead letter says so much of its error, which may hold all of a record.
_ERROR = 1000

Headers = Sequence[tuple[str, bytes | None]]


class KafkaProducerRecord(NamedTuple):
    """What is to be written. Without a partition the key decides, without a timestamp the clock does.

    >>> KafkaProducerRecord("orders", b"3", key=b"ann").topic
    'orders'
    """

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int = -1
    timestamp: int = 0


class KafkaTopicSelector(ABC):
    """Chooses the topic of each record.

    >>> class ByCountry(KafkaTopicSelector):
    ...     def apply(self, data):
    ...         return "orders-" + data["country"]
    >>> ByCountry().apply({"country": "nz"})
    'orders-nz'
    """

    @abstractmethod
    def apply(self, data: Any) -> str:
        """The topic that a record goes to."""


class KafkaRecordSerializationSchema(ABC):
    """Makes what is written of a record; built, or a class of one's own.

    >>> class Pairs(KafkaRecordSerializationSchema):
    ...     def serialize(self, element):
    ...         return KafkaProducerRecord("counts", str(element[1]).encode(), element[0].encode())
    >>> Pairs().serialize(("ann", 3)).value
    b'3'
    """

    def open(self) -> None:
        """Called once per subtask, before the first record."""

    @abstractmethod
    def serialize(self, element: Any) -> KafkaProducerRecord | None:
        """What is written; None leaves the record out."""

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """A `KafkaRecordSerializationSchemaBuilder`."""
        return KafkaRecordSerializationSchemaBuilder()


@dataclass(frozen=True)
class BuiltSchema(KafkaRecordSerializationSchema):
    """What a builder has built. `topic` is empty if it is chosen for each record."""

    topic: str
    value: SerializationSchema
    key: SerializationSchema | None = None
    select: Callable[[Any], str] | None = None
    headers: Callable[[Any], Any] | None = None
    partition: Callable[[Any], int] | None = None
    timestamp: Callable[[Any], int] | None = None

    @property
    def plain(self) -> bool:
        """True if there is nothing but a key and a value, for one topic."""
        return not (self.select or self.headers or self.partition or self.timestamp)

    def open(self) -> None:
        """Open the schemas."""
        self.value.open()
        if self.key is not None:
            self.key.open()

    def serialize(self, element: Any) -> KafkaProducerRecord:
        """All parts of what is written for a record."""
        headers = () if self.headers is None else self.headers(element)
        return KafkaProducerRecord(
            self.topic if self.select is None else self.select(element),
            self.value.serialize(element),
            None if self.key is None else self.key.serialize(element),
            tuple(headers.items()) if isinstance(headers, Mapping) else tuple(headers or ()),
            -1 if self.partition is None else self.partition(element),
            0 if self.timestamp is None else self.timestamp(element),
        )


class KafkaRecordSerializationSchemaBuilder:
    """Builds a schema: a topic and a schema for the value are needed.

    >>> from millstream.common.serialization import SimpleStringSchema
    >>> builder = KafkaRecordSerializationSchema.builder().set_topic("words")
    >>> builder.set_value_serialization_schema(SimpleStringSchema()).build().serialize("a")
    KafkaProducerRecord(topic='words', value=b'a', key=None, headers=(), partition=-1, timestamp=0)
    """

    def __init__(self) -> None:
        self._topic = ""
        self._select: Callable[[Any], str] | None = None
        self._key: SerializationSchema | None = None
        self._value: SerializationSchema | None = None
        self._headers: Callable[[Any], Any] | None = None
        self._partition: Callable[[Any], int] | None = None
        self._timestamp: Callable[[Any], int] | None = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Write all records to one topic."""
        self._one_topic()
        self._topic = topic_name(topic)
        return self

    def set_topic_selector(
        self, topic_selector: KafkaTopicSelector | Callable[[Any], str]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Choose the topic of each record."""
        given: Any = topic_selector
        self._one_topic()
        self._select = (
            given.apply if isinstance(given, KafkaTopicSelector) else _function(given, "a selector")
        )
        return self

    def _one_topic(self) -> None:
        if self._topic or self._select is not None:
            raise InvalidArgument(
                "the topic has been set", hint="call one of set_topic and set_topic_selector, once"
            )

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """What makes the key of a record; by default there is none."""
        self._key = _schema(key_serialization_schema)
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """What makes the value of a record."""
        self._value = _schema(value_serialization_schema)
        return self

    def set_header_provider(
        self, header_provider: Callable[[Any], Any]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """A function that gives the headers of a record: pairs of a text and bytes, or a dict."""
        self._headers = _function(header_provider, "a header provider")
        return self

    def set_partitioner(
        self, partitioner: Callable[[Any], int]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """A function that gives the partition of a record; by default the key decides, as in Java's client."""
        self._partition = _function(partitioner, "a partitioner")
        return self

    def set_timestamp_provider(
        self, timestamp_provider: Callable[[Any], int]
    ) -> KafkaRecordSerializationSchemaBuilder:
        """A function that gives the timestamp of a record in milliseconds; by default it is the time of writing."""
        self._timestamp = _function(timestamp_provider, "a timestamp provider")
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        """The schema as it was described."""
        if self._value is None or not (self._topic or self._select):
            missing = "set_value_serialization_schema" if self._value is None else "set_topic"
            raise InvalidArgument(
                "the serializer lacks something",
                missing=missing,
                hint="call it before the serializer is built",
            )
        schema = BuiltSchema(self._topic, self._value)
        return replace(
            schema,
            key=self._key,
            select=self._select,
            headers=self._headers,
            partition=self._partition,
            timestamp=self._timestamp,
        )


class DeadLetters(KafkaRecordSerializationSchema):
    """What `dead_letters` gives."""

    def __init__(self, topic: str) -> None:
        self.topic = topic_name(topic)

    def serialize(self, element: Any) -> KafkaProducerRecord:
        """The record as it was, and what was wrong with it."""
        if not isinstance(element, DeadLetter):
            raise InvalidArgument("this is no DeadLetter", got=type(element).__name__)
        # The job itself has pickled it, a moment ago.
        record = pickle.loads(element.data) if element.data else None
        facts = {
            "millstream.operator": element.operator,
            "millstream.source": element.source,
            "millstream.error": element.error[:_ERROR],
        }
        if not isinstance(record, KafkaRecord):
            headers = tuple((name, _bytes(text)) for name, text in facts.items())
            return KafkaProducerRecord(self.topic, _bytes(element.record), None, headers)
        facts |= {
            "millstream.topic": record.topic,
            "millstream.partition": str(record.partition),
            "millstream.offset": str(record.offset),
        }
        added = tuple((name, _bytes(text)) for name, text in facts.items())
        return KafkaProducerRecord(
            self.topic,
            record.value,
            record.key,
            (*record.headers, *added),
            timestamp=max(0, record.timestamp),
        )


def _bytes(text: str) -> bytes:
    # What is said of bytes that are no text may hold what cannot be encoded.
    return text.encode(errors="backslashreplace")


def dead_letters(topic: str) -> KafkaRecordSerializationSchema:
    """Dead letters of an operator that takes `KafkaRecord`s: key, value and headers as they were, and headers that say
    where the record stood (`millstream.topic`, `.partition`, `.offset`) and what was wrong (`millstream.error`).

    >>> letter = DeadLetter("parse", "orders-0", 3, "...", b"", "ValueError: x", "")
    >>> dict(dead_letters("orders-bad").serialize(letter).headers)["millstream.error"]
    b'ValueError: x'
    """
    return DeadLetters(topic)


def _schema(given: Any) -> SerializationSchema:
    if isinstance(given, SerializationSchema):
        return given
    raise InvalidArgument(
        "this is not a SerializationSchema",
        got=type(given).__name__,
        hint="SimpleStringSchema(), ByteArraySchema(), JsonRowSerializationSchema...",
    )


def _function(given: Any, what: str) -> Callable[[Any], Any]:
    if callable(given) and not isinstance(given, type):
        return given  # type: ignore[no-any-return]
    raise InvalidArgument(f"{what} is a function of the record", got=repr(given)[:200])
