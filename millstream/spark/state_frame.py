"""A state of a savepoint as a Spark frame: one task reads each subtask's files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from millstream.common.types import Row
from millstream.spark.session import job_session
from millstream.state.reader import SavepointReader, rows_of
from millstream.storage.open import open_storage
from millstream.storage.seal import Seal

__all__ = ["state_frame"]

_SAMPLE = 1000
_BATCH = 10_000


def state_frame(
    reader: SavepointReader, uid: str, state: str, columns: Sequence[str], spark: Any = None
) -> DataFrame:
    """The frame. A column's type is that of the first entries; if they differ, it is text."""
    session = spark if spark is not None else job_session({})
    root, stores = reader.storage.root, list(reader.stores_of(uid).values())
    if reader.describe(uid, state)["kind"] == "operator broadcast":
        stores = stores[:1]
    allow_pickle, key_file = reader.allow_pickle, reader.hmac_key_file
    sample = list(islice(reader.rows(uid, state), _SAMPLE))
    schema = pa.schema(
        [(name, _type([row[i] for row in sample])) for i, name in enumerate(columns)]
    )

    def entries(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                storage = open_storage(root, seal=Seal.of(key_file))
                rows = rows_of(storage, stores[number], uid, state, allow_pickle=allow_pickle)
                while chunk := list(islice(rows, _BATCH)):
                    yield pa.RecordBatch.from_arrays(
                        [_column([row[i] for row in chunk], f.type) for i, f in enumerate(schema)],
                        schema=schema,
                    )

    numbers = session.range(0, len(stores), 1, max(1, len(stores)))
    return numbers.mapInArrow(entries, from_arrow_schema(schema))


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return dict(value.as_dict()) if getattr(value, "_fields", None) else list(value)
    return list(value) if isinstance(value, tuple) else value


def _type(values: list[Any]) -> pa.DataType:
    try:
        inferred = pa.array([_plain(value) for value in values]).type
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return pa.string()
    return pa.string() if pa.types.is_null(inferred) else inferred


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        return pa.array([v if v is None or isinstance(v, str) else repr(v) for v in values], kind)
    return pa.array([_plain(value) for value in values], kind)
