"""The Kafka sink against a real broker, read back with a plain client; in-process where Spark adds nothing."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.api.error_policy import ErrorPolicy
from millstream.api.sink import Committer, DeliveryGuarantee, WriterContext
from millstream.common.serialization import (
    ByteArraySchema,
    SerializationSchema,
    SimpleStringSchema,
)
from millstream.connectors.kafka.commit import KafkaCommitter
from millstream.connectors.kafka.marker import Marker, from_topic
from millstream.datastream import OutputTag
from millstream.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaProducerRecord,
    KafkaRecord,
    KafkaRecordDeserializationSchema,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSinkBuilder,
    dead_letters,
)
from millstream.errors import InvalidArgument, MillstreamError, SinkError
from millstream.storage.storage import LocalStorage
from tests.integration.kafka import USERS, Client
from tests.integration.test_kafka_source import NONE, builder, decoded, environment, strings
from tests.waiting import until

EXACTLY = DeliveryGuarantee.EXACTLY_ONCE
AT_LEAST = DeliveryGuarantee.AT_LEAST_ONCE
LATEST = KafkaOffsetsInitializer.latest()


class Key(SerializationSchema):
    def serialize(self, element: Any) -> bytes:
        return str(element)[-1].encode()


def serializer(topic: str, *, key: bool = False) -> KafkaRecordSerializationSchema:
    made = KafkaRecordSerializationSchema.builder().set_topic(topic)
    made.set_value_serialization_schema(SimpleStringSchema())
    if key:
        made.set_key_serialization_schema(Key())
    return made.build()


def to(
    client: Client, schema: Any, guarantee: DeliveryGuarantee = EXACTLY, prefix: str = ""
) -> KafkaSinkBuilder:
    made = KafkaSink.builder().set_bootstrap_servers(client.servers)
    made.set_delivery_guarantee(guarantee).set_property("default.api.timeout.ms", 10_000)
    made.set_transactional_id_prefix(prefix or f"p{time.monotonic_ns()}")
    return made.set_record_serializer(schema if not isinstance(schema, str) else serializer(schema))


# -- what is written -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", [EXACTLY, AT_LEAST, DeliveryGuarantee.NONE])
def test_each_guarantee_writes_all_records(kafka: Client, guarantee: DeliveryGuarantee) -> None:
    topic = kafka.topic(2)
    env = environment()
    sink = to(kafka, serializer(topic, key=True), guarantee).build()
    env.from_collection([f"v{n}" for n in range(5000)]).sink_to(sink)
    env.execute("write")
    found = kafka.read(topic)
    assert sorted(m.value().decode() for m in found) == sorted(f"v{n}" for n in range(5000))
    # The key decides the partition.
    assert len({(m.key(), m.partition()) for m in found}) == 10


def test_keys_headers_topics_partitions_and_timestamps(kafka: Client) -> None:
    one, two = kafka.topic(3), kafka.topic(3)
    names = [one, two]
    made = KafkaRecordSerializationSchema.builder().set_topic_selector(lambda v: names[int(v) % 2])
    made.set_value_serialization_schema(SimpleStringSchema()).set_key_serialization_schema(Key())
    made.set_header_provider(lambda v: {"of": v.encode(), "none": None})
    made.set_partitioner(lambda v: int(v) % 3).set_timestamp_provider(lambda v: 1000 + int(v))
    schema = made.build()
    for guarantee in (EXACTLY, AT_LEAST):
        env = environment()
        env.from_collection(["4", "5"]).sink_to(to(kafka, schema, guarantee).build())
        env.execute("write")
    for topic, value in ((one, "4"), (two, "5")):
        first, second = kafka.read(topic)
        for message in (first, second):
            assert message.value() == message.key() == value.encode()
            assert message.partition() == int(value) % 3
            assert message.timestamp()[1] == 1000 + int(value)
            assert message.headers() == [("of", value.encode()), ("none", None)]


def test_a_serializer_of_ones_own_may_leave_records_out(kafka: Client) -> None:
    topic = kafka.topic()

    class Odd(KafkaRecordSerializationSchema):
        def serialize(self, element: int) -> KafkaProducerRecord | None:
            return KafkaProducerRecord(topic, b"%d" % element) if element % 2 else None

    env = environment()
    env.from_collection([1, 2, 3]).sink_to(to(kafka, Odd()).build())
    env.execute("odd")
    assert sorted(kafka.values(topic)) == [b"1", b"3"]


def test_order_is_kept_in_each_partition(kafka: Client, tmp_path: Path) -> None:
    topic = kafka.topic(2)
    source = kafka.topic(2)
    for partition in (0, 1):
        kafka.write(source, [f"{n}{partition}".encode() for n in range(3000)], partition)
    env = environment(tmp_path, **{"millstream.epoch.records": "500"})
    stream = env.from_source(strings(builder(kafka, source).set_unbounded(LATEST)), NONE, "k")
    stream.sink_to(to(kafka, serializer(topic, key=True)).build())
    env.execute("order")
    for ending in ("0", "1"):
        mine = [v.decode()[:-1] for v in kafka.values(topic) if v.decode()[-1] == ending]
        assert mine == [f"{n}" for n in range(3000)]


def test_nothing_is_seen_before_its_commit_and_nothing_stays_behind(
    kafka: Client, tmp_path: Path
) -> None:
    topic = kafka.topic()
    env = environment(tmp_path / "state")
    servers, notes = kafka.servers, tmp_path / "notes"

    def look(value: str) -> str:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": servers, "group.id": "look"})
        at = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
        consumer.close()
        with notes.open("a") as file:
            file.write(f"{at}\n")
        return value

    env.from_collection(["a", "b"]).map(look).sink_to(to(kafka, topic).build())
    env.execute("hidden")
    assert notes.read_text() == "(0, 0)\n(0, 0)\n"
    assert sorted(kafka.values(topic)) == [b"a", b"b"]
    assert not [path for path in tmp_path.rglob("*") if "staged" in str(path) and path.is_file()]


# -- commits that are repeated -------------------------------------------------------------------------------


class World:
    """A sink's two halves, driven by hand."""

    def __init__(self, client: Client, topic: str, folder: Path, prefix: str = "") -> None:
        self.client, self.topic, self.folder = client, topic, folder
        self.prefix = prefix or f"w{time.monotonic_ns()}"
        self.sink = to(client, topic, prefix=self.prefix).build()

    def stage(self, epoch: int, values: list[str], job: str = "job", subtask: int = 0) -> bytes:
        storage = LocalStorage(str(self.folder))
        attempt = os.urandom(4).hex()
        context = WriterContext(subtask, 1, epoch, attempt, job, "out", storage)
        writer = self.sink.create_writer(context)
        for value in values:
            writer.write(value)
        made = writer.prepare_commit()
        assert made is not None
        return made

    def committer(self, job: str = "job") -> KafkaCommitter:
        made = self.sink.create_committer()
        assert isinstance(made, KafkaCommitter)
        made.job_id, made.sink = job, "out"
        return made

    def values(self) -> list[str]:
        return [value.decode() for value in self.client.values(self.topic)]


