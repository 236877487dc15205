"""The broker of the Kafka checker job: its topics, its restarts, and what must be in the topics in the end."""

from __future__ import annotations

import contextlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from millstream.testing.kafka import KafkaBroker
from tests.chaos import checker
from tests.chaos.kafka_checker import PARTITIONS, SERVERS
from tests.chaos.oracle import Verdict
from tests.integration.kafka import messages

__all__ = ["judge", "prepare", "restart", "running"]

IDS = 60_000  # of each partition; no run reads that many

_brokers: list[KafkaBroker] = []


@contextlib.contextmanager
def running() -> Iterator[None]:
    """A broker for all runs of a series."""
    with KafkaBroker() as broker:
        os.environ[SERVERS] = broker.servers
        _brokers.append(broker)
        try:
            yield
        finally:
            _brokers.remove(broker)
            del os.environ[SERVERS]


def restart() -> None:
    """The broker goes away and comes back. In order: one that is killed may itself forget transactions that it had
    committed a moment before, and no client can make up for that."""
    _brokers[-1].stop()
    _brokers[-1].start()


def prepare(folder: Path) -> None:
    """The topics of a run."""
    client = {"bootstrap.servers": os.environ[SERVERS], "log_level": 0}
    names = [f"{kind}-{folder.name}" for kind in ("in", "copies", "counts")]
    admin = AdminClient(client)
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        future.result()
    producer = Producer({**client, "enable.idempotence": True, "linger.ms": 20})
    for number in range(IDS):
        for partition in range(PARTITIONS):
            value = str(partition * checker.PER_SPLIT + number)
            producer.produce(names[0], value, partition=partition)
        if number % 1000 == 0:
            producer.flush()
    assert producer.flush(60) == 0


def read(topic: str) -> dict[int, list[str]]:
    """The committed values of a topic, in order, by partition; with a plain client."""
    found: dict[int, list[str]] = defaultdict(list)
    for message in messages(os.environ[SERVERS], topic):
        found[message.partition()].append(message.value().decode())
    return found


def judge(folder: Path) -> Verdict:
    """What was read must be there once: as it was in the copies, and numbered without a gap in the counts."""
    verdict = Verdict()
    ends = {n: int((folder / f"end-in-{folder.name}-{n}").read_text()) for n in range(PARTITIONS)}
    wanted = {
        n: [str(n * checker.PER_SPLIT + number) for number in range(end)] for n, end in ends.items()
    }
    verdict.records = sum(ends.values())
    copies = read(f"copies-{folder.name}")
    for n, ids in wanted.items():
        _compare(verdict, f"copies, partition {n}", Counter(ids), Counter(copies[n]))
        if sorted(copies[n], key=int) != copies[n]:
            verdict.add("disordered", f"copies, partition {n}")
    counts = read(f"counts-{folder.name}")
    every = [line.split() for n in range(PARTITIONS) for line in counts[n]]
    all_ids = Counter(number for ids in wanted.values() for number in ids)
    _compare(verdict, "counts", all_ids, Counter(number for number, _, _ in every))
    last: Counter[str] = Counter()
    for number, key, count in every:
        if int(count) != last[key] + 1:
            verdict.add(
                "wrong", f"counts: {number} has number {count} of key {key} after {last[key]}"
            )
        last[key] = int(count)
    verdict.facts["copies"] += sum(map(len, copies.values()))
    return verdict


def _compare(verdict: Verdict, where: str, wanted: Counter[str], found: Counter[str]) -> None:
    missing, more = wanted - found, found - wanted
    if missing:
        verdict.add("lost", f"{where}: {sorted(missing, key=int)[:5]}", missing.total())
    if more:
        verdict.add("duplicated", f"{where}: {sorted(more, key=int)[:5]}", more.total())
