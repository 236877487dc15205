"""A file of a subtask's state: its changes in one epoch, or all of it.

```
magic 4 | version u16 | signed u16 | block*
block:  length u32 | crc32 u32 | kind u8 | body | signature 32, if signed
```

The first block is the header (JSON): the file's own name, so that a swapped file is noticed, and its tables. Then come
blocks of entries, then one that counts them, so that a file that was cut is noticed too. The checksum of a block
includes its number. A file is written and read block by block and never has to fit into memory.

| kind | body |
|---|---|
| `H` | the header |
| `D` | table u16, keys that are gone (of a map: emptied) |
| `P` | table u16, (key, value) |
| `A` | table u16, (key, elements to append) |
| `M` | table u16, (key, [(map key, entry)]) |
| `R` | table u16, (key, [map keys that are gone]) |
| `S` | operator state by name, all of it, plain: elements that are not are pickles |
| `O` | the same as version 0.1.0 wrote it, pickled |
| `E` | the end: the number of blocks |

Entries are pickles. Those of a table with the codec `plain` hold nothing but plain values and are read by an unpickler
that knows no classes. How a block is read, and whether at all, is up to whoever reads the file (`Loads`).
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO
from zlib import crc32

import msgspec

from millstream.errors import StateDamaged
from millstream.storage import seal as seals
from millstream.storage.seal import Seal

__all__ = [
    "Header",
    "Loads",
    "StateFile",
    "StateReader",
    "StateWriter",
    "TableInfo",
    "load_block",
    "load_plain",
    "sign_file",
    "table_name",
]

_FILE = struct.Struct("<4sHH")
_BLOCK = struct.Struct("<II")
_TABLE = struct.Struct("<H")
_MAGIC = b"MSSF"
_VERSION = 2
_MAX_BLOCK = 1 << 31


class StateFile(msgspec.Struct, frozen=True):
    """A file as a manifest names it. `full` ones need no other file; `covers` is the last file that a compacted one
    stands for."""

    name: str
    epoch: int
    full: bool
    size: int
    covers: str = ""


def table_name(uid: str, state: str) -> str:
    """What the table of an operator's state is called: the operator is everything before the last slash.

    >>> table_name("count", "a/b")
    'count/a%2Fb'
    """
    if "/" in state or "%" in state:
        state = state.replace("%", "%25").replace("/", "%2F")
    return f"{uid}/{state}"


class TableInfo(msgspec.Struct, frozen=True):
    """One state of one operator: what kind it is, and how its values are written."""

    name: str
    kind: str = "value"
    codec: str = "pickle"
    schema: Any = None
    ttl: bool = False


class Header(msgspec.Struct, frozen=True):
    """What a file says of itself."""

    name: str
    epoch: int
    full: bool
    tables: list[TableInfo] = []


class StateWriter:
    """Writes a file to a stream.

    >>> out = io.BytesIO()
    >>> writer = StateWriter(out, Header("s/1", 1, True, [TableInfo("op/count")]), pickle.dumps)
    >>> writer.entries(0, "P", [("a", 1)])
    >>> writer.end()
    >>> reader = StateReader("s/1", io.BytesIO(out.getvalue()))
    >>> [(table.name, kind, entries) for table, kind, entries in reader]
    [('op/count', 'P', [('a', 1)])]
    """

    def __init__(
        self,
        stream: BinaryIO,
        header: Header,
        dumps: Callable[[Any], bytes],
        seal: Seal | None = None,
    ) -> None:
        self._seal = seal
        self._signed_to = b"" if seal is None else seal.first(header.name)
        self._stream = stream
        self._dumps = dumps
        self._count = 0
        self.size = _FILE.size
        stream.write(_FILE.pack(_MAGIC, _VERSION, seal is not None))
        self._block(b"H" + msgspec.json.encode(header))

    def entries(self, table: int, kind: str, entries: list[Any]) -> None:
        """Some entries of a table."""
        self._block(kind.encode() + _TABLE.pack(table) + self._dumps(entries))

    def operator_state(self, states: dict[str, Any]) -> None:
        """All operator state of the subtask."""
        self._block(b"S" + self._dumps(states))

    def end(self) -> None:
        """The file is complete."""
        self._block(b"E" + msgspec.json.encode(self._count))

    def _block(self, body: bytes) -> None:
        self._stream.write(_BLOCK.pack(len(body), crc32(body, self._count)))
        self._stream.write(body)
        if self._seal is not None:
            self._signed_to = self._seal.block(self._signed_to, body)
            self._stream.write(self._signed_to)
        self.size += _BLOCK.size + len(body) + len(self._signed_to)
        self._count += 1


Loads = Callable[[TableInfo | None, str, memoryview], Any]
"""Reads the content of a block, given its table (None is operator state) and its kind; None if it is not wanted."""


def load_block(info: TableInfo | None, kind: str, data: memoryview) -> Any:
    """Read a block of a file that is trusted."""
    plain = kind == "S" if info is None else info.codec == "plain"
    return load_plain(data) if plain else pickle.loads(data)


class StateReader:
    """Reads a file from a stream: iterate for (table, kind, entries); of operator state the table is None. Whatever is
    wrong with the file is a `StateDamaged` that names it, or with a seal a `StateNotSigned`, before it is decoded."""

    def __init__(
        self, name: str, stream: BinaryIO, loads: Loads = load_block, seal: Seal | None = None
    ) -> None:
        self._seal = seal
        self._signed_to = b"" if seal is None else seal.first(name)
        self._name = name
        self._stream = stream
        self._loads = loads
        self._count = 0
        magic, version, signed = _FILE.unpack(self._exactly(_FILE.size, "its beginning"))
        if magic != _MAGIC:
            raise damaged(name, "it does not begin as a state file")
        if version != _VERSION:
            raise damaged(name, f"its format is {version}, known is {_VERSION}")
        if signed > 1:
            raise damaged(name, f"it is signed in a way that is not known: {signed}")
        if seal is not None and not signed:
            raise seals.unsigned(name)
        self._signature = seals.SIZE if signed else 0
        body = self._block()
        if body[:1] != b"H":
            raise damaged(name, "it has no header")
        try:
            self.header = msgspec.json.decode(body[1:], type=Header)
        except msgspec.DecodeError as error:
            raise damaged(name, f"its header cannot be read: {error}") from None
        if self.header.name != name:
            raise damaged(name, f"it is another file: {self.header.name}")

    def __iter__(self) -> Iterator[tuple[TableInfo | None, str, Any]]:
        tables = self.header.tables
        while True:
            body = self._block()
            kind = chr(body[0])
            if kind == "E":
                if msgspec.json.decode(body[1:]) != self._count - 1:
                    raise damaged(self._name, "blocks are missing")
                if self._stream.read(1):
                    raise damaged(self._name, "it goes on after its end")
                return
            table, start = None, 1
            if kind not in "SO":
                (place,) = _TABLE.unpack_from(body, 1)
                table, start = tables[place], 1 + _TABLE.size
            entries = self._loads(table, kind, memoryview(body)[start:])
            if entries is not None:
                yield table, kind, entries

    def _exactly(self, size: int, subject: str) -> bytes:
        data = self._stream.read(size)
        while len(data) < size:
            more = self._stream.read(size - len(data))
            if not more:
                raise damaged(self._name, f"it ends in the middle of {subject}")
            data += more
        return data

    def _block(self) -> bytes:
        length, checksum = _BLOCK.unpack(self._exactly(_BLOCK.size, f"block {self._count}"))
        if not 0 < length < _MAX_BLOCK:
            raise damaged(self._name, f"block {self._count} has an impossible length")
        body = self._exactly(length, f"block {self._count}")
        if crc32(body, self._count) != checksum:
            raise damaged(self._name, f"the checksum of block {self._count} does not match")
        signature = self._exactly(self._signature, f"block {self._count}")
        if self._seal is not None:
            self._signed_to = self._seal.block(self._signed_to, body)
            if not seals.same(self._signed_to, signature):
                raise seals.forged(self._name)
        self._count += 1
        return body


def sign_file(
    name: str, source: BinaryIO, target: BinaryIO, seal: Seal, before: Seal | None = None
) -> int:
    """Copy a file, signed anew; its size. Nothing is decoded but its header."""
    reader = StateReader(name, source, seal=before)
    writer = StateWriter(target, reader.header, pickle.dumps, seal)
    kind = b"H"
    while kind != b"E":
        body = reader._block()
        kind = body[:1]
        writer._block(body)
    return writer.size


class _PlainUnpickler(pickle.Unpickler):
    """Reads plain values only."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} in a table of plain values")


def load_plain(data: bytes | memoryview) -> Any:
    """A pickle of nothing but plain values.

    >>> load_plain(pickle.dumps([1, ("a", None)]))
    [1, ('a', None)]
    """
    return _PlainUnpickler(io.BytesIO(data)).load()


def damaged(name: str, why: str) -> StateDamaged:
    """The error for a file that is not what was written."""
    msg = f"the state file {name} cannot be used: {why}"
    return StateDamaged(
        msg,
        file=name,
        hint="restore the file from a copy, or start from an older checkpoint or savepoint with -s",
    )