@pytest.fixture
def world(kafka: Client, tmp_path: Path) -> World:
    return World(kafka, kafka.topic(), tmp_path)


def test_a_repeated_commit_is_recognized_by_every_driver(world: World) -> None:
    staged = [world.stage(1, ["a"]), world.stage(1, ["b"], subtask=1)]
    first = world.committer()
    first.commit(1, staged)
    first.commit_again(1, staged)
    other = world.committer()
    other.commit_again(1, staged)
    other.commit(2, [world.stage(2, ["c"])])
    # The staged files are gone by now, and nobody misses them.
    world.committer().commit_again(1, staged)
    assert world.values() == ["a", "b", "c"]


def test_another_job_commits_what_a_job_has_left_once(world: World) -> None:
    left = [world.stage(5, ["a"], job="old")]
    new = world.committer("old")
    new.commit_again(5, left)
    new.job_id = "new"
    new.commit(6, [world.stage(6, ["b"], job="new")])
    # The old job comes back to life, and finds it done.
    world.committer("old").commit_again(5, left)
    assert world.values() == ["a", "b"]


def test_a_sink_may_have_any_uid(world: World) -> None:
    left = [world.stage(1, ["a"])]
    for _ in range(2):
        committer = world.committer()
        committer.sink = "grüße\n"
        committer.commit_again(1, left)
        committer.close()
    assert world.values() == ["a"]


