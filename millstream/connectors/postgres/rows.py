"""Records as the values of a table's columns.

```
columns set       Row with names, dict, named tuple, dataclass   by name; fields that are no column are left out
                  Row without names, tuple, list                 by position, as many as columns
                  anything else                                  the value of the only column
columns not set   Row with names, dict, named tuple, dataclass   the first record's names, for all records
```
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from millstream.common.types import Row, RowKind
from millstream.connectors.postgres.settings import Settings
from millstream.errors import SinkError
from millstream.runtime.base.text import shorten

__all__ = ["Shape"]


class Shape:
    """Turns one writer's records into tuples of values.

    >>> shape = Shape(Settings({}, (None, "orders"), None, ""))
    >>> shape.values({"id": 1, "price": 5}), shape.values(Row(price=7, id=2))
    ((1, 5), (2, 7))
    >>> shape.columns
    ('id', 'price')
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._fixed = settings.columns is not None
        self._columns = settings.columns

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns; known after the first record at the latest."""
        assert self._columns is not None
        return self._columns

    def values(self, record: Any) -> tuple[Any, ...]:
        """The record's values in the order of the columns."""
        if isinstance(record, Row) and record.get_row_kind() in _RETRACTIONS:
            raise self._misfit(
                record,
                f"a row of kind {record.get_row_kind()} takes something back, and this sink only adds",
                "filter such rows out before the sink",
            )
        named = _by_name(record)
        if self._columns is None:
            if not named:
                raise self._misfit(
                    record,
                    "the record has no field names, so its columns are not known",
                    "call set_columns(...), or emit Rows with names, dicts or dataclasses",
                )
            self._columns = tuple(str(name) for name in named)
        if named is not None:
            return self._named(record, named)
        return self._positional(record)

    def _named(self, record: Any, named: Mapping[Any, Any]) -> tuple[Any, ...]:
        try:
            values = tuple([named[name] for name in self.columns])
        except KeyError:
            missing = [name for name in self.columns if name not in named]
            raise self._misfit(
                record,
                f"the record has no {', '.join(missing)}",
                "give every record all columns; None is NULL",
            ) from None
        if not self._fixed and len(named) != len(values):
            extra = [str(name) for name in named if name not in self.columns]
            raise self._misfit(
                record,
                f"the record has {', '.join(extra)}, which the first record had not",
                "name the columns to write with set_columns(...)",
            )
        return values

    def _positional(self, record: Any) -> tuple[Any, ...]:
        values: Any = record if isinstance(record, (Row, tuple, list)) else (record,)
        if len(values) != len(self.columns):
            raise self._misfit(
                record,
                f"the record has {len(values)} values for {len(self.columns)} columns",
                "emit one value per column of set_columns(...), in that order",
            )
        return tuple(values)

    def _misfit(self, record: Any, problem: str, hint: str) -> SinkError:
        return SinkError(
            problem,
            table=self._settings.table_name,
            columns=", ".join(self._columns) if self._columns else None,
            record=shorten(record),
            hint=hint,
        )


_RETRACTIONS = (RowKind.UPDATE_BEFORE, RowKind.DELETE)


def _by_name(record: Any) -> Mapping[Any, Any] | None:
    """The record's fields by name, or None if they have none."""
    if isinstance(record, Mapping):
        return record
    if is_dataclass(record) and not isinstance(record, type):
        return {field.name: getattr(record, field.name) for field in fields(record)}
    names = getattr(record, "_fields", None) if isinstance(record, (Row, tuple)) else None
    if names is None:
        return None
    return dict(zip(names, record, strict=False))
