"""Records from Kafka (PyFlink's `KafkaSource`).

Partitions are splits, offsets are positions: what a checkpoint says is where a job goes on. The group's offsets follow
the checkpoints, for those who watch the group; the job itself asks for them only if it is told to begin there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.common.serialization import DeserializationSchema
from millstream.connectors.kafka.deserialize import KafkaRecordDeserializationSchema
from millstream.connectors.kafka.offsets import KafkaOffsetsInitializer, KafkaTopicPartition
from millstream.connectors.kafka.settings import (
    OWN,
    RESETS,
    Properties,
    checked,
    choice,
    consumer_config,
    flag,
    milliseconds,
    require_client,
    topic_name,
    try_out,
)
from millstream.connectors.kafka.subscription import Subscription
from millstream.errors import InvalidArgument

__all__ = ["KafkaSource", "KafkaSourceBuilder"]


class KafkaSource(Source):
    """Reads topics; made by a builder.

    >>> from millstream.common.serialization import SimpleStringSchema
    >>> builder = KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_topics("orders")
    >>> builder.set_value_only_deserializer(SimpleStringSchema()).build()
    <KafkaSource orders at localhost:9092>
    """

    def __init__(
        self,
        properties: Properties,
        subscription: Subscription,
        starting: KafkaOffsetsInitializer,
        stopping: KafkaOffsetsInitializer | None,
        deserializer: KafkaRecordDeserializationSchema,
        *,
        bounded: bool,
    ) -> None:
        self._properties = properties
        self._subscription = subscription
        self._starting = starting
        self._stopping = stopping
        self._deserializer = deserializer
        self._bounded = bounded

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """A `KafkaSourceBuilder`."""
        return KafkaSourceBuilder()

    def __repr__(self) -> str:
        return f"<KafkaSource {self._subscription} at {self._properties['bootstrap.servers']}>"

    def boundedness(self) -> Boundedness:
        """Bounded if the builder was told so."""
        return Boundedness.BOUNDED if self._bounded else Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        """The driver's half; it connects when it is first asked."""
        require_client()
        from millstream.connectors.kafka.discover import KafkaSplits

        return KafkaSplits(
            self._properties,
            self._subscription,
            self._starting,
            self._stopping,
            bounded=self._bounded,
        )

    def create_reader(self) -> SourceReader:
        """The worker's half."""
        require_client()
        from millstream.connectors.kafka.reader import KafkaReader

        return KafkaReader(self._properties, self._deserializer)

    def paced(self) -> bool:
        """True if the end that was given may not be there yet."""
        return self._stopping is not None and self._stopping.kind == "offsets"

    def stamped(self) -> bool:
        """Records come with their timestamps."""
        return True

    def keeps_records(self) -> bool:
        """What a schema of one's own gives may be given again."""
        return not self._deserializer.makes_new_objects()


