"""Records into Kafka (PyFlink's `KafkaSink`).

`EXACTLY_ONCE`: tasks stage an epoch's records in files beside the job's checkpoints; when the checkpoint is complete,
the driver writes them in one transaction. Readers with `isolation.level=read_committed` see each record once, and whole
epochs. `AT_LEAST_ONCE`: tasks write at once and wait at the end of the epoch until the broker has everything; after a
failure records are written again. `NONE`: the same, but a record that cannot be delivered is only logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.api.sink import Committer, DeliveryGuarantee, Sink, SinkWriter, WriterContext
from millstream.connectors.kafka.serialize import (
    BuiltSchema,
    DeadLetters,
    KafkaRecordSerializationSchema,
)
from millstream.connectors.kafka.settings import (
    Properties,
    checked,
    milliseconds,
    producer_config,
    require_client,
    topic_name,
    transaction_config,
    try_out,
)
from millstream.errors import InvalidArgument

__all__ = ["KafkaSink", "KafkaSinkBuilder"]

COMMIT_TOPIC = "millstream-commits"
_SHORTEST_MS = 10_000


class KafkaSink(Sink):
    """Writes topics; made by a builder.

    >>> from millstream.common.serialization import SimpleStringSchema
    >>> schema = KafkaRecordSerializationSchema.builder().set_topic("words")
    >>> schema = schema.set_value_serialization_schema(SimpleStringSchema()).build()
    >>> builder = KafkaSink.builder().set_bootstrap_servers("localhost:9092")
    >>> builder = builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    >>> builder.set_transactional_id_prefix("words").set_record_serializer(schema).build()
    <KafkaSink words at localhost:9092, exactly-once>
    """

    def __init__(
        self,
        properties: Properties,
        schema: KafkaRecordSerializationSchema,
        guarantee: DeliveryGuarantee,
        prefix: str,
        commit_topic: str,
    ) -> None:
        self.guarantee = guarantee
        self._properties = properties
        self._schema = schema
        self._prefix = prefix
        self._commit_topic = commit_topic
        self._opened = False

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """A `KafkaSinkBuilder`."""
        return KafkaSinkBuilder()

    def __repr__(self) -> str:
        where = self._properties["bootstrap.servers"]
        what = ", ".join(self._topics) or "topics by record"
        return f"<KafkaSink {what} at {where}, {self.guarantee.value}>"

    @property
    def _topics(self) -> list[str]:
        schema = self._schema
        if isinstance(schema, (BuiltSchema, DeadLetters)) and schema.topic:
            return [schema.topic]
        return []

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """The writer of a subtask's epoch."""
        require_client()
        from millstream.connectors.kafka.write import DirectWriter, KafkaStagingWriter

        if not self._opened:
            self._opened = True
            self._schema.open()
        if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            return KafkaStagingWriter(self._schema, context, self._properties)
        sure = self.guarantee is DeliveryGuarantee.AT_LEAST_ONCE
        return DirectWriter(self._schema, self._properties, sure=sure)

    def create_committer(self) -> Committer:
        """What commits epochs. It connects now, so that a job that cannot write does not begin."""
        require_client()
        from millstream.connectors.kafka.cluster import Cluster
        from millstream.connectors.kafka.commit import KafkaCommitter, check_cluster
        from millstream.errors import SinkError

        if self.guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            if not self._prefix:
                raise SinkError(
                    "the checkpoint has records to write that were staged when the sink was EXACTLY_ONCE",
                    hint="give the sink the transactional id prefix that it had, so that they are written once",
                )
            return KafkaCommitter(self._properties, self._prefix, self._commit_topic, self._topics)
        cluster = Cluster(self._properties, SinkError, "sink")
        check_cluster(cluster, self._properties, self._topics)
        cluster.close()
        return _StagedBefore(self)

    def exactly_once(self) -> KafkaSink:
        """The same sink, as it is with `EXACTLY_ONCE`."""
        exactly = DeliveryGuarantee.EXACTLY_ONCE
        return KafkaSink(self._properties, self._schema, exactly, self._prefix, self._commit_topic)


class _StagedBefore(Committer):
    """Nothing is staged by this sink. What the checkpoint that a job starts from has left was, when the sink was an
    exactly-once one: it is written as it would have been then."""

    def __init__(self, sink: KafkaSink) -> None:
        self._made_by = sink

    def commit(self, epoch: int, committables: Sequence[bytes]) -> None:
        """Write what was staged, if anything was."""
        if not committables:
            return
        committer = self._made_by.exactly_once().create_committer()
        committer.job_id, committer.sink = self.job_id, self.sink
        try:
            committer.commit_again(epoch, committables)
        finally:
            committer.close()


