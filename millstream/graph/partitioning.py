"""Exchange strategies (Flink's `StreamPartitioner`s), as inert data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from millstream.graph.operators import Key

__all__ = ["FORWARD", "REBALANCE", "Partitioning", "Strategy"]


class Strategy(Enum):
    """How records are spread over the subtasks of the next operator. Values are Flink's names."""

    FORWARD = "FORWARD"
    REBALANCE = "REBALANCE"
    RESCALE = "RESCALE"
    SHUFFLE = "SHUFFLE"
    BROADCAST = "BROADCAST"
    GLOBAL = "GLOBAL"
    HASH = "HASH"
    CUSTOM = "CUSTOM"


@dataclass(frozen=True, eq=False)
class Partitioning:
    """A strategy with what it needs: the key for HASH and CUSTOM, the user's partitioner for CUSTOM."""

    strategy: Strategy
    key: Key | None = None
    partitioner: Any = None


FORWARD = Partitioning(Strategy.FORWARD)
REBALANCE = Partitioning(Strategy.REBALANCE)
