"""The first bytes of what Spark sends to a Python worker for a task, as far as they tell whose task it is.

Four integers: the mark of an initial message, its length, the number of the partition, the length of the Python
version; that version; the length of the task's context; the context, as JSON. PySpark 4.3 does it like this and has no
document for it. What looks different is answered with `UNKNOWN`, and runs in any process.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

from pyspark.serializers import SpecialLengths

__all__ = ["INCOMPLETE", "PEEK_BYTES", "ROUND", "UNKNOWN", "Head", "read_head"]

ROUND = "millstream.round"
"""The local property of Spark's jobs that tells their tasks which run, which epoch of it, and which round of that, they
belong to."""

PEEK_BYTES = 1 << 16
"""More is not looked at: a longer context is that of nobody's."""

_MARK = getattr(SpecialLengths, "START_OF_INIT_MESSAGE", None)
_LONGEST_VERSION = 64


@dataclass(frozen=True, slots=True)
class Head:
    """Whose task it is: the query ("" if it is of none), the number of the partition, the attempt. The *query* is all
    that a run of a job has Spark do."""

    query: str
    split: int
    attempt: int


UNKNOWN = Head("", -1, -1)
"""Not what this was written for."""

INCOMPLETE = Head("", -1, -2)
"""There is more to come."""


def read_head(data: bytes) -> Head:
    """Whose task begins with these bytes.

    >>> read_head(b"") is INCOMPLETE, read_head(b"GET / HTTP/1.1 and so on") is UNKNOWN
    (True, True)
    """
    if len(data) < 16:
        return INCOMPLETE
    mark, length, split, version = struct.unpack_from("!iiii", data)
    if mark != _MARK or length < 8 or split < 0 or not 0 < version < _LONGEST_VERSION:
        return UNKNOWN
    if len(data) < 20 + version:
        return INCOMPLETE
    (size,) = struct.unpack_from("!i", data, 16 + version)
    begin = 20 + version
    if not 0 < size <= length or begin + size > PEEK_BYTES:
        return UNKNOWN
    if len(data) < begin + size:
        return INCOMPLETE
    try:
        context = json.loads(data[begin : begin + size])
        properties = context["localProperties"]
        attempt = int(context["taskAttemptId"])
        query = _run_of(properties)
    except (ValueError, KeyError, TypeError, AttributeError):
        return UNKNOWN
    return Head(query, split, attempt)


def _run_of(properties: dict[str, str]) -> str:
    """The run of a job that a task belongs to, "" if it is of none: what the driver says, or, where Spark itself begins
    batches, the streaming query."""
    told = properties.get(ROUND)
    if told:
        return told.rsplit(" ", 3)[0]
    batch = properties.get("streaming.sql.batchId")
    return "" if batch is None else str(properties.get("sql.streaming.queryId", ""))