class KafkaSinkBuilder:
    """Builds a `KafkaSink`: servers and a serializer are needed, for exactly-once also a prefix.

    >>> KafkaSink.builder().set_delivery_guarantee(DeliveryGuarantee.EFFECTIVELY_ONCE)
    Traceback (most recent call last):
    ...
    millstream.errors.InvalidArgument: [INVALID_ARGUMENT] Kafka's sink has no guarantee of this kind
      got: effectively-once
      what to do: DeliveryGuarantee.EXACTLY_ONCE, AT_LEAST_ONCE or NONE
    """

    def __init__(self) -> None:
        self._properties: Properties = {}
        self._schema: KafkaRecordSerializationSchema | None = None
        self._guarantee = DeliveryGuarantee.AT_LEAST_ONCE
        self._prefix = ""
        self._commit_topic = COMMIT_TOPIC

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Where to begin: `host:port`, several with commas."""
        return self.set_property("bootstrap.servers", _text(bootstrap_servers, "bootstrap servers"))

    def set_record_serializer(
        self, record_serializer: KafkaRecordSerializationSchema
    ) -> KafkaSinkBuilder:
        """What makes Kafka's records of the stream's."""
        given: Any = record_serializer
        if not isinstance(given, KafkaRecordSerializationSchema):
            raise InvalidArgument(
                "this is not a KafkaRecordSerializationSchema",
                got=type(given).__name__,
                hint="KafkaRecordSerializationSchema.builder().set_topic(...)....build()",
            )
        self._schema = record_serializer
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """What the sink promises; at-least-once if nothing is said."""
        given: Any = delivery_guarantee
        if not isinstance(given, DeliveryGuarantee) or (
            given is DeliveryGuarantee.EFFECTIVELY_ONCE
        ):
            raise InvalidArgument(
                "Kafka's sink has no guarantee of this kind",
                got=given.value if isinstance(given, DeliveryGuarantee) else repr(given)[:200],
                hint="DeliveryGuarantee.EXACTLY_ONCE, AT_LEAST_ONCE or NONE",
            )
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """What the names of the sink's transactions and of its group begin with: its own in each program, and the same
        whenever the program is started."""
        self._prefix = _text(transactional_id_prefix, "a prefix")
        return self

    def set_commit_topic(self, topic: str) -> KafkaSinkBuilder:
        """The compacted topic in which committed epochs are noted ("millstream-commits"); made if it is missing."""
        self._commit_topic = topic_name(topic)
        return self

    def set_property(self, key: str, value: Any) -> KafkaSinkBuilder:
        """A property of the client, or one of the sink's own: see docs/connectors/kafka.md."""
        name, text = checked(key, value)
        self._properties[name] = text
        return self

    def build(self) -> KafkaSink:
        """The sink; what it cannot work with is refused here."""
        exactly = self._guarantee is DeliveryGuarantee.EXACTLY_ONCE
        missing = [
            call
            for call, there in (
                ("set_bootstrap_servers", "bootstrap.servers" in self._properties),
                ("set_record_serializer", self._schema is not None),
                ("set_transactional_id_prefix", bool(self._prefix) or not exactly),
            )
            if not there
        ]
        if missing:
            raise InvalidArgument(
                "the Kafka sink lacks something",
                missing=", ".join(missing),
                hint="call it before the sink is built; the prefix is needed for EXACTLY_ONCE",
            )
        assert self._schema is not None
        for name in ("transactional.id", "enable.idempotence"):
            if exactly and name in self._properties:
                raise InvalidArgument(
                    f"{name} is the sink's own",
                    hint="leave it out; set_transactional_id_prefix(...)",
                )
        self._check_timeout()
        milliseconds(self._properties, "default.api.timeout.ms")
        milliseconds(self._properties, "millstream.commit.timeout.ms")
        try_out(
            "Producer",
            transaction_config(self._properties) if exactly else producer_config(self._properties),
        )
        return KafkaSink(
            dict(self._properties), self._schema, self._guarantee, self._prefix, self._commit_topic
        )

    def _check_timeout(self) -> None:
        given = self._properties.get("transaction.timeout.ms")
        if given is None:
            return
        if not given.isdigit():
            raise InvalidArgument("transaction.timeout.ms is a number of milliseconds", got=given)
        if int(given) < _SHORTEST_MS:
            raise InvalidArgument(
                "transaction.timeout.ms is too short: an epoch's records must be written in this time",
                got=given,
                least=_SHORTEST_MS,
                hint="leave it out (10 minutes, or what the broker allows), or set more than a commit may take",
            )


def _text(value: Any, what: str) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise InvalidArgument(f"{what} must be a text that is not empty", got=repr(value)[:200])