class KafkaSourceBuilder:
    """Builds a `KafkaSource`: servers, topics and a deserializer are needed.

    >>> builder = KafkaSource.builder().set_bootstrap_servers("localhost:9092")
    >>> builder.set_topic_pattern("orders-.*").build()
    Traceback (most recent call last):
    ...
    millstream.errors.InvalidArgument: [INVALID_ARGUMENT] the Kafka source lacks something
      missing: set_value_only_deserializer or set_deserializer
      what to do: call it before the source is built
    """

    def __init__(self) -> None:
        self._properties: Properties = {}
        self._subscription: Subscription | None = None
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._bounded = False
        self._deserializer: KafkaRecordDeserializationSchema | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Where to begin: `host:port`, several with commas."""
        return self.set_property("bootstrap.servers", _text(bootstrap_servers, "bootstrap servers"))

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """The group whose offsets follow the checkpoints, and that `committed_offsets` asks."""
        return self.set_property("group.id", _text(group_id, "a group id"))

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Read all partitions of these topics."""
        names = tuple(topic_name(topic) for topic in topics)
        if not names:
            raise InvalidArgument("set_topics needs one topic or more")
        return self._subscribe(Subscription(topics=names))

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read all topics whose whole name matches a regular expression, also those that appear later."""
        try:
            re.compile(_text(topic_pattern, "a pattern"))
        except re.error as error:
            raise InvalidArgument(
                f"this is no regular expression: {error}", got=topic_pattern
            ) from None
        return self._subscribe(Subscription(pattern=topic_pattern))

    def set_partitions(self, partitions: Iterable[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Read these partitions alone."""
        given: Any = partitions
        parts = frozenset(given) if isinstance(given, Iterable) else frozenset()
        if not parts or not all(isinstance(part, KafkaTopicPartition) for part in parts):
            raise InvalidArgument(
                "set_partitions needs a set of KafkaTopicPartition",
                got=repr(partitions)[:200],
                hint='{KafkaTopicPartition("orders", 0)}',
            )
        return self._subscribe(Subscription(parts=parts))

    def _subscribe(self, subscription: Subscription) -> KafkaSourceBuilder:
        if self._subscription is not None:
            raise InvalidArgument(
                "the source has been told what to read",
                before=str(self._subscription),
                now=str(subscription),
                hint="call one of set_topics, set_topic_pattern and set_partitions, once",
            )
        self._subscription = subscription
        return self

    def set_starting_offsets(
        self, starting_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Where a job begins that has no checkpoint; by default with the first record."""
        self._starting = _initializer(starting_offsets_initializer)
        return self

    def set_unbounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Stop at these offsets, in a job that runs as a streaming job with checkpoints."""
        self._stopping, self._bounded = _initializer(stopping_offsets_initializer), False
        return self

    def set_bounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Stop at these offsets; the source is a bounded one. They are found out once, when the job begins."""
        self._stopping, self._bounded = _initializer(stopping_offsets_initializer), True
        return self

    def set_value_only_deserializer(
        self, deserialization_schema: DeserializationSchema
    ) -> KafkaSourceBuilder:
        """Records are what a schema makes of the values; those without a value are left out."""
        schema = KafkaRecordDeserializationSchema.value_only(deserialization_schema)
        return self.set_deserializer(schema)

    def set_deserializer(
        self, record_deserializer: KafkaRecordDeserializationSchema
    ) -> KafkaSourceBuilder:
        """Records are what a schema makes of key, value, headers and all."""
        given: Any = record_deserializer
        if not isinstance(given, KafkaRecordDeserializationSchema):
            raise InvalidArgument(
                "this is not a KafkaRecordDeserializationSchema",
                got=type(given).__name__,
                hint="KafkaRecordDeserializationSchema.records(), or a subclass with deserialize(record)",
            )
        self._deserializer = record_deserializer
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """What the ids of the source's clients begin with."""
        return self.set_property("client.id.prefix", _text(prefix, "a prefix"))

    def set_property(self, key: str, value: Any) -> KafkaSourceBuilder:
        """A property of the client, or one of the source's own: see docs/connectors/kafka.md."""
        name, text = checked(key, value)
        self._properties[name] = text
        return self

    def set_properties(self, props: Mapping[str, Any]) -> KafkaSourceBuilder:
        """Set several of the client's properties."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSource:
        """The source; what it cannot work with is refused here."""
        missing = [
            call
            for call, there in (
                ("set_bootstrap_servers", "bootstrap.servers" in self._properties),
                ("set_topics, set_topic_pattern or set_partitions", self._subscription is not None),
                ("set_value_only_deserializer or set_deserializer", self._deserializer is not None),
            )
            if not there
        ]
        if missing:
            raise InvalidArgument(
                "the Kafka source lacks something",
                missing="; ".join(missing),
                hint="call it before the source is built",
            )
        assert self._subscription is not None
        assert self._deserializer is not None
        for initializer in (self._starting, self._stopping):
            if (
                initializer is not None
                and initializer.kind == "committed_offsets"
                and "group.id" not in self._properties
            ):
                raise InvalidArgument(
                    "committed offsets are those of a group", hint="call set_group_id(...)"
                )
        flag(self._properties, "commit.offsets.on.checkpoint")
        for name in OWN:
            if name.endswith(".ms"):
                milliseconds(self._properties, name)
        choice(self._properties, "isolation.level", "read_committed", "read_uncommitted")
        choice(self._properties, "auto.offset.reset", *RESETS)
        try_out("Consumer", consumer_config(self._properties))
        return KafkaSource(
            dict(self._properties),
            self._subscription,
            self._starting,
            self._stopping,
            self._deserializer,
            bounded=self._bounded,
        )


def _text(value: Any, what: str) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise InvalidArgument(f"{what} must be a text that is not empty", got=repr(value)[:200])


def _initializer(given: Any) -> KafkaOffsetsInitializer:
    if isinstance(given, KafkaOffsetsInitializer):
        return given
    raise InvalidArgument(
        "this is not a KafkaOffsetsInitializer",
        got=repr(given)[:200],
        hint="KafkaOffsetsInitializer.earliest(), .latest(), .timestamp(...), .committed_offsets(...)",
    )
