"""A file of keyed state: its changes in one epoch, or all of it.

```
magic 4 | version u16 | serializer u16 | crc32 u32 | body: pickle of {operator uid/state name: [(key, value)]}
```

A value of `DELETED` says that the key is gone.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any
from zlib import crc32

import msgspec

from millstream.errors import StateError

__all__ = ["StateFile", "decode_state", "encode_state"]

_HEADER = struct.Struct("<4sHHI")
_MAGIC = b"MSSF"
_VERSION = 1
_PICKLE = 1

Tables = dict[str, list[tuple[Any, Any]]]


class StateFile(msgspec.Struct, frozen=True):
    """A file with the state of one vertex's subtask after `epoch`; `full` ones need no other file."""

    name: str
    epoch: int
    full: bool
    size: int


def encode_state(tables: Tables, dumps: Callable[[Any], bytes]) -> bytes:
    """Tables as the bytes of a file."""
    body = dumps(tables)
    return _HEADER.pack(_MAGIC, _VERSION, _PICKLE, crc32(body)) + body


def decode_state(name: str, data: bytes) -> Tables:
    """The tables in a file, or a `StateError` that names it.

    >>> decode_state("x", encode_state({"count": [("a", 1)]}, pickle.dumps))
    {'count': [('a', 1)]}
    """
    if len(data) < _HEADER.size:
        raise _damaged(name, f"it has {len(data)} bytes, fewer than its header")
    magic, version, serializer, checksum = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise _damaged(name, "it does not begin as a state file")
    if version != _VERSION or serializer != _PICKLE:
        raise _damaged(name, f"its format is {version}/{serializer}, known is {_VERSION}/{_PICKLE}")
    body = memoryview(data)[_HEADER.size :]
    if crc32(body) != checksum:
        raise _damaged(name, "its checksum does not match")
    tables: Tables = pickle.loads(body)
    return tables


def _damaged(name: str, why: str) -> StateError:
    msg = f"the state file {name} cannot be used: {why}"
    return StateError(msg, file=name)
