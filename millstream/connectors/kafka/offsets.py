"""Where reading begins and ends (PyFlink's `KafkaOffsetsInitializer` and what belongs to it)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from millstream.common.constants import MAX_LONG_VALUE, MAX_TIME
from millstream.errors import InvalidArgument

__all__ = ["KafkaOffsetResetStrategy", "KafkaOffsetsInitializer", "KafkaTopicPartition"]


@dataclass(frozen=True, order=True)
class KafkaTopicPartition:
    """A partition of a topic.

    >>> print(KafkaTopicPartition("orders", 3))
    orders-3
    """

    topic: str
    partition: int

    def __post_init__(self) -> None:
        if type(self.partition) is not int or not 0 <= self.partition < 2**31:
            raise InvalidArgument(
                "a partition is a whole number from 0", topic=self.topic, got=repr(self.partition)
            )

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class KafkaOffsetResetStrategy(Enum):
    """What stands in for an offset that there is not."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """Says at which offset each partition begins, or ends; made by its methods.

    >>> KafkaOffsetsInitializer.timestamp(1700000000000)
    KafkaOffsetsInitializer.timestamp(1700000000000)
    """

    kind: str
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE
    time: int = 0
    given: Mapping[KafkaTopicPartition, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        about: Any = {"timestamp": self.time, "offsets": dict(self.given)}.get(self.kind, "")
        return f"KafkaOffsetsInitializer.{self.kind}({about})"

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """What the group has committed; where it has committed nothing, what the strategy says (an error)."""
        return KafkaOffsetsInitializer("committed_offsets", _strategy(offset_reset_strategy))

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """The first record that is not older than so many milliseconds since 1970; the end if there is none."""
        if (
            isinstance(timestamp, bool)
            or not isinstance(timestamp, int)
            or not 0 <= timestamp <= MAX_TIME
        ):
            raise InvalidArgument(
                "a timestamp is a number of milliseconds since 1970", got=repr(timestamp)
            )
        return KafkaOffsetsInitializer("timestamp", time=timestamp)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """What is given; of partitions that are not named there, what the strategy says."""
        given: Any = offsets
        if not isinstance(given, Mapping) or not all(
            isinstance(part, KafkaTopicPartition)
            and type(offset) is int
            and 0 <= offset <= MAX_LONG_VALUE
            for part, offset in given.items()
        ):
            raise InvalidArgument(
                "offsets are given as a dict of partitions and whole numbers",
                got=repr(offsets)[:200],
                hint='{KafkaTopicPartition("orders", 0): 42}',
            )
        strategy = _strategy(offset_reset_strategy)
        return KafkaOffsetsInitializer("offsets", strategy, given=dict(offsets))

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """The first record that the broker has."""
        return KafkaOffsetsInitializer("earliest")

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """The end as it is when the job starts."""
        return KafkaOffsetsInitializer("latest")


def _strategy(given: Any) -> KafkaOffsetResetStrategy:
    if isinstance(given, KafkaOffsetResetStrategy):
        return given
    raise InvalidArgument(
        "this is not a KafkaOffsetResetStrategy",
        got=repr(given)[:200],
        hint="KafkaOffsetResetStrategy.EARLIEST, LATEST or NONE",
    )
