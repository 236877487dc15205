"""Whether columns are what a stream declares, so that none of their records would have to be made to fit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import Types
from millstream.common.typeinfo_basic import TypeInformation
from millstream.common.typeinfo_composite import RowTypeInfo, TupleTypeInfo
from millstream.common.types import Row
from millstream.runtime.columns.batch import ColumnBatch

__all__ = ["array_fits", "fits"]

_KINDS: dict[TypeInformation, str] = {
    Types.STRING(): "string",
    Types.DOUBLE(): "double",
    Types.BOOLEAN(): "bool",
    Types.LONG(): "int64",
    Types.BIG_INT(): "int64",
    Types.INT(): "int64",
    Types.SHORT(): "int64",
    Types.BYTE(): "int64",
    Types.SQL_DATE(): "date32[day]",
}
_BITS = {Types.INT(): 32, Types.SHORT(): 16, Types.BYTE(): 8}


def fits(declared: Any, batch: ColumnBatch) -> bool:
    """True if the records are values of a declared type as they are; False also where it is not known.

    >>> batch = ColumnBatch.of_rows(pa.RecordBatch.from_pydict({"word": ["a"], "n": [2**31]}))
    >>> names = ["word", "n"]
    >>> fits(Types.ROW_NAMED(names, [Types.STRING(), Types.LONG()]), batch)
    True
    >>> fits(Types.ROW_NAMED(names, [Types.STRING(), Types.INT()]), batch)
    False
    """
    shape, columns = batch.shape, batch.data.columns
    if declared is None or declared.check_expression("v") is None:
        return True
    if isinstance(declared, RowTypeInfo):
        alike = shape.kind is Row and not shape.unnamed
        if not alike or list(shape.names) != declared.get_field_names():
            return False
    elif isinstance(declared, TupleTypeInfo):
        if shape.kind is not tuple or len(columns) != len(declared.get_field_types()):
            return False
    else:
        return not shape.names and array_fits(declared, columns[0])
    return all(map(array_fits, declared.get_field_types(), columns))


def array_fits(declared: TypeInformation, column: pa.Array) -> bool:
    """True if all values of a column are of a declared type as they are. None always is."""
    if pa.types.is_null(column.type) or declared.check_expression("v") is None:
        return True
    if _KINDS.get(declared) != str(column.type):
        return False
    if declared not in _BITS:
        return True
    half, ends = 1 << (_BITS[declared] - 1), pc.min_max(column).as_py()
    return ends["min"] is None or (-half <= ends["min"] and ends["max"] < half)