def test_what_was_staged_is_written_when_the_sink_is_an_at_least_once_one_now(world: World) -> None:
    def now(prefix: str) -> Committer:
        made = to(world.client, world.topic, AT_LEAST, prefix)
        made._prefix = prefix
        found = made.build().create_committer()
        found.job_id, found.sink = "job", "out"
        return found

    left = [world.stage(1, ["a"])]
    with pytest.raises(SinkError, match="staged when the sink was EXACTLY_ONCE"):
        now("").commit_again(1, left)
    now(world.prefix).commit_again(1, left)
    now(world.prefix).commit_again(1, left)
    now("").commit(2, [])
    assert world.values() == ["a"]


def test_the_commit_topic_stands_in_for_a_group_that_has_expired(world: World) -> None:
    staged = [world.stage(1, ["a"])]
    first = world.committer()
    first.commit(1, staged)
    first.close()
    name = f"{world.prefix}-job-out"
    admin = world.client.admin
    admin.delete_consumer_groups([name])[name].result()
    world.committer().commit_again(1, staged)
    assert world.values() == ["a"]


def test_the_commit_topic_stands_in_for_a_group_with_a_transaction_that_nobody_ends(
    world: World,
) -> None:
    """A broker that is killed just after a commit may forget to end the group's part of it."""
    staged = [world.stage(1, ["a"])]
    world.committer().commit(1, staged)
    name = f"{world.prefix}-job-out"
    settings = {"bootstrap.servers": world.client.servers, "log_level": 0}
    hanging = Producer({**settings, "transactional.id": f"hanging-{name}"})
    hanging.init_transactions(30)
    hanging.begin_transaction()
    group = Consumer({**settings, "group.id": name})
    offsets = [TopicPartition(world.topic, 0, 1), TopicPartition("millstream-commits", 0, 1)]
    hanging.send_offsets_to_transaction(offsets, group.consumer_group_metadata(), 30)
    group.close()
    committer = world.committer()
    committer.commit_again(1, staged)
    assert world.values() == ["a"]
    committer.commit(2, [world.stage(2, ["b"])])
    hanging.abort_transaction(30)
    assert world.values() == ["a", "b"]


def test_the_group_stands_in_for_the_commit_topic(kafka: Client, tmp_path: Path) -> None:
    world = World(kafka, kafka.topic(), tmp_path)
    commits = kafka.topic(name="commits")
    world.sink = to(kafka, world.topic, prefix=world.prefix).set_commit_topic(commits).build()
    staged = [world.stage(1, ["a"])]
    world.committer().commit(1, staged)
    assert [m.key() for m in kafka.read(commits)] == [f"{world.prefix}-job-out".encode()]
    kafka.delete(commits)
    world.committer().commit_again(1, staged)
    assert world.values() == ["a"]


def test_other_records_under_the_name_of_a_committed_epoch_are_refused(world: World) -> None:
    world.committer().commit(3, [world.stage(3, ["a"])])
    with pytest.raises(SinkError, match="epoch 3 has been committed before, with other records"):
        world.committer().commit(3, [world.stage(3, ["b"])])
    with pytest.raises(SinkError, match="epoch 2 has been committed before"):
        world.committer().commit(2, [world.stage(2, ["b"])])
    assert world.values() == ["a"]


