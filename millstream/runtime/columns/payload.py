"""Columns as bytes, in Arrow's own stream format, with a note of what they are.

| form | what it is | who reads it |
|---|---|---|
| `ColumnBatch` | rows as they are | a Spark writer |
| `KeyedRows` | rows by key, with the fields that are aggregated | windows |
| `Partials` | an accumulator for each key and pane, of rows that were added up before they were sent | windows |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from millstream.common.types import Row
from millstream.runtime.columns.batch import ColumnBatch
from millstream.runtime.columns.shapes import BatchShape

__all__ = ["KeyedRows", "Partials", "Sent", "can_ship", "decode_columns", "encode_columns"]


class Partials:
    """Columns: the canonical key, the start of the pane, how many rows, and the places of the accumulator."""

    __slots__ = ("data", "rows")

    def __init__(self, data: pa.RecordBatch, rows: int) -> None:
        self.data = data
        self.rows = rows
        """How many rows were added up."""

    def __len__(self) -> int:
        return self.rows


class KeyedRows:
    """Columns: the canonical key, encoded as a dictionary; the timestamp; the fields that are aggregated; and, if the
    records themselves are wanted, all of theirs."""

    __slots__ = ("_fields", "_shape", "data")

    def __init__(self, data: pa.RecordBatch, fields: int, shape: BatchShape | None = None) -> None:
        self.data = data
        self._fields = fields
        self._shape = shape

    def __len__(self) -> int:
        rows: int = self.data.num_rows
        return rows

    @property
    def fields(self) -> list[pa.Array]:
        """The fields that are aggregated."""
        columns: list[pa.Array] = self.data.columns[2 : 2 + self._fields]
        return columns

    def record(self, place: int) -> Any:
        """One of the records, if they were sent along."""
        if self._shape is None:
            return None
        columns = self.data.slice(place, 1).columns[2 + self._fields :]
        return self._shape.records([column.to_pylist() for column in columns])[0]


Sent = ColumnBatch | KeyedRows | Partials

_KINDS: dict[str, type | None] = {"row": Row, "tuple": tuple, "dict": dict, "value": None}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_NOTE = b"millstream"


def can_ship(shape: BatchShape) -> bool:
    """True if another process can make the same records. Of classes of the program it knows nothing."""
    return shape.kind in _NAMES


def encode_columns(sent: Sent) -> bytes:
    """The columns as bytes.

    >>> batch = ColumnBatch.of_rows(pa.RecordBatch.from_pydict({"n": [1, 2]}))
    >>> decode_columns(encode_columns(batch)).records()
    [Row(n=1), Row(n=2)]
    """
    data = sent.data
    match sent:
        case ColumnBatch(shape=shape):
            note: dict[str, Any] = {"form": "rows", "shape": _described(shape)}
        case KeyedRows(_fields=fields, _shape=shape):
            note = {"form": "keyed", "fields": fields, "shape": shape and _described(shape)}
        case _:
            note = {"form": "partials", "rows": sent.rows}
    data = data.replace_schema_metadata({_NOTE: json.dumps(note).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as stream:
        stream.write_batch(data)
    return bytes(memoryview(sink.getvalue()))


def decode_columns(body: bytes) -> Sent:
    """The columns behind bytes."""
    data = pa.ipc.open_stream(pa.py_buffer(body)).read_next_batch()
    note: dict[str, Any] = json.loads(data.schema.metadata[_NOTE])
    shape = None if note.get("shape") is None else _shape(note["shape"])
    match note["form"]:
        case "partials":
            return Partials(data, note["rows"])
        case "keyed":
            return KeyedRows(data, note["fields"], shape)
        case _:
            assert shape is not None
            return ColumnBatch(data, shape, None)


def _described(shape: BatchShape) -> dict[str, Any]:
    return {"kind": _NAMES[shape.kind], "names": shape.names, "unnamed": shape.unnamed}


def _shape(described: Mapping[str, Any]) -> BatchShape:
    names = tuple(described["names"])
    return BatchShape(names, _KINDS[described["kind"]], described["unnamed"])
