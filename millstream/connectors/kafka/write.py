"""The tasks' half of the sink: records to a staged file, or at once to the broker."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from millstream.api.sink import SinkWriter, WriterContext
from millstream.common.constants import MAX_TIME
from millstream.connectors.kafka.cluster import Troubles, describe, hint_for
from millstream.connectors.kafka.serialize import (
    BuiltSchema,
    KafkaProducerRecord,
    KafkaRecordSerializationSchema,
)
from millstream.connectors.kafka.settings import (
    CLIENT_LOG,
    TOPIC_RULE,
    is_topic,
    log,
    producer_config,
)
from millstream.connectors.kafka.staging import Block, StagedFile, folder_of, rows_to_block
from millstream.errors import InvalidArgument, SinkError

__all__ = ["DirectWriter", "KafkaStagingWriter"]

# A block is written when it has so many bytes or records; a commit holds one of each file.
_BLOCK_BYTES = 1 << 20
_BLOCK_RECORDS = 8192
_OVERHEAD = 64
# What the lengths of a header take at most.
_HEADER = 10


def message_limit(properties: Mapping[str, str]) -> int:
    """How long a message may be. What is longer fails where it can still be named."""
    return int(properties.get("message.max.bytes", 1_000_000))


def checked_record(record: Any, limit: int) -> KafkaProducerRecord:
    """The record, if a client takes it. What is wrong with it is told here, where it can be named: once it is part of a
    checkpoint, it would be in the way of every commit."""
    if not isinstance(record, KafkaProducerRecord):
        raise InvalidArgument(
            "a serializer gives a KafkaProducerRecord or None", got=type(record).__name__
        )
    topic, value, key, headers, partition, timestamp = record
    for what, part in (("value", value), ("key", key)):
        _check_bytes(what, part)
    if not isinstance(topic, str) or not is_topic(topic):
        raise InvalidArgument(
            "the topic of a Kafka record is a text that Kafka takes for a name",
            got=repr(topic)[:100],
            hint=TOPIC_RULE,
        )
    size = len(value or b"") + len(key or b"")
    if headers:
        size += _check_headers(headers)
    _check_number("partition", partition, -1, 2**31 - 1, "-1 if the key decides")
    _check_number("timestamp", timestamp, 0, MAX_TIME, "milliseconds since 1970, 0 for the clock")
    _check_size(size, limit)
    return record


def _check_bytes(what: str, part: Any) -> None:
    # Not of a subclass, which cannot be staged.
    if part is not None and type(part) is not bytes:
        raise InvalidArgument(
            f"the {what} of a Kafka record is bytes or None", got=type(part).__name__
        )


def _check_headers(headers: Any) -> int:
    """How long they are, if they are pairs of a text and bytes."""
    size = 0
    for header in headers:
        if not isinstance(header, (tuple, list)) or len(header) != 2 or type(header[0]) is not str:
            raise InvalidArgument(
                "the headers of a Kafka record are pairs of a text and bytes",
                got=repr(header)[:100],
            )
        _check_bytes(f"header {header[0]!r}", header[1])
        size += len(header[0].encode()) + len(header[1] or b"") + _HEADER
    return size


def _check_number(what: str, number: Any, least: int, most: int, meaning: str) -> None:
    if type(number) is not int or not least <= number <= most:
        raise InvalidArgument(
            f"the {what} of a Kafka record is a whole number: {meaning}", got=repr(number)[:100]
        )


def _check_size(size: int, limit: int) -> None:
    if size + _OVERHEAD > limit:
        raise InvalidArgument(
            "a record is longer than Kafka's client takes",
            bytes=size,
            limit=limit,
            hint="make it shorter, or raise message.max.bytes of the sink and max.message.bytes of the topic",
        )


class KafkaStagingWriter(SinkWriter):
    """Exactly once: records wait in a file for their commit."""

    def __init__(
        self,
        schema: KafkaRecordSerializationSchema,
        context: WriterContext,
        properties: Mapping[str, str],
    ) -> None:
        self._schema = schema
        self._context = context
        self._limit = message_limit(properties)
        self._file: StagedFile | None = None
        self._size = 0
        self._values: list[bytes | None] = []
        self._keys: list[bytes | None] = []
        self._rows: list[KafkaProducerRecord] = []
        self._value: Callable[[Any], bytes | None] | None = None
        self._key: Callable[[Any], bytes | None] | None = None
        if isinstance(schema, BuiltSchema) and schema.plain:
            self._value = schema.value.serialize
            self._key = None if schema.key is None else schema.key.serialize

    def write(self, value: Any) -> None:
        """Add a record to the block at hand."""
        if self._value is None:
            row = self._schema.serialize(value)
            if row is not None:
                self._rows.append(checked_record(row, self._limit))
                self._size += _OVERHEAD + len(row.value or b"") + len(row.key or b"")
        else:
            body = self._value(value)
            key = None if self._key is None else self._key(value)
            size = (0 if body is None else len(body)) + (0 if key is None else len(key))
            if (
                size + _OVERHEAD > self._limit
                or type(body) is not bytes
                or (key is not None and type(key) is not bytes)
            ):
                checked_record(KafkaProducerRecord("-", body, key), self._limit)
            if self._key is not None:
                self._keys.append(key)
            self._values.append(body)
            self._size += size
        if self._size >= _BLOCK_BYTES or len(self._values) + len(self._rows) >= _BLOCK_RECORDS:
            self._end_block()

    def _end_block(self) -> None:
        if self._rows:
            block = rows_to_block(self._rows)
        elif self._values:
            assert isinstance(self._schema, BuiltSchema)
            keys = self._keys if self._key is not None else None
            block = Block(len(self._values), self._schema.topic, self._values, keys)
        else:
            return
        context = self._context
        try:
            if self._file is None:
                self._file = StagedFile(context.storage, self._name())
            self._file.add(block)
        except OSError as error:
            raise _unwritable(error, self._name()) from error
        self._size, self._values, self._keys, self._rows = 0, [], [], []

    def _name(self) -> str:
        context = self._context
        folder = folder_of(context.job_id, context.sink)
        return f"{folder}/{context.epoch:012d}-{context.subtask}-{context.attempt}"

    def prepare_commit(self) -> bytes | None:
        """Bring the file to the disk."""
        self._end_block()
        if self._file is None:
            return None
        try:
            return self._file.finish(self._context.epoch, self._context.subtask).encode()
        except OSError as error:
            raise _unwritable(error, self._name()) from error

    def abort(self) -> None:
        """Remove the file."""
        file, self._file = self._file, None
        if file is not None:
            file.discard()


def _unwritable(error: OSError, name: str) -> SinkError:
    return SinkError(
        f"a staged file cannot be written: {error.strerror or error}",
        file=name,
        hint="check the space left where the job keeps its checkpoints",
    )


# -- without transactions ------------------------------------------------------------------------------------


class _Outlet:
    """This process's producer for a configuration, for all epochs."""

    def __init__(self, config: dict[str, Any]) -> None:
        # How many records could not be delivered. It only grows: several writers may look.
        self.failures = 0
        self.failed: tuple[KafkaError | None, str] = None, ""
        self.troubles = Troubles()
        self.producer = Producer(
            {**config, "on_delivery": self._undelivered, "error_cb": self.troubles},
            logger=CLIENT_LOG,
        )

    def _undelivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures += 1
            self.failed = error, message.topic() or ""