def test_a_driver_that_was_overtaken_cannot_commit(world: World) -> None:
    late = world.committer()
    late.commit(1, [world.stage(1, ["a"])])
    world.committer().commit(2, [world.stage(2, ["b"])])
    # It is shut out, looks again, and finds that another one has gone on.
    with pytest.raises(SinkError, match="committed before, with other records"):
        late.commit(2, [world.stage(2, ["not b"])])
    assert world.values() == ["a", "b"]


def test_a_transaction_that_a_driver_left_open_is_ended_by_the_next(world: World) -> None:
    first = world.committer()
    first.commit(1, [world.stage(1, ["a"])])
    staged = [world.stage(2, ["b"])]
    assert first._session is not None
    producer = first._session._producer
    producer.begin_transaction()
    producer.produce(world.topic, b"half")
    producer.flush()
    world.committer().commit_again(2, staged)
    assert world.values() == ["a", "b"]


def test_an_answer_that_was_lost_is_looked_up(world: World, monkeypatch: Any) -> None:
    from confluent_kafka import KafkaError, KafkaException

    from millstream.connectors.kafka import commit

    real = commit._ProducerSession.write
    lost = []

    def write(self: Any, files: Any, marker: Any) -> None:
        real(self, files, marker)
        if not lost:
            lost.append(marker)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the answer is lost"))

    monkeypatch.setattr(commit._ProducerSession, "write", write)
    world.committer().commit(1, [world.stage(1, ["a"])])
    assert lost
    assert world.values() == ["a"]


def test_a_staged_file_that_was_changed_or_lost_is_an_error(world: World) -> None:
    staged = world.stage(1, ["a"] * 100)
    (file,) = (path for path in world.folder.rglob("*-0-*") if path.is_file())
    body = file.read_bytes()
    file.write_bytes(body[:-1] + b"b")
    with pytest.raises(SinkError, match="not as it was written"):
        world.committer().commit(1, [staged])
    file.unlink()
    with pytest.raises(SinkError, match="it is not there"):
        world.committer().commit(1, [staged])
    assert world.values() == []
    file.write_bytes(body)
    world.committer().commit(1, [staged])
    assert world.values() == ["a"] * 100


def test_a_commit_holds_little_of_a_large_epoch(kafka: Client, tmp_path: Path) -> None:
    import resource

    world = World(kafka, kafka.topic(), tmp_path)
    staged = world.stage(1, ["x" * 1000] * 150_000)
    committer = world.committer()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    committer.commit(1, [staged])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 120_000
    # Counted by the broker: reading them here would need the memory that this is about.
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": "count"})
    low, high = consumer.get_watermark_offsets(TopicPartition(world.topic, 0), timeout=10)
    consumer.close()
    assert (low, high) == (0, 150_001)


# -- bad input -----------------------------------------------------------------------------------------------


def test_undecodable_records_go_to_a_dead_letter_topic(kafka: Client) -> None:
    topic, bad_topic = kafka.topic(), kafka.topic()
    kafka.write(topic, [b"1"], key=b"k1")
    kafka.write(topic, [b"{"], key=b"k2", headers=[("trace", b"7")], timestamp=5_000)
    source = builder(kafka, topic).set_deserializer(KafkaRecordDeserializationSchema.records())
    env = environment()
    bad = OutputTag("bad")
    numbers = env.from_source(source.set_bounded(LATEST).build(), NONE, "k").map(decoded)
    numbers = numbers.on_error(ErrorPolicy.dead_letter(bad))
    numbers.get_side_output(bad).sink_to(to(kafka, dead_letters(bad_topic)).build())
    numbers.print()
    env.execute("letters")
    (letter,) = kafka.read(bad_topic)
    headers = dict(letter.headers())
    assert (letter.key(), letter.value(), letter.timestamp()[1]) == (b"k2", b"{", 5_000)
    assert headers["trace"] == b"7"
    assert headers["millstream.topic"] == topic.encode()
    assert headers["millstream.offset"] == b"1"
    assert headers["millstream.error"].startswith(b"JSONDecodeError")


