"""Types of rows as schemas of Arrow, which Parquet files and tables are written with."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.typeinfo_composite import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)
from millstream.errors import InvalidArgument

__all__ = ["arrow_schema", "arrow_type"]

# The most digits that a decimal has in Parquet's usual form; half of them behind the point.
_DIGITS, _BEHIND = 38, 18

_SIMPLE: dict[TypeInformation, pa.DataType] = {
    Types.STRING(): pa.string(),
    Types.CHAR(): pa.string(),
    Types.BOOLEAN(): pa.bool_(),
    Types.BYTE(): pa.int8(),
    Types.SHORT(): pa.int16(),
    Types.INT(): pa.int32(),
    Types.LONG(): pa.int64(),
    Types.FLOAT(): pa.float32(),
    Types.DOUBLE(): pa.float64(),
    Types.BIG_INT(): pa.decimal128(_DIGITS, 0),
    Types.BIG_DEC(): pa.decimal128(_DIGITS, _BEHIND),
    Types.SQL_DATE(): pa.date32(),
    Types.SQL_TIME(): pa.time64("us"),
    Types.SQL_TIMESTAMP(): pa.timestamp("us"),
    Types.INSTANT(): pa.timestamp("us", "UTC"),
    Types.PRIMITIVE_ARRAY(Types.BYTE()): pa.binary(),
}


def arrow_schema(kind: Any) -> pa.Schema:
    """The schema of a row's type; one of Arrow's own is taken as it is.

    >>> arrow_schema(Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.INT()])).names
    ['name', 'n']
    """
    if isinstance(kind, pa.Schema):
        return kind
    if not isinstance(kind, RowTypeInfo):
        raise InvalidArgument(
            "this needs the type of a row, or a schema of PyArrow",
            got=repr(kind)[:200],
            hint="Types.ROW_NAMED(['name'], [Types.STRING()])",
        )
    names, types = kind.get_field_names(), kind.get_field_types()
    return pa.schema([(name, arrow_type(inner)) for name, inner in zip(names, types, strict=True)])


def arrow_type(kind: TypeInformation) -> pa.DataType:
    """The type of a column that holds values of a type.

    >>> arrow_type(Types.LIST(Types.INT()))
    ListType(list<item: int32>)
    """
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if isinstance(kind, MapTypeInfo):
        return pa.map_(arrow_type(kind.key_type), arrow_type(kind.value_type))
    if isinstance(kind, RowTypeInfo):
        return pa.struct(list(arrow_schema(kind)))
    if isinstance(kind, TupleTypeInfo):
        types = kind.get_field_types()
        return pa.struct([(f"f{n}", arrow_type(inner)) for n, inner in enumerate(types)])
    if isinstance(
        kind, ListTypeInfo | BasicArrayTypeInfo | ObjectArrayTypeInfo | PrimitiveArrayTypeInfo
    ):
        return pa.list_(arrow_type(kind.elem_type))
    raise InvalidArgument(
        "no column can hold this type", got=repr(kind), hint="choose another one for the field"
    )
