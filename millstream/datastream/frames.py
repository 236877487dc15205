"""The Spark schema that a declared type stands for, as DDL text."""

from __future__ import annotations

from typing import Any

from millstream.common.typeinfo import BasicTypeInfo, RowTypeInfo, TupleTypeInfo
from millstream.errors import InvalidArgument

__all__ = ["schema_of"]

_DDL = {
    "STRING": "string",
    "BYTE": "tinyint",
    "BOOLEAN": "boolean",
    "SHORT": "smallint",
    "INT": "int",
    "LONG": "bigint",
    "FLOAT": "float",
    "DOUBLE": "double",
    "CHAR": "string",
    "BIG_DEC": "decimal(38,18)",
}


def schema_of(declared: Any) -> str:
    """The columns of a stream of rows or tuples, or one column `value` of a basic type.

    >>> from millstream.common.typeinfo import Types
    >>> schema_of(Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()]))
    '`word` string, `n` bigint'
    """
    if isinstance(declared, RowTypeInfo):
        names, types = declared.get_field_names(), declared.get_field_types()
    elif isinstance(declared, TupleTypeInfo):
        types = declared.get_field_types()
        names = [f"f{i}" for i in range(len(types))]
    else:
        names, types = ["value"], [declared]
    return ", ".join(f"`{name}` {_column(kind)}" for name, kind in zip(names, types, strict=True))


def _column(declared: Any) -> str:
    if isinstance(declared, BasicTypeInfo):
        for name, ddl in _DDL.items():
            if str(declared).upper().startswith(name):
                return ddl
    msg = "to_dataframe cannot tell the Spark schema from the stream's type"
    raise InvalidArgument(
        msg, type=str(declared), hint='pass one: to_dataframe("word string, n long")'
    )
