"""The Kafka source against a real broker; in-process where Spark adds nothing."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millstream.api.error_policy import ErrorPolicy
from millstream.common import Configuration
from millstream.common.serialization import ByteArraySchema, SimpleStringSchema
from millstream.common.time import Duration, Time
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.kafka.discover import KafkaSplits
from millstream.connectors.kafka.reader import KafkaReader
from millstream.datastream import OutputTag, StreamExecutionEnvironment
from millstream.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecord,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
)
from millstream.datastream.progress import describe
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import MillstreamError, SourceError, SourceNotFound
from tests.integration.kafka import USERS, Client
from tests.waiting import until

EARLIEST = KafkaOffsetsInitializer.earliest()
LATEST = KafkaOffsetsInitializer.latest()
NONE = WatermarkStrategy.no_watermarks()


def environment(folder: Path | None = None, **options: str) -> StreamExecutionEnvironment:
    settings = {"execution.target": "in-process", **options}
    if folder is not None:
        settings |= {
            "execution.checkpointing.dir": str(folder),
            "execution.checkpointing.interval": "50 ms",
        }
    config = Configuration.from_dict(settings)
    return StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(2)


def builder(client: Client, *topics: str) -> KafkaSourceBuilder:
    made = KafkaSource.builder().set_bootstrap_servers(client.servers)
    made.set_property("default.api.timeout.ms", 10_000)
    return made.set_topics(*topics) if topics else made


def strings(made: KafkaSourceBuilder) -> KafkaSource:
    return made.set_value_only_deserializer(SimpleStringSchema()).build()


def results(source: KafkaSource, env: StreamExecutionEnvironment | None = None) -> list[Any]:
    env = env or environment()
    stream = env.from_source(source, NONE, "kafka")
    return sorted(stream.execute_and_collect("kafka"))


# -- where it begins and ends --------------------------------------------------------------------------------


def test_all_partitions_of_all_topics_are_read(kafka: Client) -> None:
    one, two = kafka.topic(2), kafka.topic(1)
    kafka.write(one, [b"a"], 0)
    kafka.write(one, [b"b", b"c"], 1)
    kafka.write(two, [b"d"])
    assert results(strings(builder(kafka, one, two).set_bounded(LATEST))) == ["a", "b", "c", "d"]


def test_a_pattern_matches_whole_names(kafka: Client) -> None:
    mine, other = kafka.topic(1, "patterned"), kafka.topic(1, "not-patterned")
    kafka.write(mine, [b"mine"])
    kafka.write(other, [b"other"])
    made = builder(kafka).set_topic_pattern("patterned-[0-9]+").set_bounded(LATEST)
    assert results(strings(made)) == ["mine"]


def test_a_topic_may_begin_with_underscores(kafka: Client) -> None:
    topic = kafka.topic(name="__heartbeat")
    kafka.write(topic, [b"a"])
    assert results(strings(builder(kafka, topic).set_bounded(LATEST))) == ["a"]


def test_partitions_alone(kafka: Client) -> None:
    topic = kafka.topic(2)
    kafka.write(topic, [b"no"], 0)
    kafka.write(topic, [b"yes"], 1)
    made = builder(kafka).set_partitions({KafkaTopicPartition(topic, 1)}).set_bounded(LATEST)
    assert results(strings(made)) == ["yes"]


def test_each_way_to_begin(kafka: Client) -> None:
    topic = kafka.topic()
    kafka.write(topic, [b"0", b"1"], timestamp=1_000)
    kafka.write(topic, [b"2", b"3"], timestamp=2_000)
    kafka.write(topic, [b"4"], timestamp=3_000)
    group = f"group-of-{topic}"
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    consumer.close()

    def begin(starting: KafkaOffsetsInitializer) -> list[str]:
        made = builder(kafka, topic).set_group_id(group).set_starting_offsets(starting)
        made.set_property("commit.offsets.on.checkpoint", False)
        return results(strings(made.set_bounded(LATEST)))

    part = KafkaTopicPartition(topic, 0)
    assert begin(EARLIEST) == ["0", "1", "2", "3", "4"]
    assert begin(LATEST) == []
    assert begin(KafkaOffsetsInitializer.timestamp(1_001)) == ["2", "3", "4"]
    assert begin(KafkaOffsetsInitializer.timestamp(9_999)) == []
    assert begin(KafkaOffsetsInitializer.committed_offsets()) == ["3", "4"]
    assert begin(KafkaOffsetsInitializer.offsets({part: 4})) == ["4"]
    assert kafka.committed(group, topic) == 3


def test_each_way_to_end(kafka: Client) -> None:
    topic = kafka.topic()
    kafka.write(topic, [b"0", b"1"], timestamp=1_000)
    kafka.write(topic, [b"2"], timestamp=2_000)
    part = KafkaTopicPartition(topic, 0)
    for stopping, wanted in (
        (KafkaOffsetsInitializer.timestamp(2_000), ["0", "1"]),
        (KafkaOffsetsInitializer.offsets({part: 1}), ["0"]),
        (LATEST, ["0", "1", "2"]),
    ):
        assert results(strings(builder(kafka, topic).set_bounded(stopping))) == wanted
        assert results(strings(builder(kafka, topic).set_unbounded(stopping))) == wanted


def test_a_group_without_offsets_is_an_error_unless_something_stands_in(kafka: Client) -> None:
    topic = kafka.topic()
    kafka.write(topic, [b"0"])

    def begin(reset: KafkaOffsetResetStrategy) -> list[str]:
        starting = KafkaOffsetsInitializer.committed_offsets(reset)
        made = builder(kafka, topic).set_group_id("never-seen").set_starting_offsets(starting)
        made.set_property("commit.offsets.on.checkpoint", "false")
        return results(strings(made.set_bounded(LATEST)))

    assert begin(KafkaOffsetResetStrategy.EARLIEST) == ["0"]
    assert begin(KafkaOffsetResetStrategy.LATEST) == []
    with pytest.raises(SourceError, match="'never-seen' has committed no offset"):
        begin(KafkaOffsetResetStrategy.NONE)


# -- records -------------------------------------------------------------------------------------------------


def test_a_whole_record_has_all_that_kafka_has(kafka: Client) -> None:
    topic = kafka.topic()
    headers = [("trace", b"77"), ("empty", None)]
    kafka.write(topic, [b"v"], key=b"k", headers=headers, timestamp=5_000)
    kafka.write(topic, [None], key=b"gone", timestamp=6_000)
    made = builder(kafka, topic).set_deserializer(KafkaRecordDeserializationSchema.records())
    assert results(made.set_bounded(LATEST).build()) == [
        KafkaRecord(topic, 0, 0, 5_000, b"k", b"v", (("trace", b"77"), ("empty", None))),
        KafkaRecord(topic, 0, 1, 6_000, b"gone", None, ()),
    ]


def test_a_deserializer_of_ones_own_and_records_without_a_value(kafka: Client) -> None:
    topic = kafka.topic()
    kafka.write(topic, [b"1"], key=b"a")
    kafka.write(topic, [None], key=b"b")

    class Pairs(KafkaRecordDeserializationSchema):
        def open(self) -> None:
            self.opened = True

        def deserialize(self, record: KafkaRecord) -> Any:
            assert self.opened
            return record.key, record.value

    made = builder(kafka, topic).set_deserializer(Pairs()).set_bounded(LATEST)
    assert results(made.build()) == [(b"a", b"1"), (b"b", None)]
    assert results(strings(builder(kafka, topic).set_bounded(LATEST))) == ["1"]


def test_timestamps_of_records_are_event_time(kafka: Client) -> None:
    topic = kafka.topic(2)
    for partition, shift in ((0, 0), (1, 100_000)):
        for at in (1_000, 2_000, 11_000, 12_000):
            kafka.write(topic, [b"x"], partition, timestamp=at + shift)
    env = environment()
    source = strings(builder(kafka, topic).set_bounded(LATEST))
    counts = (
        env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "kafka")
        .map(lambda v: (v, 1))
        .key_by(lambda pair: pair[0])
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    # Each partition has its own watermark: one that is far ahead makes none of the other's records late.
    assert sorted(counts.execute_and_collect("windows")) == [("x", 2)] * 4


def test_a_silent_partition_does_not_hold_the_others_up(kafka: Client) -> None:
    topic = kafka.topic(2)
    kafka.write(topic, [b"a"], 0, timestamp=1_000)
    kafka.write(topic, [b"b"], 0, timestamp=60_000)
    env = environment()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_millis(300))
    windows = (
        env.from_source(strings(builder(kafka, topic)), strategy, "kafka")
        .key_by(lambda v: 0)
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .reduce(lambda a, b: a + b)
    )
    found = windows.execute_and_collect("idle")
    assert next(iter(found)) == "a"
    found.close()


# -- transactions --------------------------------------------------------------------------------------------


def gappy(kafka: Client) -> tuple[str, list[str], list[str], Producer]:
    """A topic with committed, aborted and open transactions: what of it is committed, and all."""
    topic = kafka.topic()
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic})
    producer.init_transactions(20)
    good, every = [], []
    for number in range(30):
        producer.begin_transaction()
        mine = [f"{number}.{n}" for n in range(1 + number % 3)]
        for value in mine:
            producer.produce(topic, value, partition=0)
        producer.flush()
        every += mine
        if number % 4 in (1, 2):
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
            good += mine
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush()
    return topic, good, [*every, "open"], producer


def test_only_committed_records_are_read_unless_told_otherwise(kafka: Client) -> None:
    topic, good, every, producer = gappy(kafka)
    assert results(strings(builder(kafka, topic).set_bounded(LATEST))) == sorted(good)
    made = builder(kafka, topic).set_property("isolation.level", "read_uncommitted")
    assert results(strings(made.set_bounded(LATEST))) == sorted(every)
    producer.abort_transaction(20)


def test_any_cut_of_the_offsets_gives_the_same_records(kafka: Client) -> None:
    topic, good, _, producer = gappy(kafka)
    properties = {"bootstrap.servers": kafka.servers}
    schema = KafkaRecordDeserializationSchema.value_only(SimpleStringSchema())
    source = strings(builder(kafka, topic))
    splits = source.create_enumerator(1)
    assert isinstance(splits, KafkaSplits)
    (split,) = splits.discover()
    end = splits.available(split, 0)
    assert end > len(good)
    for step in (1, 2, 7, end):
        reader = KafkaReader(properties, schema)
        reader.open()
        found = []
        for start in range(0, end, step):
            found += [one.value for one in reader.read(split, start, min(end, start + step))]
        assert found == good, step
        # Backwards, as a task that is repeated may.
        again = [one.value for one in reader.read(split, 0, end)]
        assert again == good
        reader.close()
    splits.close()
    producer.abort_transaction(20)


# -- checkpoints ---------------------------------------------------------------------------------------------


def test_offsets_are_committed_to_the_group_after_checkpoints(
    kafka: Client, tmp_path: Path
) -> None:
    topic = kafka.topic()
    kafka.write(topic, [b"0", b"1", b"2"])
    made = builder(kafka, topic).set_group_id("watched").set_unbounded(LATEST)
    results(strings(made), environment(tmp_path))
    until(lambda: kafka.committed("watched", topic) == 3)
    assert kafka.committed("watched", topic) == 3


def test_a_group_that_does_not_take_offsets_is_told_of_once(
    kafka: Client, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic()
    config = {"bootstrap.servers": kafka.servers, "group.id": f"of-{topic}", "log_level": 0}
    member = Consumer(config)
    member.subscribe([topic])
    until(lambda: member.poll(0.1) is None and member.assignment())
    splits = strings(builder(kafka, topic).set_group_id(f"of-{topic}")).create_enumerator(1)
    (split,) = splits.discover()

    def told() -> int:
        splits.commit(split, 0)
        return caplog.text.count("a group that others have joined")

    until(told)
    assert [told() for _ in range(5)] == [1] * 5
    splits.close()
    member.close()


def test_a_job_goes_on_from_its_checkpoint_whatever_the_group_says(
    kafka: Client, tmp_path: Path
) -> None:
    topic = kafka.topic()
    kafka.write(topic, [f"{n}".encode() for n in range(5)])
    made = builder(kafka, topic).set_group_id("g-on").set_starting_offsets(EARLIEST)
    source = strings(made)

    def run(wanted: int) -> list[str]:
        found = environment(tmp_path).from_source(source, NONE, "kafka").execute_and_collect("on")
        taken = []
        for value in found:
            taken.append(value)
            if len(taken) == wanted:
                break
        # What was given is in a checkpoint.
        found.close()
        return taken

    assert run(5) == ["0", "1", "2", "3", "4"]
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": "g-on"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()
    kafka.write(topic, [b"5"])
    assert run(1) == ["5"]


def test_new_partitions_are_found_and_read_from_their_beginning(kafka: Client) -> None:
    topic = kafka.topic(1)
    kafka.write(topic, [b"old"])
    made = builder(kafka, topic).set_starting_offsets(LATEST)
    made.set_property("partition.discovery.interval.ms", 200)
    found = environment().from_source(strings(made), NONE, "kafka").execute_and_collect("grow")
    first = threading.Timer(1.0, lambda: kafka.write(topic, [b"new"]))
    first.start()
    assert next(iter(found)) == "new"
    kafka.grow(topic, 2)
    kafka.write(topic, [b"second partition"], 1)
    assert next(iter(found)) == "second partition"
    found.close()


def test_lag_is_known_for_each_partition(kafka: Client) -> None:
    topic = kafka.topic(2)
    kafka.write(topic, [b"x"] * 30, 0)
    kafka.write(topic, [b"x"] * 10, 1)
    env = environment(**{"millstream.epoch.records": "10"})
    stream = env.from_source(strings(builder(kafka, topic)), NONE, "orders")
    stream.map(lambda value: time.sleep(0.05) or value).print()
    client = env.execute_async("behind")
    run = client._run
    seen = []

    def caught_up() -> bool:
        metrics = run.metrics
        if metrics is not None and metrics.lag:
            lag = metrics.lag["Source: orders"]
            seen.append(({*lag.values()}, dict(lag), describe(run)))
        return bool(seen) and seen[-1][0] == {0}

    until(caught_up)
    client.cancel().result(30)
    # Five of each partition in the first epoch.
    assert seen[0][1] == {f"{topic}-0": 25, f"{topic}-1": 5}
    assert f"lag 30 in 2 splits, most 25 in {topic}-0" in seen[0][2]
    assert "lag" not in seen[-1][2]


# -- bad input -----------------------------------------------------------------------------------------------


def decoded(record: KafkaRecord) -> Any:
    return json.loads(record.value or b"")


def test_an_undecodable_record_fails_the_job_and_is_named(kafka: Client) -> None:
    topic = kafka.topic()
    kafka.write(topic, [b"1", b"2", b"x"])

    class Numbers(ByteArraySchema):
        def deserialize(self, message: bytes) -> Any:
            return int(message)

    made = builder(kafka, topic).set_value_only_deserializer(Numbers()).set_bounded(LATEST)
    with pytest.raises(SourceError, match="cannot be decoded: ValueError") as failure:
        results(made.build())
    assert failure.value.evidence["offset"] in (2, "2")
    assert "b'x'" in str(failure.value)
    assert "ErrorPolicy" in str(failure.value.hint)


def test_a_record_that_cannot_be_decoded_only_once_is_not_guessed(kafka: Client) -> None:
    class Moody(KafkaRecordDeserializationSchema):
        calls = 0

        def deserialize(self, record: KafkaRecord) -> bytes | None:
            self.calls += 1
            if self.calls == 2:
                raise ValueError("not now")
            return record.value

    topic = kafka.topic()
    kafka.write(topic, [b"a", b"b", b"c"])
    reader = KafkaReader({"bootstrap.servers": kafka.servers}, Moody())
    with pytest.raises(SourceError, match="not now") as failure:
        list(reader.read(f"{topic}-0", 0, 3))
    reader.close()
    assert "value" not in failure.value.evidence
    assert re.fullmatch(r"\d to \d", str(failure.value.evidence["offset"]))


def test_undecodable_records_are_skipped_or_become_dead_letters(kafka: Client) -> None:
    topic = kafka.topic()
    kafka.write(topic, [b"1", b"{", b"3"])
    made = builder(kafka, topic).set_deserializer(KafkaRecordDeserializationSchema.records())
    source = made.set_bounded(LATEST).build()
    env = environment()
    good = env.from_source(source, NONE, "kafka").map(decoded).on_error(ErrorPolicy.skip())
    assert sorted(good.execute_and_collect("skip")) == [1, 3]
    bad = OutputTag("bad")
    policy = ErrorPolicy.dead_letter(bad)
    letters = env.from_source(source, NONE, "kafka").map(decoded).on_error(policy)
    (letter,) = letters.get_side_output(bad).execute_and_collect("letters")
    assert letter.source.startswith(topic)
    assert "offset=1" in letter.record


def test_a_lost_range_is_an_error_with_the_range(kafka: Client, tmp_path: Path) -> None:
    topic = kafka.topic()
    part = KafkaTopicPartition(topic, 0)
    kafka.write(topic, [f"{n}".encode() for n in range(10)])
    kafka.expire(topic, 6)

    def run(**properties: str) -> list[str]:
        starting = KafkaOffsetsInitializer.offsets({part: 2})
        made = builder(kafka, topic).set_starting_offsets(starting).set_bounded(LATEST)
        return results(strings(made.set_properties(properties)))

    with pytest.raises(SourceError, match=r"offsets 2 to 6 of .* are not on the broker") as failure:
        run()
    assert failure.value.evidence["lost"] == "[2, 6)"
    assert "auto.offset.reset" in str(failure.value.hint)
    assert run(**{"auto.offset.reset": "earliest"}) == ["6", "7", "8", "9"]
    assert run(**{"auto.offset.reset": "latest"}) == []


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_reading_goes_on_after_a_range_that_is_lost_as_a_whole(kafka: Client, reset: str) -> None:
    topic = kafka.topic()
    kafka.write(topic, [b"old"] * 10)
    kafka.expire(topic, 10)
    schema = KafkaRecordDeserializationSchema.value_only(SimpleStringSchema())
    properties = {"bootstrap.servers": kafka.servers, "auto.offset.reset": reset}
    reader = KafkaReader(properties | {"millstream.read.timeout.ms": "10000"}, schema)
    assert list(reader.read(f"{topic}-0", 2, 10)) == []
    kafka.write(topic, [b"new"])
    assert [one.value for one in reader.read(f"{topic}-0", 10, 11)] == ["new"]
    reader.close()


def test_a_topic_that_is_not_there(kafka: Client) -> None:
    with pytest.raises(SourceNotFound, match="no such topic or partition: no-such-topic"):
        results(strings(builder(kafka, "no-such-topic").set_bounded(LATEST)))
    with pytest.raises(SourceNotFound, match="no topic matches"):
        results(strings(builder(kafka).set_topic_pattern("nothing.*").set_bounded(LATEST)))


def test_a_topic_that_is_deleted_while_it_is_read(
    kafka: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream.connectors.kafka.discover._GONE", 1.0)
    topic = kafka.topic()
    kafka.write(topic, [b"a"])
    env = environment(**{"restart-strategy.type": "none"})
    found = env.from_source(strings(builder(kafka, topic)), NONE, "k").execute_and_collect("gone")
    assert next(iter(found)) == "a"
    kafka.delete(topic)
    with pytest.raises(SourceNotFound, match=f"{topic}-0 is not there"):
        next(iter(found))


def test_a_broker_that_is_away_at_the_start() -> None:
    made = KafkaSource.builder().set_bootstrap_servers("127.0.0.1:1").set_topics("t")
    made.set_property("default.api.timeout.ms", 1_000)
    env = environment(**{"restart-strategy.type": "none"})
    with pytest.raises(SourceError, match="cannot be reached") as failure:
        results(strings(made.set_bounded(LATEST)), env)
    assert failure.value.evidence["servers"] == "127.0.0.1:1"
    assert "check that the broker runs" in str(failure.value.hint)


def test_a_wrong_password_is_told_at_once_and_not_shown(
    kafka: Client, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic()
    kafka.write(topic, [b"a"])

    def run(password: str) -> list[str]:
        made = KafkaSource.builder().set_bootstrap_servers(kafka.broker.sasl_servers)
        made.set_topics(topic).set_properties(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "ann",
                "sasl.password": password,
            }
        )
        env = environment(**{"restart-strategy.type": "none"})
        return results(strings(made.set_bounded(LATEST)), env)

    assert run(USERS["ann"]) == ["a"]
    began = time.monotonic()
    with caplog.at_level(logging.DEBUG), pytest.raises(SourceError) as failure:
        run("wrong-staple-9")
    assert time.monotonic() - began < 15
    assert re.search("_AUTHENTICATION|SASL", str(failure.value))
    assert "sasl.password" in str(failure.value.hint)
    assert "wrong-staple-9" not in str(failure.value) + caplog.text


@pytest.mark.nightly
@pytest.mark.timeout(400)  # as long as clients may try again
def test_a_broker_that_goes_away_for_a_while_is_waited_for(broker: Client) -> None:
    topic = broker.topic()
    broker.write(topic, [f"{n}".encode() for n in range(100)])
    env = environment(**{"restart-strategy.type": "none"})
    found = env.from_source(strings(builder(broker, topic)), NONE, "k").execute_and_collect("away")
    values = iter(found)
    assert [next(values) for _ in range(100)] == [f"{n}" for n in range(100)]
    broker.broker.kill()
    time.sleep(3)
    broker.broker.start()
    broker.write(topic, [b"back"])
    assert next(values) == "back"
    found.close()


# -- on Spark ------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_counts_of_a_topic_on_spark(make_env: Any, kafka: Client, tmp_path: Path) -> None:
    topic = kafka.topic(3)
    for partition in range(3):
        kafka.write(topic, [f"word {n % 7}".encode() for n in range(700)], partition)
    env = make_env(
        options={
            "execution.checkpointing.dir": str(tmp_path),
            "execution.checkpointing.interval": "200 ms",
            "millstream.epoch.records": "300",
        }
    )
    source = strings(builder(kafka, topic).set_unbounded(LATEST))
    counts = (
        env.from_source(source, NONE, "kafka")
        .map(lambda word: (word, 1))
        .key_by(lambda pair: pair[0])
        .sum(1)
    )
    last: dict[str, int] = {}
    for word, count in counts.execute_and_collect("words of a topic"):
        last[word] = max(count, last.get(word, 0))
    assert last == {f"word {n}": 300 for n in range(7)}


def test_an_error_of_millstream_is_one(kafka: Client) -> None:
    with pytest.raises(MillstreamError, match="does not take these properties"):
        strings(builder(kafka, "t").set_property("no.such.property", "1"))
