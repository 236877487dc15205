"""Reads ranges of partitions, in a worker.

Offsets have gaps: transactions leave marks that are no records, aborted records are not given, compaction takes some
away. A range has been read when a record at or behind its end has come, or the end of the partition has been told of,
which a consumer does once. Consumers are kept from epoch to epoch: going on where the last range ended costs nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from millstream.api.source import SourceReader, Timestamped
from millstream.common.serialization import ByteArraySchema, SimpleStringSchema
from millstream.connectors.kafka.cluster import Troubles, describe, hint_for
from millstream.connectors.kafka.deserialize import (
    KafkaRecordDeserializationSchema,
    ValueOnly,
    WholeRecords,
)
from millstream.connectors.kafka.offsets import KafkaTopicPartition
from millstream.connectors.kafka.record import KafkaRecord
from millstream.connectors.kafka.settings import (
    CLIENT_LOG,
    RESET_TO_END,
    RESET_TO_FIRST,
    consumer_config,
    log,
    milliseconds,
)
from millstream.connectors.kafka.subscription import KafkaSplit
from millstream.connectors.kafka.waiting import let_go
from millstream.errors import SourceError, told

__all__ = ["KafkaReader"]

# What a message has may be missing, say the types; of one that is no error it is there.
Message: TypeAlias = Any
Decode = Callable[[list[Message]], list[Any]]

_BATCH = 1000
_WAIT = 0.1
_SAY_AFTER = 10.0
# So many consumers are kept per subtask.
_KEPT = 32


class KafkaReader(SourceReader):
    """The worker's half of a `KafkaSource`."""

    def __init__(
        self, properties: Mapping[str, str], deserializer: KafkaRecordDeserializationSchema
    ) -> None:
        self._properties = properties
        self._deserializer = deserializer
        self._decode = _decoder(deserializer)
        self._open: dict[KafkaTopicPartition, _Partition] = {}

    def open(self) -> None:
        """Open the schema."""
        self._deserializer.open()

    def read(self, split: str, start: int, end: int) -> Iterable[Any]:
        """The records of a range."""
        part = KafkaSplit.parse(split).part
        # The one that was used last goes to the end.
        partition = self._open.pop(part, None) or _Partition(self._properties, part)
        self._open[part] = partition
        if len(self._open) > _KEPT:
            self._open.pop(next(iter(self._open))).close()
        return itertools.chain.from_iterable(self._batches(partition, start, end))

    def _batches(self, partition: _Partition, start: int, end: int) -> Iterator[list[Any]]:
        decode = self._decode
        for messages in partition.read(start, end):
            try:
                records = decode(messages)
            except Exception as error:
                raise self._undecodable(messages, error) from error
            yield records

    def _undecodable(self, messages: list[Message], error: Exception) -> SourceError:
        """Which of them it was."""
        for message in messages:
            try:
                self._decode([message])
            except Exception as again:
                error = again
                break
        else:
            # It does not fail any more, so it is not known which one it was.
            message = None
        first, last = messages[0], messages[-1]
        value = None if message is None else message.value()
        return SourceError(
            f"a record cannot be decoded: {told(error)}",
            topic=first.topic(),
            partition=first.partition(),
            offset=message.offset() if message else f"{first.offset()} to {last.offset()}",
            value=None if value is None else repr(value[:200]),
            hint="to skip such records or send them elsewhere, read whole records "
            "(set_deserializer(KafkaRecordDeserializationSchema.records())), decode them in a map, and give that "
            "an ErrorPolicy with on_error(...)",
        )

    def close(self) -> None:
        """Let go of the connections."""
        while self._open:
            self._open.popitem()[1].close()


