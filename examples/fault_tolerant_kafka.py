"""The demo with Kafka: from topic to topic, killed at random, and nothing is lost or doubled.

`copy_orders` is the whole job. `main` starts a broker, writes numbered orders, starts the job in a process of its own
and kills it again and again at random moments (kill -9: Python workers and whole drivers); at the end a plain consumer
that reads committed records compares.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from rich.console import Console

from millstream.common import Configuration, SimpleStringSchema, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.base import DeliveryGuarantee
from millstream.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)

PARTITIONS = 3
CUSTOMERS = 50


def copy_orders(servers: str, folder: Path, per_epoch: int) -> None:
    """The job: every order, with how many its customer has given so far."""
    config = Configuration.from_dict(
        {
            "execution.checkpointing.dir": str(folder / "checkpoints"),
            # A small bite at a time, so that there is time to kill it.
            "millstream.epoch.records": str(per_epoch),
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(2)
    env.enable_checkpointing(100)
    source = KafkaSource.builder().set_bootstrap_servers(servers).set_topics("orders")
    source.set_group_id("demo").set_unbounded(KafkaOffsetsInitializer.latest())
    source.set_value_only_deserializer(SimpleStringSchema())
    schema = KafkaRecordSerializationSchema.builder().set_topic("counted")
    # All of a customer's in one partition: a reader sees them in order.
    schema.set_partitioner(lambda line: int(line.split()[1]) % PARTITIONS)
    schema.set_value_serialization_schema(SimpleStringSchema())
    sink = KafkaSink.builder().set_bootstrap_servers(servers).set_record_serializer(schema.build())
    sink.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix("demo")
    (
        env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "orders")
        .map(lambda order: (order, order.split()[1], 1))
        .key_by(lambda order: order[1])
        .reduce(lambda before, order: (order[0], order[1], before[2] + 1))
        .map(lambda order: f"{order[0]} {order[2]}")
        .sink_to(sink.build())
    )
    env.execute("orders")


# What follows puts it to the test.


def write_orders(servers: str, count: int) -> None:
    """Orders "number customer", in partitions."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    client: dict[str, str | int | float | bool] = {"bootstrap.servers": servers, "log_level": 0}
    topics = [NewTopic(name, PARTITIONS, 1) for name in ("orders", "counted")]
    admin = AdminClient(client)
    for made in admin.create_topics(topics).values():
        made.result()
    producer = Producer({**client, "enable.idempotence": True, "linger.ms": 20})
    rng = random.Random(42)
    for number in range(count):
        customer = rng.randrange(CUSTOMERS)
        producer.produce("orders", f"{number} {customer}", partition=customer % PARTITIONS)
        if number % 1000 == 0:
            producer.flush()
    producer.flush()


class Reader:
    """A plain consumer of committed records; nothing of Millstream's."""

    def __init__(self, servers: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self.lines: list[str] = []
        settings = {
            "log_level": 0,
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
        }
        self._consumer = Consumer({**settings, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition("counted", n, 0) for n in range(PARTITIONS)])

    def look(self) -> int:
        """Take what has been committed since; how much that is by now."""
        for message in self._consumer.consume(100_000, 0.2):
            assert message.error() is None, message.error()
            self.lines.append((message.value() or b"").decode())
        return len(self.lines)


def find_worker(driver: int) -> int | None:
    """A Python worker: a child of Spark's worker daemon, which is a child of the driver's JVM."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
    generation = [driver]
    for _ in ("JVM", "daemon", "worker"):
        generation = [pid for pid, parent in parents.items() if parent in generation]
    return random.choice(generation) if generation else None


def main(orders: int, kills: int, seed: int, folder: Path) -> int:
    from millstream.testing import kafka_broker

    console = Console(highlight=False)
    random.seed(seed)
    started = time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - started:5.1f} s  {text}")

    say("a Kafka broker starts")
    with kafka_broker() as servers:
        write_orders(servers, orders)
        say(f"{orders:,} orders are in a topic; the job starts on Spark")
        command = [sys.executable, __file__, "--job", servers, str(folder), str(orders // 60)]
        reader = Reader(servers)
        log = (folder / "log").open("w")
        job = subprocess.Popen(command, stdout=log, stderr=log)
        # When this much is committed, and then at a random moment, somebody is killed.
        marks = sorted(random.uniform(0.02, 0.85) * orders for _ in range(kills))
        while job.poll() is None:
            done = reader.look()
            if not marks or done < marks[0]:
                continue
            marks.pop(0)
            time.sleep(random.uniform(0, 0.4))
            what = random.choice(["worker", "driver"])
            victim = job.pid if what == "driver" else find_worker(job.pid)
            if victim is None or job.poll() is not None:
                continue
            os.kill(victim, signal.SIGKILL)
            say(f"{done:9,} are committed: [red]kill -9[/] of {what} {victim}")
            if what == "driver":
                job.wait()
                job = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()
        if job.returncode:
            console.print((folder / "log").read_text(), f"[red]exit code {job.returncode}")
            return 1
        while reader.look() < orders and time.monotonic() - started < 600:
            time.sleep(0.2)
        time.sleep(1)
        reader.look()
    numbers = Counter(int(line.split()[0]) for line in reader.lines)
    counts: dict[str, list[int]] = defaultdict(list)
    for line in reader.lines:
        _, customer, count = line.split()
        counts[customer].append(int(count))
    lost = sum(number not in numbers for number in range(orders))
    doubled = sum(count - 1 for count in numbers.values())
    wrong = sum(seen != list(range(1, len(seen) + 1)) for seen in counts.values())
    say(
        f"{len(reader.lines):9,} are committed: {lost} lost, {doubled} doubled, {wrong} customers miscounted"
    )
    exact = not (lost or doubled or wrong)
    console.print("[green]exactly once[/]" if exact else "[red]NOT exactly once[/]")
    return 0 if exact else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=120_000)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--job", nargs=3, metavar=("SERVERS", "FOLDER", "PER_EPOCH"))
    given = parser.parse_args()
    if given.job:
        copy_orders(given.job[0], Path(given.job[1]), int(given.job[2]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            sys.exit(main(given.orders, given.kills, given.seed, Path(temporary)))