def test_a_dead_letter_says_what_it_can(kafka: Client) -> None:
    def wrong(record: KafkaRecord) -> None:
        raise ValueError(str(record.value, "utf-8", "surrogateescape") + "x" * 5000)

    topic, bad_topic = kafka.topic(), kafka.topic()
    kafka.write(topic, [b"\xff"])
    env = environment()
    made = builder(kafka, topic).set_bounded(LATEST)
    made.set_deserializer(KafkaRecordDeserializationSchema.records())
    bad = OutputTag("bad")
    stream = env.from_source(made.build(), NONE, "k").map(wrong)
    letters = stream.on_error(ErrorPolicy.dead_letter(bad)).get_side_output(bad)
    letters.sink_to(to(kafka, dead_letters(bad_topic)).build())
    env.execute("letters")
    (letter,) = kafka.read(bad_topic)
    error = dict(letter.headers())["millstream.error"]
    assert error.startswith(b"ValueError: \\udcffxxx")
    assert len(error) < 1100


@pytest.mark.parametrize(
    ("parts", "said", "hint"),
    [
        ({"partition": 7}, "_UNKNOWN_PARTITION", "add partitions"),
        ({"value": b"x" * 20_000}, "MSG_SIZE_TOO_LARGE", "max.message.bytes"),
        ({"timestamp": 253402300799000}, "INVALID_TIMESTAMP", "message.timestamp.after.max.ms"),
        ({"key": None}, "INVALID_RECORD", "give each record a key"),
    ],
)
def test_what_the_broker_does_not_take_is_told_with_what_to_do(
    kafka: Client, tmp_path: Path, parts: dict[str, Any], said: str, hint: str
) -> None:
    class Given(KafkaRecordSerializationSchema):
        def serialize(self, element: Any) -> KafkaProducerRecord:
            return KafkaProducerRecord(**({"topic": topic, "value": b"v", "key": b"k"} | parts))

    topic = kafka.topic(max_message_bytes="10000", cleanup_policy="compact")
    world = World(kafka, topic, tmp_path)
    world.sink = to(kafka, Given()).build()
    with pytest.raises(SinkError, match=said) as failure:
        world.committer().commit(1, [world.stage(1, ["a"])])
    assert hint in str(failure.value.hint)
    assert failure.value.evidence["topic"] == topic


def test_a_record_that_is_too_long_is_named_before_the_checkpoint(kafka: Client) -> None:
    topic = kafka.topic()
    for guarantee in (EXACTLY, AT_LEAST):
        env = environment(**{"restart-strategy.type": "none"})
        env.from_collection(["a", "x" * 2_000_000]).sink_to(to(kafka, topic, guarantee).build())
        with pytest.raises(MillstreamError, match="longer than Kafka's client takes"):
            env.execute("long")


def test_a_value_that_is_not_bytes_is_named(kafka: Client) -> None:
    class Wrong(SerializationSchema):
        def serialize(self, element: Any) -> Any:
            return element

    made = KafkaRecordSerializationSchema.builder().set_topic(kafka.topic())
    schema = made.set_value_serialization_schema(Wrong()).build()
    env = environment(**{"restart-strategy.type": "none"})
    env.from_collection(["a"]).sink_to(to(kafka, schema).build())
    with pytest.raises(MillstreamError, match="the value of a Kafka record is bytes or None"):
        env.execute("wrong")


