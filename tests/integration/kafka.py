"""A Kafka broker for the tests, and what they do with it through a plain client."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from millstream.testing.kafka import KafkaBroker, missing_tools

__all__ = ["Client", "broker", "kafka", "messages"]

USERS = {"ann": "correct-horse-7"}
_numbers = itertools.count(1)


def messages(servers: str, topic: str, level: str = "read_committed") -> list[Any]:
    """All messages of a topic, partition by partition.

    A commit returns before the broker has marked all partitions: until it has, a partition looks as if it ended before
    the transaction. So an end counts when it is the log's; a transaction that nobody ends is waited for for a while
    only.
    """
    settings = {
        "bootstrap.servers": servers, "group.id": "checker", "isolation.level": level, "log_level": 0,
        "enable.partition.eof": True, "enable.auto.commit": False, "auto.offset.reset": "earliest"
    }  # fmt: skip
    consumer = Consumer(settings)
    # One that reads what is committed is told that the log ends where it may read to.
    looker = Consumer({**settings, "isolation.level": "read_uncommitted"})
    parts = [
        TopicPartition(topic, n, 0)
        for n in consumer.list_topics(topic, timeout=10).topics[topic].partitions
    ]
    consumer.assign(parts)
    found: list[Any] = []
    ends: dict[int, int] = {}
    until = time.monotonic() + 3
    while True:
        for message in consumer.consume(5000, 0.2):
            error = message.error()
            if error is None:
                found.append(message)
                ends.pop(message.partition() or 0, None)
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[message.partition() or 0] = message.offset() or 0
            elif not error.retriable():
                raise AssertionError(error)
        if len(ends) == len(parts) and (
            time.monotonic() > until
            or all(
                ends[part.partition] >= looker.get_watermark_offsets(part, timeout=10)[1]
                for part in parts
            )
        ):
            break
    consumer.close()
    looker.close()
    return sorted(found, key=lambda m: (m.partition(), m.offset()))


class Client:
    """Makes topics, writes and reads them. None of it is Millstream's."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.broker = broker
        self.servers = broker.servers
        self.admin = AdminClient({"bootstrap.servers": broker.servers, "log_level": 0})

    def topic(self, partitions: int = 1, name: str = "t", **config: str) -> str:
        """A new topic of a name that nobody has."""
        topic = f"{name}-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result()
        return topic

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result()

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result()

    def expire(self, topic: str, before: int, partition: int = 0) -> None:
        """Do what retention does: take records away from the beginning."""
        for future in self.admin.delete_records(
            [TopicPartition(topic, partition, before)]
        ).values():
            future.result()

    def write(self, topic: str, values: Iterable[Any], partition: int = 0, **more: Any) -> None:
        """Records of these values, which are bytes or made JSON."""
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5, "log_level": 0})
        for value in values:
            body = (
                value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
            )
            producer.produce(topic, body, partition=partition, **more)
            producer.poll(0)
        assert producer.flush(30) == 0

    def read(self, topic: str, level: str = "read_committed") -> list[Any]:
        """All messages of a topic, partition by partition."""
        return messages(self.servers, topic, level)

    def values(self, topic: str) -> list[bytes]:
        """The committed values of a topic."""
        return [message.value() for message in self.read(topic)]

    def committed(self, group: str, topic: str, partition: int = 0) -> int:
        """What a group has committed."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, "log_level": 0})
        offset: int = consumer.committed([TopicPartition(topic, partition)], timeout=10)[0].offset
        consumer.close()
        return offset


@pytest.fixture(scope="session")
def kafka() -> Iterator[Client]:
    """A client of a broker that is the same for all tests of a run; nobody ends it."""
    missing = missing_tools()
    if missing is not None:
        pytest.skip(missing)
    with KafkaBroker(users=USERS) as running:
        yield Client(running)


@pytest.fixture
def broker() -> Iterator[Client]:
    """A client of a broker of the test's own, which it may kill."""
    missing = missing_tools()
    if missing is not None:
        pytest.skip(missing)
    with KafkaBroker() as running:
        yield Client(running)