class _Partition:
    """A consumer of one partition, and where it stands."""

    def __init__(self, properties: Mapping[str, str], part: KafkaTopicPartition) -> None:
        self._part = part
        self._timeout = milliseconds(properties, "millstream.read.timeout.ms")
        self._reset = properties.get("auto.offset.reset", "error")
        self._troubles = Troubles()
        config = consumer_config(properties)
        self._consumer = Consumer({**config, "error_cb": self._troubles}, logger=CLIENT_LOG)
        self._at: int | None = None
        self._left: list[Message] = []
        # The end of the partition is told once.
        self._told_end = -1

    def close(self) -> None:
        clients = [self._consumer]
        del self._consumer
        let_go(clients)

    def read(self, start: int, end: int) -> Iterator[list[Message]]:
        """The messages of a range, a batch at a time."""
        if self._at != start:
            self._go_to(start)
        # Until the range has been read to its end, nobody knows where it stands.
        self._at = None
        consume, position, waited = self._consumer.consume, start, 0.0
        while position < end and not (self._told_end >= end and not self._left):
            # Asked for so many, a consumer waits for all of them: so without waiting first.
            messages = self._left or consume(_BATCH, 0)
            if not messages:
                first = self._wait(start, end, waited)
                waited = waited + _WAIT if first is None else 0.0
                if first is None:
                    continue
                messages = [first]
            waited = 0.0
            self._left = []
            good: list[Message] = [message for message in messages if message.error() is None]
            if len(good) < len(messages):
                position = max(position, self._look_at(messages, position, end))
            if not good:
                continue
            last = good[-1].offset()
            if last >= end:
                at = next(n for n, message in enumerate(good) if message.offset() >= end)
                good, self._left = good[:at], good[at:]
                position = end
            else:
                position = max(position, last + 1)
            if good:
                yield good
        self._at = end

    def _go_to(self, offset: int) -> None:
        self._left, self._told_end = [], -1
        self._consumer.assign([TopicPartition(self._part.topic, self._part.partition, offset)])

    def _wait(self, start: int, end: int, waited: float) -> Message | None:
        if self._troubles.final is not None:
            self._fail(self._troubles.final, start, end)
        if waited > self._timeout:
            self._fail(self._troubles.last, start, end)
        steps = round(waited / _WAIT)
        if steps and steps % round(_SAY_AFTER / _WAIT) == 0:
            log.warning(
                "%s: waiting for offsets %d to %d for %.0f s (%s)",
                self._part,
                start,
                end,
                waited,
                describe(self._troubles.last) or "nothing comes",
            )
        return self._consumer.poll(_WAIT)

    def _look_at(self, messages: list[Message], position: int, end: int) -> int:
        """Take what is no record among messages; how far the range is read now."""
        for message in messages:
            error = message.error()
            if error is None:
                continue
            match error.code():
                case KafkaError._PARTITION_EOF:
                    self._told_end = message.offset() or 0
                case KafkaError._AUTO_OFFSET_RESET | KafkaError.OFFSET_OUT_OF_RANGE:
                    position = self._lost(position, end)
                case _ if error.retriable() or error.code() in _PASSING:
                    self._troubles(error)
                case _:
                    self._fail(error, position, end)
        return position

    def _lost(self, position: int, end: int) -> int:
        """What is to be read is not there any more: go over it if the program says so."""
        try:
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(self._part.topic, self._part.partition), timeout=30, cached=False
            )
        except KafkaException as error:
            self._fail(error.args[0], position, end)
        if self._reset not in (*RESET_TO_FIRST, *RESET_TO_END):
            until = min(low, end) if low > position else end
            raise SourceError(
                f"offsets {position} to {until} of {self._part} are not on the broker any more",
                topic=self._part.topic,
                partition=self._part.partition,
                lost=f"[{position}, {until})",
                on_the_broker=f"[{low}, {high})",
                hint="they have expired or were deleted before they were read. To go on without them, set the source's "
                "property auto.offset.reset to earliest; to begin anew, give the source a new uid; keep records for "
                "longer than the job may be away (retention.ms)",
            )
        # Behind the end nothing is left but the end.
        to = low if low > position and self._reset in RESET_TO_FIRST else high
        log.warning("offsets %d to %d of %s are lost and are left out", position, to, self._part)
        # A consumer that has met a lost offset reads nothing until it is told where to go on.
        self._go_to(min(end, to))
        return to

    def _fail(self, error: KafkaError | None, start: int, end: int) -> NoReturn:
        raise SourceError(
            f"{self._part} cannot be read: {describe(error) or 'no answer'}",
            topic=self._part.topic,
            partition=self._part.partition,
            offsets=f"[{start}, {end})",
            hint=hint_for(error, self._troubles.last),
        )


# What a consumer mends by itself.
_PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}


# Without the Python function that a named tuple is made by.
_make = tuple.__new__


def _decoder(deserializer: KafkaRecordDeserializationSchema) -> Decode:
    """What makes stamped records of messages; the schemas that everybody uses without a call in between."""
    if isinstance(deserializer, ValueOnly):
        schema = deserializer.schema
        if type(schema) is ByteArraySchema:
            return lambda messages: [
                _make(Timestamped, (value, message.timestamp()[1]))
                for message in messages
                if (value := message.value()) is not None
            ]
        of_value = schema.deserialize
        if type(schema) is SimpleStringSchema:
            charset = schema.get_charset()

            def of_value(message: bytes) -> str:
                return message.decode(charset, "replace")

        return lambda messages: [
            _make(Timestamped, (record, message.timestamp()[1]))
            for message in messages
            if (value := message.value()) is not None and (record := of_value(value)) is not None
        ]
    if type(deserializer) is WholeRecords:
        return lambda messages: [
            _make(Timestamped, (record, record.timestamp)) for record in map(_record, messages)
        ]
    deserialize = deserializer.deserialize
    return lambda messages: [
        _make(Timestamped, (made, record.timestamp))
        for record in map(_record, messages)
        if (made := deserialize(record)) is not None
    ]


def _record(message: Message) -> KafkaRecord:
    headers = message.headers()
    return KafkaRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(headers) if headers else (),
    )