_outlets: dict[tuple[Any, ...], _Outlet] = {}


def outlet(properties: Mapping[str, str], *, sure: bool) -> _Outlet:
    """The producer of this process. Not that of the process it was forked from: its threads stayed there. Writers that
    promise nothing have one of their own, so that what it loses is nobody else's."""
    config = producer_config(properties)
    key = (os.getpid(), sure, *sorted(config.items()))
    if key not in _outlets:
        _outlets[key] = _Outlet(config)
    return _outlets[key]


class DirectWriter(SinkWriter):
    """At least once, or without any guarantee: records go to the broker as they come."""

    def __init__(
        self,
        schema: KafkaRecordSerializationSchema,
        properties: Mapping[str, str],
        *,
        sure: bool,
    ) -> None:
        self._schema = schema
        self._outlet = outlet(properties, sure=sure)
        self._failures = self._outlet.failures
        self._limit = message_limit(properties)
        self._plain = schema if isinstance(schema, BuiltSchema) and schema.plain else None
        self._sure = sure
        self._timeout = float(properties.get("message.timeout.ms", 300_000)) / 1000 + 10

    def write(self, value: Any) -> None:
        """Hand a record to the client."""
        plain = self._plain
        if plain is None:
            record = self._schema.serialize(value)
            if record is not None:
                self._put(*checked_record(record, self._limit))
            return
        # Without a record in between, which costs more than all the rest here.
        body = plain.value.serialize(value)
        key = None if plain.key is None else plain.key.serialize(value)
        if (
            type(body) is not bytes
            or (key is not None and type(key) is not bytes)
            or len(body) + len(key or b"") + _OVERHEAD > self._limit
        ):
            checked_record(KafkaProducerRecord(plain.topic, body, key), self._limit)
        self._put(plain.topic, body, key)

    def _put(
        self,
        topic: str,
        body: bytes | None,
        key: bytes | None,
        headers: Any = (),
        partition: int = -1,
        timestamp: int = 0,
    ) -> None:
        try:
            put(self._outlet.producer, topic, body, key, headers, partition, timestamp)
        except KafkaException as error:
            raise SinkError(
                f"a record cannot be handed to Kafka's client: {describe(error.args[0])}",
                topic=topic,
                partition=partition if partition >= 0 else None,
                hint=hint_for(error.args[0]),
            ) from error

    def prepare_commit(self) -> bytes | None:
        """Wait until the broker has all of it."""
        left = self._outlet.producer.flush(self._timeout)
        failed = self._outlet.failures > self._failures
        if not left and not failed:
            return None
        troubles = self._outlet.troubles
        error, topic = self._outlet.failed if failed else (troubles.final or troubles.last, "")
        what = f"records could not be delivered: {describe(error) or 'no answer'}"
        if not self._sure:
            log.warning("%s; the sink promises nothing, so the job goes on", what)
            return None
        raise SinkError(what, topic=topic or None, waiting=left or None, hint=hint_for(error))

    def abort(self) -> None:
        """What has been handed over is on its way: at least once."""


def put(
    producer: Producer,
    topic: str,
    value: bytes | None,
    key: bytes | None,
    headers: Any = (),
    partition: int = -1,
    timestamp: int = 0,
) -> None:
    """Hand a record to a producer, when it has room."""
    while True:
        try:
            producer.produce(
                topic,
                value,
                key,
                partition,
                timestamp=timestamp,
                headers=list(headers) if headers else None,
            )
            return
        except BufferError:
            producer.poll(0.05)
