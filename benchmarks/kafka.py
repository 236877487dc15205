"""Records a second from Kafka through a map and a keyed count into Kafka, exactly once, on one broker of this machine.

    make bench BENCH=benchmarks/kafka.py BENCH_ARGS="--records 1000000"

Also alone: what the client takes to read the same records, and what a commit takes to write them from a staged file.
The job's time without the start is that between its first and its last commit, as the timestamps in the topic say.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from millstream.api.sink import WriterContext
from millstream.datastream.connectors.kafka import KafkaSink
from millstream.storage.storage import LocalStorage
from millstream.testing import kafka_broker

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
from kafka_workload import PARTITIONS, record
from millstream_kafka import job, sink
from workload import Tally


def create(servers: str, *names: str) -> None:
    """Topics whose records carry the time at which the broker took them, whoever wrote them."""
    config = {"message.timestamp.type": "LogAppendTime"}
    topics = [NewTopic(name, PARTITIONS, 1, config=config) for name in names]
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics(topics).values():
        made.result()


def fill(servers: str, topic: str, records: int) -> None:
    """Make a topic of the workload's records."""
    create(servers, topic)
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
    )
    for number in range(records):
        key, value = record(number)
        producer.produce(topic, value, key, partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.flush()
    producer.flush()


def read(servers: str, topic: str) -> tuple[int, float, Tally]:
    """With a plain client: how many records, in how many CPU seconds of its own, and what they say.

    Only what is committed. The CPU seconds are those of the client, not of looking at the records.
    """
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "bench", "enable.partition.eof": True,
         "isolation.level": "read_committed", "enable.auto.commit": False}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
    found: list[tuple[int, bytes]] = []
    ended, began = 0, time.process_time()
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, 0.1):
            error = message.error()
            if error is None:
                found.append((message.timestamp()[1], message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended += 1
    took = time.process_time() - began
    consumer.close()
    return len(found), took, tally(found)


def tally(found: list[tuple[int, bytes]]) -> Tally:
    """The last count of each key, and when records came, in seconds of the broker's clock."""
    made = Tally()
    for _, line in found:
        key, _, count = line.decode().partition(" ")
        number = int(count or 0)
        made.last[key] = max(number, made.last.get(key, 0))
        made.total += number
    made.emitted = len(found)
    times = Counter(at for at, _ in found)
    made.samples = [(at / 1000, count) for at, count in sorted(times.items())]
    return made


def commit_alone(servers: str, folder: Path, records: int) -> tuple[float, float]:
    """Seconds to stage and seconds to commit so many records, on one core each."""
    one = sink(servers, "alone")
    context = WriterContext(0, 1, 1, "a", "bench", "alone", LocalStorage(str(folder)))
    writer: Any = one.create_writer(context)
    value = b"x" * 100
    began = time.perf_counter()
    for _ in range(records):
        writer.write(value)
    committable = writer.prepare_commit()
    staged = time.perf_counter() - began
    committer = one.create_committer()
    committer.job_id, committer.sink = "bench", "alone"
    committer.commit(0, [one_record(one, folder)])
    began = time.perf_counter()
    committer.commit(1, [committable])
    return staged, time.perf_counter() - began


def one_record(one: KafkaSink, folder: Path) -> bytes:
    """So that what is measured is not the first transaction."""
    context = WriterContext(0, 1, 0, "b", "bench", "alone", LocalStorage(str(folder)))
    writer = one.create_writer(context)
    writer.write(b"first")
    made = writer.prepare_commit()
    assert made is not None
    return made


def clients_alone(servers: str, folder: Path, topic: str) -> tuple[int, float, float, float]:
    """Records of a topic, CPU seconds to read them, seconds to stage as many, and to commit them."""
    count, reading, _ = read(servers, topic)
    create(servers, "alone")
    return count, reading, *commit_alone(servers, folder, count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--interval", type=int, default=1000)
    given = parser.parse_args()
    n = given.records
    with kafka_broker() as servers, tempfile.TemporaryDirectory() as folder:
        fill(servers, "in", n)
        create(servers, "out")
        count, client, staged, committed = clients_alone(servers, Path(folder, "alone"), "in")
        assert count == n
        print(f"the client alone reads    {n / client:12,.0f} records per CPU second")
        print(f"staging alone             {n / staged:12,.0f} records/s")
        print(f"a commit alone            {n / committed:12,.0f} records/s")
        began = time.perf_counter()
        job(servers, "in", sink(servers, "out"), str(Path(folder, "state")), given.interval)
        took = time.perf_counter() - began
        count, _, seen = read(servers, "out")
        assert count == n, count
        written = seen.samples[-1][0] - seen.samples[0][0]
        print(f"the job with its start    {n / took:12,.0f} records/s")
        print(f"first to last commit      {n / max(written, 1e-3):12,.0f} records/s")
        share = client / (took * PARTITIONS) + committed / took
        print(
            f"share of the clients      {share:12.0%} of the job's time (reading, and committing on the driver)"
        )


if __name__ == "__main__":
    main()