def test_what_a_sink_that_promises_nothing_loses_is_not_taken_from_another(kafka: Client) -> None:
    large, small = "x" * 50_000, kafka.topic(max_message_bytes="10000")
    # They have the same properties, and so might share a producer.
    for kinds in ((DeliveryGuarantee.NONE, AT_LEAST), (AT_LEAST, DeliveryGuarantee.NONE)):
        env = environment(**{"restart-strategy.type": "none"})
        stream = env.from_collection([large])
        for kind in kinds:
            stream.sink_to(to(kafka, small, kind).build())
        with pytest.raises(MillstreamError, match="MSG_SIZE_TOO_LARGE"):
            env.execute("both")
    env = environment()
    stream = env.from_collection([large])
    stream.sink_to(to(kafka, small, DeliveryGuarantee.NONE).build())
    stream.map(len).map(str).sink_to(to(kafka, small, AT_LEAST).build())
    env.execute("goes on")
    assert kafka.values(small) == [b"50000"]


def test_a_missing_topic_is_told_before_the_first_record(kafka: Client) -> None:
    missing = "no-such-topic"
    for guarantee, schema in (
        (EXACTLY, missing),
        (AT_LEAST, missing),
        (EXACTLY, dead_letters(missing)),
    ):
        env = environment()
        env.from_collection(["a"]).sink_to(to(kafka, schema, guarantee).build())
        with pytest.raises(SinkError, match="there is no such topic: no-such-topic"):
            env.execute("missing")


def test_a_transaction_timeout_that_cannot_work_is_told_at_the_start(kafka: Client) -> None:
    topic = kafka.topic()
    with pytest.raises(InvalidArgument, match=r"transaction\.timeout\.ms is too short"):
        to(kafka, topic).set_property("transaction.timeout.ms", 500).build()
    env = environment()
    sink = to(kafka, topic).set_property("transaction.timeout.ms", 10_000_000).build()
    env.from_collection(["a"]).sink_to(sink)
    with pytest.raises(SinkError, match="longer than the broker allows") as failure:
        env.execute("timeout")
    assert "900000" in str(failure.value)


@pytest.mark.nightly
def test_a_transaction_that_ran_out_is_told_of_and_can_be_repeated(
    world: World, monkeypatch: Any
) -> None:
    from millstream.connectors.kafka import commit

    monkeypatch.setattr(commit, "DEFAULT_TRANSACTION_MS", 1_000)
    staged = [world.stage(1, ["a"])]
    real = commit._put_block

    def slow(producer: Any, block: Any) -> None:
        real(producer, block)
        producer.flush()
        # The broker looks for transactions that have run out every ten seconds.
        time.sleep(13)

    monkeypatch.setattr(commit, "_put_block", slow)
    with pytest.raises(SinkError, match="cannot be committed") as failure:
        world.committer().commit(1, staged)
    assert "raise it" in str(failure.value.hint)
    monkeypatch.undo()
    world.committer().commit_again(1, staged)
    assert world.values() == ["a"]


def test_a_wrong_password_is_told_before_the_first_record(kafka: Client) -> None:
    made = to(kafka, kafka.topic()).set_bootstrap_servers(kafka.broker.sasl_servers)
    for name, value in (
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "ann"),
        ("sasl.password", "wrong-staple-9"),
    ):
        made.set_property(name, value)
    env = environment()
    env.from_collection(["a"]).sink_to(made.build())
    with pytest.raises(SinkError) as failure:
        env.execute("password")
    assert "sasl.password" in str(failure.value.hint)
    assert "wrong-staple-9" not in str(failure.value)
    made.set_property("sasl.password", USERS["ann"])
    env.from_collection(["a"]).sink_to(made.build())
    env.execute("password")


def test_a_broker_that_is_away_at_the_start_is_told_of() -> None:
    made = KafkaSink.builder().set_bootstrap_servers("127.0.0.1:1")
    made.set_record_serializer(serializer("t")).set_property("default.api.timeout.ms", 1_000)
    env = environment()
    env.from_collection(["a"]).sink_to(made.build())
    with pytest.raises(SinkError, match="the cluster cannot be reached"):
        env.execute("away")


