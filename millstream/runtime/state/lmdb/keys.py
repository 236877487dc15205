"""Keys of tables as keys of LMDB.

```
value   table u16 | key
list    table u16 | length u16 | key | chunk u32
map     table u16 | length u16 | key | map key
```

A key is a tag and its bytes. LMDB's keys end at 511 bytes: a longer one is replaced by a digest, and the key itself is
kept behind the value. Values are pickles, and a pickle says where it ends, so that what stands behind it costs nothing
to read:

```
pickle of the value | [pickle of (key, map key) | its length u32] | tag u8: bit 7 if the middle is there, schema
```
"""

from __future__ import annotations

import pickle
import struct
from hashlib import sha256
from typing import Any

from millstream.runtime.wire.codec import plain_pickle

__all__ = [
    "CHUNK",
    "after",
    "chunk_key",
    "full_key",
    "is_digest",
    "key_bytes",
    "key_of",
    "keyed",
    "map_key",
    "name_of",
    "schema_number",
    "split",
    "stored_value",
    "value_key",
]

CHUNK = struct.Struct(">I")
_LENGTH = struct.Struct(">H")
_BEHIND = struct.Struct("<I")
_LONG = 0x80
_MAX_VALUE_KEY = 511 - 2
# Together with the table, the length and a chunk number or a digest these stay below the limit.
_MAX_KEY = 240
_MAX_MAP_KEY = 240


def key_bytes(key: Any) -> bytes:
    """A key as bytes from which it can be made again.

    >>> [key_of(key_bytes(key)) for key in ("ä", 0, -1, 2**70, b"x")]
    ['ä', 0, -1, 1180591620717411303424, b'x']
    """
    kind = type(key)
    if kind is str:
        return b"s" + key.encode("utf-8", "surrogatepass")  # type: ignore[no-any-return]
    if kind is int:
        return b"i" + key.to_bytes(key.bit_length() // 8 + 1, "big", signed=True)  # type: ignore[no-any-return]
    if kind is bytes:
        return b"b" + key  # type: ignore[no-any-return]
    return b"p" + plain_pickle(key)


def key_of(data: bytes) -> Any:
    """The key that bytes stand for; not for a digest."""
    tag, body = data[0], data[1:]
    if tag == 0x73:
        return body.decode("utf-8", "surrogatepass")
    if tag == 0x69:
        return int.from_bytes(body, "big", signed=True)
    return body if tag == 0x62 else pickle.loads(body)


def _short(data: bytes, limit: int) -> bytes:
    return data if len(data) <= limit else b"#" + sha256(data).digest()


def value_key(prefix: bytes, key: Any) -> bytes:
    """The key of a value."""
    return prefix + _short(key_bytes(key), _MAX_VALUE_KEY)


def keyed(prefix: bytes, key: Any) -> bytes:
    """What all entries of a list's or map's key begin with."""
    data = _short(key_bytes(key), _MAX_KEY)
    return prefix + _LENGTH.pack(len(data)) + data


def chunk_key(start: bytes, number: int) -> bytes:
    """The key of a part of a list."""
    return start + CHUNK.pack(number)


def map_key(start: bytes, name: Any) -> bytes:
    """The key of an entry of a map."""
    return start + _short(key_bytes(name), _MAX_MAP_KEY)


def after(prefix: bytes) -> bytes:
    """The first key that is behind all that begin so.

    >>> after(b"a\\xff"), after(b"ab")
    (b'b', b'ac')
    """
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1])


def split(key: bytes) -> tuple[bytes, bytes, bytes]:
    """Of a list's or map's entry: what all of its key begin with, the key, and what is behind."""
    (length,) = _LENGTH.unpack_from(key, 2)
    return key[: 4 + length], key[4 : 4 + length], key[4 + length :]


def stored_value(value: bytes, schema: int, full: Any = None) -> bytes:
    """A value with its schema, and the full key if that is given."""
    if full is None:
        return value + bytes((schema,))
    behind = pickle.dumps(full)
    return value + behind + _BEHIND.pack(len(behind)) + bytes((schema | _LONG,))


def schema_number(data: bytes) -> int:
    """The schema of a record."""
    return data[-1] & ~_LONG


def full_key(data: bytes) -> Any:
    """The full key in a record; None if there is none."""
    if not data[-1] & _LONG:
        return None
    (length,) = _BEHIND.unpack_from(data, len(data) - 5)
    return pickle.loads(data[-5 - length : -5])


def is_digest(data: bytes) -> bool:
    """True if a key's bytes are not the key."""
    return data[:1] == b"#"


def name_of(key: bytes, data: bytes) -> Any:
    """The map key of an entry."""
    name = split(key)[2]
    return full_key(data)[1] if is_digest(name) else key_of(name)
