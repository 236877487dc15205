"""The one row schema that crosses Spark: a row is a buffer, or a message to the driver.

| column   | meaning                                                                       |
|----------|-------------------------------------------------------------------------------|
| target   | subtask of the receiving vertex                                               |
| channel  | who sent it: the number of a split at level 0, of a subtask below              |
| sequence | counts the sender's buffers on this edge within the epoch                      |
| edge     | id of the edge; `REPORT` and below are messages that pass every level untouched |
| payload  | a buffer (`millstream.runtime.wire.codec`) or a report (`millstream.runtime.wire.reports`) |

Edges and channels below zero have a meaning of their own, which is written and read by functions of this module alone.
"""

from __future__ import annotations

import pyarrow as pa

__all__ = [
    "BATCH_BYTES",
    "CLOSED",
    "FLOW_BYTES",
    "NUDGE",
    "OPENED",
    "REPORT",
    "SCHEMA",
    "SCHEMA_DDL",
    "RowBatch",
    "client_edge",
    "client_node",
    "for_driver",
    "own_channel",
    "sender_of",
]

SCHEMA = pa.schema(
    [
        pa.field("target", pa.int32()),
        pa.field("channel", pa.int32()),
        pa.field("sequence", pa.int64()),
        pa.field("edge", pa.int32()),
        pa.field("payload", pa.binary()),
    ]
)
SCHEMA_DDL = "target int, channel int, sequence long, edge int, payload binary"

REPORT = -1
"""The edge of what tasks tell the driver of themselves."""

# Where records flow through all levels at once: rows between tasks that are no buffers. Below all edges of records that
# operators send to the driver.
OPENED = -(1 << 30)
"""All that the sender has to say before the records of an epoch, whose number is the sequence, has been said."""
CLOSED = OPENED - 1
"""All that the sender has in the epoch has been sent."""
NUDGE = OPENED - 2
"""Nothing. Spark hands a row on when the next one is there."""

BATCH_BYTES = 4 << 20
FLOW_BYTES = 256 << 10
"""The same where records flow through all levels at once: what is under way is worked off before a checkpoint."""


def for_driver(edge: int) -> bool:
    """True of rows that are for the driver, and not for another task.

    >>> for_driver(REPORT), for_driver(client_edge(3)), for_driver(0), for_driver(OPENED)
    (True, True, False, False)
    """
    return OPENED < edge < 0


def client_edge(node_id: int) -> int:
    """The edge id of records that an operator sends to the driver.

    >>> client_node(client_edge(3))
    3
    """
    return -2 - node_id


def client_node(edge: int) -> int | None:
    """The operator that sends to the driver on an edge; None of an edge between operators."""
    return -2 - edge if edge < REPORT else None


def own_channel(subtask: int) -> int:
    """The channel on which a subtask of a source tells of itself, and not of one of its splits.

    >>> sender_of(own_channel(5), parallelism=8), sender_of(13, parallelism=8)
    (5, 5)
    """
    return -2 - subtask


def sender_of(channel: int, parallelism: int) -> int:
    """The subtask of a source that sends on a channel. Splits go round the subtasks."""
    return -2 - channel if channel < 0 else channel % parallelism


class RowBatch:
    """Rows on their way out of a task, taken as one Arrow batch when enough bytes are there."""

    __slots__ = ("channels", "edges", "payloads", "sequences", "size", "targets")

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.targets: list[int] = []
        self.channels: list[int] = []
        self.sequences: list[int] = []
        self.edges: list[int] = []
        self.payloads: list[bytes] = []
        self.size = 0

    def add(self, target: int, channel: int, sequence: int, edge: int, payload: bytes) -> None:
        """Append a row."""
        self.targets.append(target)
        self.channels.append(channel)
        self.sequences.append(sequence)
        self.edges.append(edge)
        self.payloads.append(payload)
        self.size += len(payload)

    def take(self) -> pa.RecordBatch:
        """All rows so far; the batch is empty afterwards."""
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(self.targets, pa.int32()),
                pa.array(self.channels, pa.int32()),
                pa.array(self.sequences, pa.int64()),
                pa.array(self.edges, pa.int32()),
                pa.array(self.payloads, pa.binary()),
            ],
            schema=SCHEMA,
        )
        self._reset()
        return batch

    def __len__(self) -> int:
        return len(self.targets)