@pytest.mark.timeout(400)  # as long as clients may try again
def test_a_broker_that_goes_away_in_mid_epoch_is_waited_for(broker: Client, tmp_path: Path) -> None:
    source, topic, other = broker.topic(), broker.topic(), broker.topic()
    broker.write(source, [f"{n}".encode() for n in range(200)])
    env = environment(tmp_path / "state", **{"millstream.epoch.records": "50"})
    come, gone = tmp_path / "come", tmp_path / "gone"

    def look(value: str) -> str:
        if value == "70":
            come.touch()
            until(gone.exists)
        return value

    def away() -> None:
        until(come.exists)
        broker.broker.kill()
        gone.touch()
        time.sleep(2)
        broker.broker.start()

    threading.Thread(target=away).start()

    stream = env.from_source(strings(builder(broker, source).set_unbounded(LATEST)), NONE, "k")
    stream = stream.map(look)
    stream.sink_to(to(broker, topic).build())
    stream.sink_to(to(broker, other, AT_LEAST).build())
    env.execute("away")
    wanted = [f"{n}".encode() for n in range(200)]
    assert gone.exists()
    assert broker.values(topic) == wanted
    assert set(broker.values(other)) == set(wanted)


@pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="a full disk is made with Linux's prlimit"
)
@pytest.mark.timeout(400)  # as long as clients may try again
def test_a_broker_whose_disk_is_full_is_waited_for(broker: Client, tmp_path: Path) -> None:
    topic = broker.topic()
    wanted = [bytes([65 + n]) * 500_000 for n in range(26)]
    # Indexes have 10 MB from the beginning.
    broker.broker.fill_disk(11 << 20)
    ended: list[bool] = []

    def make_room() -> None:
        broker.broker.wait(120)
        ended.append(True)
        broker.broker.start()

    helper = threading.Thread(target=make_room)
    helper.start()
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    schema.set_value_serialization_schema(ByteArraySchema())
    env = environment(tmp_path / "state")
    env.from_collection(wanted).sink_to(to(broker, schema.build()).build())
    env.execute("full")
    helper.join()
    assert ended
    assert sorted(broker.values(topic)) == wanted


# -- on Spark ------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_kafka_to_kafka_on_spark(make_env: Any, kafka: Client, tmp_path: Path) -> None:
    source, topic = kafka.topic(3), kafka.topic(2)
    for partition in range(3):
        kafka.write(source, [f"{n}-{partition}".encode() for n in range(400)], partition)
    env = make_env(
        options={
            "execution.checkpointing.dir": str(tmp_path),
            "execution.checkpointing.interval": "200 ms",
            "millstream.epoch.records": "300",
        }
    )
    made = builder(kafka, source).set_value_only_deserializer(ByteArraySchema())
    stream = env.from_source(made.set_unbounded(LATEST).build(), NONE, "kafka")
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    schema.set_value_serialization_schema(ByteArraySchema())
    stream.map(lambda value: value).sink_to(to(kafka, schema.build()).build())
    env.execute("kafka to kafka")
    wanted = [f"{n}-{p}".encode() for n in range(400) for p in range(3)]
    assert sorted(kafka.values(topic)) == sorted(wanted)


def test_a_marker_behind_the_open_transaction_of_another_sink_is_found(kafka: Client) -> None:
    """The commit topic is for all sinks of a cluster; readers stop at the first transaction that is open."""
    topic = kafka.topic(1, "commits")
    settings = {"bootstrap.servers": kafka.servers, "log_level": 0}
    other = Producer({**settings, "transactional.id": f"other-{topic}"})
    ours = Producer({**settings, "transactional.id": f"ours-{topic}"})
    for producer in (other, ours):
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, Marker(7, "9c").encode(), "ours" if producer is ours else "other")
        assert producer.flush(30) == 0
    ours.commit_transaction(30)
    found: list[Marker | None] = []
    reading = threading.Thread(
        target=lambda: found.append(from_topic({"bootstrap.servers": kafka.servers}, topic, "ours"))
    )
    reading.start()
    reading.join(1)
    assert not found, "it was answered before the other transaction had ended"
    other.abort_transaction(30)
    reading.join(30)
    assert found == [Marker(7, "9c")]
