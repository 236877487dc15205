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

__all__ = ["INCOMPLETE", "PEEK_BYTES", "UNKNOWN", "Head", "read_head"]

PEEK_BYTES = 1 << 16
"""More is not looked at: a longer context is that of nobody's."""

_MARK = getattr(SpecialLengths, "START_OF_INIT_MESSAGE", None)
_LONGEST_VERSION = 64


@dataclass(frozen=True, slots=True)
class Head:
    """Whose task it is: the streaming query ("" if it is of none), the number of the partition, the attempt."""

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
        query = properties.get("sql.streaming.queryId")
        of_epoch = query is not None and "streaming.sql.batchId" in properties
    except (ValueError, KeyError, TypeError, AttributeError):
        return UNKNOWN
    return Head(str(query), split, attempt) if of_epoch else Head("", split, attempt)
