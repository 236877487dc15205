"""Kafka's source and sink as far as they need no broker: builders, splits, the enumerator with a cluster of its own."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from confluent_kafka import KafkaError, KafkaException

from millstream.api.sink import DeliveryGuarantee, WriterContext
from millstream.common.serialization import SerializationSchema, SimpleStringSchema
from millstream.connectors.kafka.cluster import Troubles
from millstream.connectors.kafka.discover import KafkaSplits
from millstream.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from millstream.connectors.kafka.record import KafkaRecord
from millstream.connectors.kafka.staging import Block, StagedFile, StagedRecords, read_blocks
from millstream.connectors.kafka.subscription import Subscription
from millstream.connectors.kafka.write import DirectWriter, KafkaStagingWriter
from millstream.datastream.connectors.kafka import (
    KafkaProducerRecord,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from millstream.errors import InvalidArgument, SinkError, SourceError, SourceNotFound
from millstream.pyflink.catalogue import modules
from millstream.storage.storage import LocalStorage

Part = KafkaTopicPartition


# -- builders ------------------------------------------------------------------------------------------------


def source() -> Any:
    return KafkaSource.builder().set_bootstrap_servers("h:1").set_topics("t")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: source().build(), "set_value_only_deserializer"),
        (lambda: KafkaSource.builder().set_topics(), "one topic or more"),
        (lambda: source().set_topics("u"), "has been told what to read"),
        (lambda: source().set_topic_pattern("u.*"), "has been told what to read"),
        (lambda: KafkaSource.builder().set_topic_pattern("("), "no regular expression"),
        (lambda: KafkaSource.builder().set_partitions([("t", 0)]), "set of KafkaTopicPartition"),
        (lambda: source().set_starting_offsets("earliest"), "not a KafkaOffsetsInitializer"),
        (lambda: source().set_value_only_deserializer(str), "not a DeserializationSchema"),
        (lambda: source().set_deserializer(SimpleStringSchema()), "KafkaRecordDeserialization"),
        (lambda: source().set_property("sasl.jaas.config", "x"), "sasl.username"),
        (lambda: source().set_property("a", object()), "a text, a number or a boolean"),
        (lambda: KafkaOffsetsInitializer.timestamp(-1), "milliseconds since 1970"),
        (lambda: KafkaOffsetsInitializer.timestamp(2**63), "milliseconds since 1970"),
        (lambda: KafkaOffsetsInitializer.offsets({("t", 0): 1}), "dict of partitions"),
        (lambda: KafkaOffsetsInitializer.offsets({Part("t", 0): 2**63}), "dict of partitions"),
        (lambda: Part("t", "0"), "a whole number from 0"),
        (lambda: Part("t", -1), "a whole number from 0"),
        (lambda: KafkaSource.builder().set_topics("my orders"), "letters, digits"),
        (lambda: KafkaOffsetsInitializer.committed_offsets("earliest"), "ResetStrategy"),
    ],
)
def test_what_a_source_cannot_be_is_refused_when_it_is_built(call: Any, text: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        call()
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("no.such.property", "1", "does not take these properties"),
        ("fetch.min.bytes", "many", "does not take these properties"),
        ("isolation.level", "chaos", "read_committed or read_uncommitted"),
        ("commit.offsets.on.checkpoint", "maybe", "true or false"),
        ("partition.discovery.interval.ms", "often", "number of milliseconds"),
        ("default.api.timeout.ms", "nan", "number of milliseconds"),
        ("default.api.timeout.ms", "-1", "number of milliseconds"),
        ("auto.offset.reset", "erliest", "auto.offset.reset is error"),
        # Only a consumer minds: it is more than max.poll.interval.ms.
        ("session.timeout.ms", "600000", "max.poll.interval.ms"),
        ("error_cb", "x", "does not take these properties"),
    ],
)
def test_a_property_that_nobody_takes_is_refused(name: str, value: str, text: str) -> None:
    made = source().set_value_only_deserializer(SimpleStringSchema()).set_property(name, value)
    with pytest.raises(InvalidArgument, match=text):
        made.build()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", "1"),
        ("retries", "0"),
        ("max.in.flight.requests.per.connection", "10"),
        ("message.timeout.ms", "700000"),
    ],
)
def test_a_property_that_no_transaction_goes_with_is_refused(name: str, value: str) -> None:
    made = KafkaSink.builder().set_bootstrap_servers("h:1").set_record_serializer(serializer())
    made.set_transactional_id_prefix("p").set_property(name, value).build()
    made.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    with pytest.raises(InvalidArgument, match="does not take these properties"):
        made.build()


def test_a_message_may_wait_as_long_as_its_transaction() -> None:
    made = KafkaSink.builder().set_bootstrap_servers("h:1").set_record_serializer(serializer())
    made.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix("p")
    sink = made.set_property("message.timeout.ms", 600_000).build()
    assert sink.guarantee is DeliveryGuarantee.EXACTLY_ONCE


def test_a_number_of_bytes_may_be_a_float(tmp_path: Path) -> None:
    made = KafkaSink.builder().set_bootstrap_servers("h:1").set_record_serializer(serializer())
    made.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix("p")
    sink = made.set_property("message.max.bytes", 2e6).build()
    context = WriterContext(0, 1, 3, "a1", "job", "sink", LocalStorage(str(tmp_path)))
    sink.create_writer(context).write("x" * 1_500_000)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partition.discovery.interval.ms", "-1"),
        ("partition.discovery.interval.ms", "0"),
        ("auto.offset.reset", "none"),
        ("auto.offset.reset", "latest"),
    ],
)
def test_values_that_mean_something_are_taken(name: str, value: str) -> None:
    made = source().set_value_only_deserializer(SimpleStringSchema()).set_property(name, value)
    assert repr(made.build()) == "<KafkaSource t at h:1>"


def test_committed_offsets_need_a_group() -> None:
    made = source().set_value_only_deserializer(SimpleStringSchema())
    made.set_starting_offsets(KafkaOffsetsInitializer.committed_offsets())
    with pytest.raises(InvalidArgument, match="set_group_id"):
        made.build()
    made.set_group_id("g").build()


def serializer() -> KafkaRecordSerializationSchema:
    made = KafkaRecordSerializationSchema.builder().set_topic("t")
    return made.set_value_serialization_schema(SimpleStringSchema()).build()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda b: b.build(), "set_record_serializer"),
        (lambda b: b.set_record_serializer(serializer()).build(), "set_transactional_id_prefix"),
        (lambda b: b.set_record_serializer(SimpleStringSchema()), "KafkaRecordSerialization"),
        (lambda b: b.set_delivery_guarantee("exactly-once"), "no guarantee of this kind"),
        (
            lambda b: (
                b.set_record_serializer(serializer())
                .set_transactional_id_prefix("p")
                .set_property("transactional.id", "x")
                .build()
            ),
            "the sink's own",
        ),
        (
            lambda b: (
                b.set_record_serializer(serializer())
                .set_transactional_id_prefix("p")
                .set_property("transaction.timeout.ms", "long")
                .build()
            ),
            "transaction.timeout.ms is a number of milliseconds",
        ),
        (lambda b: b.set_commit_topic("a b"), "letters, digits"),
        (lambda _: KafkaRecordSerializationSchema.builder().set_topic(" "), "letters, digits"),
    ],
)
def test_what_a_sink_cannot_be_is_refused_when_it_is_built(call: Any, text: str) -> None:
    made = KafkaSink.builder().set_bootstrap_servers("h:1")
    made.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    with pytest.raises(InvalidArgument) as refused:
        call(made)
    assert text in str(refused.value)


def test_all_names_of_pyflinks_are_there() -> None:
    import millstream.datastream.connectors.kafka as ours

    theirs = modules()["pyflink.datastream.connectors.kafka"].classes
    assert {"KafkaSource", "KafkaSink", "KafkaTopicPartition"} <= theirs.keys()
    for name, definition in theirs.items():
        if name.startswith(("FlinkKafka", "Semantic")):
            continue
        own = getattr(ours, name)
        missing = {m.name for m in definition.members if not hasattr(own, m.name)}
        assert missing <= {"get_transformer"}, name


def test_a_record_is_pickled_by_its_word() -> None:
    record = KafkaRecord("t", 0, 1, 2, b"k", b"v", (("h", None),))
    body = pickle.dumps(record)
    assert pickle.loads(body) == record
    assert b"connectors" not in body


# -- the enumerator ------------------------------------------------------------------------------------------


def done(offset: int | KafkaException) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(offset, KafkaException):
        future.set_exception(offset)
    else:
        future.set_result(SimpleNamespace(offset=offset))
    return future


class FakeCluster:
    """Partitions with a beginning and an end each; `away` is what it says instead."""

    servers = "fake:1"

    def __init__(self, **parts: tuple[int, int]) -> None:
        self.parts = {Part(*_split(name)): range_ for name, range_ in parts.items()}
        self.troubles = Troubles()
        self.away: KafkaError | None = None
        self.asked = 0
        self.noted: list[dict[Part, int]] = []
        self.offsets: dict[Part, int | None] = {}

    def topics(self) -> dict[str, int]:
        if self.away is not None:
            raise SourceError("away")
        found: dict[str, int] = {}
        for part in self.parts:
            found[part.topic] = found.get(part.topic, 0) + 1
        return found

    def begins(self, parts: Iterable[Part]) -> dict[Part, int]:
        return {part: self.parts[part][0] for part in parts}

    def ends(self, parts: Iterable[Part]) -> dict[Part, int]:
        return {part: self.parts[part][1] for part in parts}

    def committed(self, parts: Iterable[Part]) -> dict[Part, int | None]:
        return {part: self.offsets.get(part) for part in parts}

    def ask_ends(self, parts: Iterable[Part]) -> dict[Part, Future[Any]]:
        self.asked += 1
        if self.away is not None:
            return {part: done(KafkaException(self.away)) for part in parts}
        return {part: done(self.parts[part][1]) for part in parts}

    def commit(self, positions: dict[Part, int]) -> None:
        self.noted.append(positions)

    def lacks(self, part: Part) -> bool:
        return self.away is not None

    def listen(self) -> None: ...

    def renew(self, error: KafkaError) -> None: ...

    def close(self) -> None: ...


def _split(name: str) -> tuple[str, int]:
    return name[:-1], int(name[-1])


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def splits(
    cluster: FakeCluster,
    starting: KafkaOffsetsInitializer | None = None,
    stopping: KafkaOffsetsInitializer | None = None,
    topics: tuple[str, ...] = ("t",),
    pattern: str = "",
    **properties: str,
) -> tuple[KafkaSplits, Clock]:
    clock = Clock()
    named = {"bootstrap.servers": "fake:1"} | {
        k.replace("_", "."): v for k, v in properties.items()
    }
    made = KafkaSplits(
        named,
        Subscription(pattern=pattern) if pattern else Subscription(topics=topics),
        starting or KafkaOffsetsInitializer.earliest(),
        stopping,
        bounded=stopping is not None,
        cluster=cluster,
        clock=clock,
    )
    return made, clock


def test_a_split_that_ends_says_where_in_its_name() -> None:
    latest = KafkaOffsetsInitializer.latest()
    made, _ = splits(FakeCluster(t0=(0, 5), t1=(2, 9)), stopping=latest)
    assert made.discover() == ["t-0#5", "t-1#9"]
    assert made.exhausted()
    again, _ = splits(FakeCluster(t0=(0, 50), t1=(2, 90)), stopping=latest)
    again.restored({"t-0#5": 3, "t-1#9": ~9})
    # The end stays what it was when the job began.
    assert again.discover() == ["t-0#5", "t-1#9"]
    assert again.available("t-0#5", 3) == 5
    assert again.finished("t-0#5", 5)
    assert not again.finished("t-0#5", 4)


def test_a_partition_that_appears_later_is_read_from_its_beginning() -> None:
    cluster = FakeCluster(t0=(0, 5))
    made, clock = splits(
        cluster, KafkaOffsetsInitializer.latest(), partition_discovery_interval_ms="1000"
    )
    assert made.discover() == ["t-0"]
    assert made.start("t-0") == 5
    cluster.parts[Part("t", 1)] = (3, 8)
    assert made.discover() == ["t-0"]
    clock.now = 1.5
    assert made.discover() == ["t-0", "t-1"]
    assert made.start("t-1") == 3
    assert not made.exhausted()


def test_latest_stays_what_it_was_for_all_attempts_of_a_driver() -> None:
    cluster = FakeCluster(t0=(0, 5))
    made, _ = splits(cluster, KafkaOffsetsInitializer.latest())
    made.discover()
    cluster.parts[Part("t", 0)] = (0, 9)
    made.rewound({})
    assert made.start("t-0") == 5


def test_the_cluster_is_asked_beside_the_planner_and_not_at_each_look() -> None:
    cluster = FakeCluster(t0=(0, 5))
    made, clock = splits(cluster)
    made.discover()
    for _ in range(100):
        assert made.available("t-0", 0) == 5
    assert cluster.asked == 1
    cluster.parts[Part("t", 0)] = (0, 7)
    clock.now = 0.06
    made.available("t-0", 0)
    assert made.available("t-0", 0) == 7


def test_while_the_cluster_is_away_there_is_nothing_new() -> None:
    cluster = FakeCluster(t0=(0, 5))
    made, clock = splits(cluster, partition_discovery_interval_ms="100")
    made.discover()
    assert made.available("t-0", 5) == 5
    cluster.away = KafkaError(KafkaError._TRANSPORT)
    for step in range(200):
        clock.now = step
        assert made.discover() == ["t-0"]
        assert made.available("t-0", 5) == 5
    cluster.away = None
    cluster.parts[Part("t", 0)] = (0, 6)
    for step in range(5):
        clock.now = 300 + step
        found = made.available("t-0", 5)
    assert found == 6


def test_a_topic_that_stays_unknown_is_gone() -> None:
    cluster = FakeCluster(t0=(0, 5))
    made, clock = splits(cluster)
    made.discover()
    made.available("t-0", 5)
    cluster.away = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    for step in range(11):
        clock.now = step
        assert made.available("t-0", 5) == 5
    clock.now = 20
    with pytest.raises(SourceNotFound, match="t-0 is not there"):
        [made.available("t-0", 5) for _ in range(2)]


def test_an_end_that_went_back_is_believed_only_after_a_while() -> None:
    cluster = FakeCluster(t0=(0, 5))
    made, clock = splits(cluster)
    made.restored({"t-0": 5})
    made.discover()
    cluster.parts[Part("t", 0)] = (0, 2)
    clock.now = 1
    made.available("t-0", 5)
    clock.now = 2
    assert made.available("t-0", 5) == 5
    clock.now = 20
    # Then it is the coordinator's to say that records are missing.
    assert made.available("t-0", 5) == 2


def test_a_start_that_lies_ahead_is_waited_for_after_a_restore_as_well() -> None:
    made, clock = splits(FakeCluster(t0=(0, 5)), KafkaOffsetsInitializer.offsets({Part("t", 0): 8}))
    made.restored({"t-0": 8})
    made.discover()
    for clock.now in (1, 2, 20):
        assert made.available("t-0", 8) == 8


def test_a_topic_that_is_new_in_the_program_must_be_there_after_a_restore_as_well() -> None:
    made, _ = splits(FakeCluster(t0=(0, 5)), topics=("t", "typo"))
    made.restored({"t-0": 3})
    with pytest.raises(SourceNotFound, match="no such topic or partition: typo"):
        made.discover()
    # One that was read before may come back.
    again, _ = splits(FakeCluster(t0=(0, 5)), topics=("t", "u"))
    again.restored({"t-0": 3, "u-0": 4})
    assert again.discover() == ["t-0", "u-0"]


def test_the_first_topic_of_a_pattern_may_appear_later_and_is_read_from_its_beginning() -> None:
    cluster = FakeCluster()
    latest = KafkaOffsetsInitializer.latest()
    made, clock = splits(cluster, latest, pattern="t.*", partition_discovery_interval_ms="1000")
    assert made.discover() == []
    cluster.parts[Part("t", 0)] = (3, 8)
    clock.now = 1.5
    assert made.discover() == ["t-0"]
    assert made.start("t-0") == 3


@pytest.mark.parametrize(
    ("position", "stopping", "said"),
    [
        ({"t-0": ~3}, None, "t-0 has ended at offset 3 in the checkpoint"),
        ({"t-0#9": 3}, None, "t-0 ends at offset 9, as in the checkpoint"),
        ({"t-0": 3}, KafkaOffsetsInitializer.latest(), "t-0 ends nowhere, as in the checkpoint"),
    ],
)
def test_an_end_that_the_program_does_not_expect_is_told_of(
    caplog: pytest.LogCaptureFixture, position: dict[str, int], stopping: Any, said: str
) -> None:
    made, _ = splits(FakeCluster(t0=(0, 5)), stopping=stopping)
    made.restored(position)
    assert said in caplog.text


def test_what_the_program_does_not_name_any_more_ends() -> None:
    made, _ = splits(FakeCluster(t0=(0, 5)))
    made.restored({"t-0": 1, "other-0": 7})
    assert made.available("other-0", 7) == 7
    assert made.finished("other-0", 7)
    assert not made.finished("t-0", 1)


def test_offsets_go_to_the_group_with_each_checkpoint_if_there_is_one() -> None:
    cluster = FakeCluster(t0=(0, 5), t1=(0, 5))
    made, _ = splits(cluster, group_id="g")
    made.discover()
    made.commit_all({"t-0": 3, "t-1": 5})
    assert cluster.noted == [{Part("t", 0): 3, Part("t", 1): 5}]
    for more in ({}, {"group_id": "g", "commit_offsets_on_checkpoint": "false"}):
        silent, _ = splits(cluster, **more)
        silent.discover()
        silent.commit_all({"t-0": 4, "t-1": 5})
    assert len(cluster.noted) == 1


def test_offsets_that_are_missing_are_what_the_strategy_says() -> None:
    cluster = FakeCluster(t0=(1, 5), t1=(2, 6))
    for reset, wanted in (
        (KafkaOffsetResetStrategy.EARLIEST, [4, 2]),
        (KafkaOffsetResetStrategy.LATEST, [4, 6]),
    ):
        given = KafkaOffsetsInitializer.offsets({Part("t", 0): 4}, reset)
        made, _ = splits(cluster, given)
        assert [made.start(split) for split in made.discover()] == wanted
    none = KafkaOffsetsInitializer.offsets({Part("t", 0): 4}, KafkaOffsetResetStrategy.NONE)
    made, _ = splits(cluster, none)
    with pytest.raises(SourceError, match="no offset for t-1"):
        made.discover()


# -- staging -------------------------------------------------------------------------------------------------


def write(folder: Path, values: list[str]) -> StagedRecords:
    context = WriterContext(0, 1, 3, "a1", "job", "sink", LocalStorage(str(folder)))
    writer = KafkaStagingWriter(serializer(), context, {})
    for value in values:
        writer.write(value)
    made = writer.prepare_commit()
    assert made is not None
    return StagedRecords.decode(made)


def test_what_was_staged_is_read_back_block_by_block(tmp_path: Path) -> None:
    values = [f"{n}" for n in range(20_000)]
    staged = write(tmp_path, values)
    blocks = list(read_blocks(staged))
    assert [value for block in blocks for value in block.values] == [v.encode() for v in values]
    assert {block.topics for block in blocks} == {"t"}
    assert len(blocks) == 3
    assert staged.records == 20_000


def test_large_records_make_small_blocks(tmp_path: Path) -> None:
    blocks = list(read_blocks(write(tmp_path, ["x" * 500_000] * 10)))
    assert max(block.count for block in blocks) <= 3


@pytest.mark.parametrize("damage", ["cut", "longer", "flipped"])
def test_a_staged_file_is_checked_while_it_is_read(tmp_path: Path, damage: str) -> None:
    staged = write(tmp_path, ["some text"] * 100)
    path = tmp_path / staged.name
    body = path.read_bytes()
    changed = {
        "cut": body[:-10],
        "longer": body + body,
        "flipped": body[:50] + b"!" + body[51:],
    }[damage]
    path.write_bytes(changed)
    with pytest.raises(SinkError, match="not as it was written"):
        list(read_blocks(staged))


def test_an_attempt_that_failed_leaves_no_file(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    file = StagedFile(storage, "staged/x/1-0-a")
    file.add(Block(1, "t", [b"v"]))
    file.discard()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


class Given(KafkaRecordSerializationSchema):
    """Gives what it is told to."""

    def serialize(self, element: Any) -> Any:
        return element


class Untouched(SerializationSchema):
    def serialize(self, element: Any) -> Any:
        return element


def _record(**parts: Any) -> KafkaProducerRecord:
    return KafkaProducerRecord(**({"topic": "t", "value": b"v"} | parts))


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (("t", b"v"), "gives a KafkaProducerRecord or None"),
        (_record(value="v"), "the value of a Kafka record is bytes"),
        (_record(value=numpy.bytes_(b"v")), "the value of a Kafka record is bytes"),
        (_record(key="k"), "the key of a Kafka record is bytes"),
        (_record(topic="a b"), "letters, digits"),
        (_record(topic="x" * 250), "letters, digits"),
        (_record(headers=[("h", "text")]), "the header 'h' of a Kafka record is bytes"),
        (_record(headers=[(b"h", b"v")]), "pairs of a text and bytes"),
        (_record(headers=["h", b"v"]), "pairs of a text and bytes"),
        (_record(headers={"h": b"v"}), "pairs of a text and bytes"),
        (_record(headers=[("h", b"x" * 2_000_000)]), "longer than Kafka's client takes"),
        (_record(partition=None), "the partition of a Kafka record is a whole number"),
        (_record(partition=True), "the partition of a Kafka record is a whole number"),
        (_record(partition=-5), "the partition of a Kafka record is a whole number"),
        (_record(partition=2**31), "the partition of a Kafka record is a whole number"),
        (_record(timestamp=1.5), "the timestamp of a Kafka record is a whole number"),
        (_record(timestamp=-5), "the timestamp of a Kafka record is a whole number"),
        (_record(timestamp=2**63), "the timestamp of a Kafka record is a whole number"),
    ],
)
def test_what_cannot_be_committed_is_refused_where_it_is_written(
    tmp_path: Path, record: Any, text: str
) -> None:
    context = WriterContext(0, 1, 3, "a1", "job", "sink", LocalStorage(str(tmp_path)))
    for writer in (KafkaStagingWriter(Given(), context, {}), DirectWriter(Given(), {}, sure=True)):
        with pytest.raises(InvalidArgument) as refused:
            writer.write(record)
        assert text in str(refused.value)


def test_a_key_that_cannot_be_committed_is_refused_where_it_is_written(tmp_path: Path) -> None:
    context = WriterContext(0, 1, 3, "a1", "job", "sink", LocalStorage(str(tmp_path)))
    made = KafkaRecordSerializationSchema.builder().set_topic("t")
    made.set_value_serialization_schema(SimpleStringSchema())
    schema = made.set_key_serialization_schema(Untouched()).build()
    with pytest.raises(InvalidArgument, match="the key of a Kafka record is bytes"):
        KafkaStagingWriter(schema, context, {}).write("v")


def test_an_epoch_without_records_has_nothing_to_commit(tmp_path: Path) -> None:
    context = WriterContext(0, 1, 3, "a1", "job", "sink", LocalStorage(str(tmp_path)))
    assert KafkaStagingWriter(serializer(), context, {}).prepare_commit() is None
    assert list(tmp_path.rglob("*")) == []


class NotBytes(SimpleStringSchema):
    """A schema of one's own that makes texts."""

    def serialize(self, value: Any) -> Any:
        return value


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("direct", [False, True])
def test_a_key_or_value_that_is_no_bytes_fails_where_it_is_made(
    tmp_path: Path, part: str, direct: bool
) -> None:
    builder = KafkaRecordSerializationSchema.builder().set_topic("t")
    builder.set_value_serialization_schema(NotBytes() if part == "value" else SimpleStringSchema())
    builder.set_key_serialization_schema(NotBytes() if part == "key" else SimpleStringSchema())
    context = WriterContext(0, 1, 3, "a1", "job", "sink", LocalStorage(str(tmp_path)))
    writer: Any = KafkaStagingWriter(builder.build(), context, {})
    if direct:
        writer = DirectWriter(builder.build(), {"bootstrap.servers": "127.0.0.1:1"}, sure=True)
    with pytest.raises(InvalidArgument, match=f"the {part} of a Kafka record is bytes"):
        writer.write("a")
