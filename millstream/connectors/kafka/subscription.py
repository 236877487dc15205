"""Which partitions a source reads, and how its splits are called.

A split is a partition: `orders-3`. If reading ends there, the name says where: `orders-3#500`. So the end stays what it
was when the job began, whoever goes on from a checkpoint.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from millstream.connectors.kafka.offsets import KafkaTopicPartition

__all__ = ["KafkaSplit", "Subscription"]

# Those that Java's client does not list either. Others may begin with "__" as well.
_KAFKAS_OWN = {"__consumer_offsets", "__transaction_state", "__share_group_state"}


@dataclass(frozen=True)
class KafkaSplit:
    """A partition, and the offset at which reading it ends, if it does.

    >>> KafkaSplit.parse("new-orders-3")
    KafkaSplit(part=KafkaTopicPartition(topic='new-orders', partition=3), stop=None)
    >>> print(KafkaSplit.parse("orders-3#500"))
    orders-3#500
    """

    part: KafkaTopicPartition
    stop: int | None = None

    def __str__(self) -> str:
        return str(self.part) if self.stop is None else f"{self.part}#{self.stop}"

    @staticmethod
    def parse(split: str) -> KafkaSplit:
        """What `str` wrote."""
        name, mark, stop = split.partition("#")
        topic, _, partition = name.rpartition("-")
        return KafkaSplit(KafkaTopicPartition(topic, int(partition)), int(stop) if mark else None)


@dataclass(frozen=True)
class Subscription:
    """Topics by name, topics by pattern, or partitions.

    >>> Subscription(pattern="orders-.*").partitions({"orders-eu": 2, "bills": 1})
    [KafkaTopicPartition(topic='orders-eu', partition=0), KafkaTopicPartition(topic='orders-eu', partition=1)]
    >>> Subscription(pattern=".*").partitions({"__consumer_offsets": 50, "__heartbeat": 1})
    [KafkaTopicPartition(topic='__heartbeat', partition=0)]
    """

    topics: tuple[str, ...] = ()
    pattern: str = ""
    parts: frozenset[KafkaTopicPartition] = frozenset()

    def __str__(self) -> str:
        if self.pattern:
            return f"topics like {self.pattern}"
        return ", ".join(self.topics or map(str, sorted(self.parts)))

    def partitions(self, there: dict[str, int]) -> list[KafkaTopicPartition]:
        """Of all that there are, the ones that it means, in order."""
        return [
            part
            for topic, count in sorted(there.items())
            for part in (KafkaTopicPartition(topic, n) for n in range(count))
            if self.means(part)
        ]

    def means(self, part: KafkaTopicPartition) -> bool:
        """True if the partition belongs to it."""
        if self.pattern:
            # As in Java's `matches`: all of the name.
            return part.topic not in _KAFKAS_OWN and bool(re.fullmatch(self.pattern, part.topic))
        return part.topic in self.topics or part in self.parts

    def missing(self, there: dict[str, int]) -> list[str]:
        """What it names and there is not."""
        absent = [topic for topic in self.topics if not there.get(topic)]
        return absent + [
            str(part) for part in sorted(self.parts) if part.partition >= there.get(part.topic, 0)
        ]
