"""What the records behind some columns are: tuples, rows, dictionaries, or bare values.

Which columns records make says the first of them: a row's names, a named tuple's fields, a dictionary's keys, or f0,
f1, … of a tuple or a row without names. Anything else is one value per record, the column "value". A shape leads both
ways: from records to columns, and from columns to records of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from millstream.common.types import Row, make_row
from millstream.errors import UserFunctionError
from millstream.runtime.base.text import shorten

__all__ = ["VALUE", "VALUES", "BatchShape", "numbered", "rows_named", "shape_of"]

VALUE = ("value",)
"""The name of the one column of records that are values."""


@dataclass(frozen=True, slots=True)
class BatchShape:
    """What the records of a batch are."""

    names: tuple[str, ...] = ()
    """Of the columns; none if a record is one value."""

    kind: type | None = None
    """The class of the records; None of values."""

    unnamed: bool = False
    """Of rows that have no names of their own."""

    def maker(self) -> Callable[[tuple[Any, ...]], Any] | None:
        """Makes a record like these of the values of its fields; None for a plain tuple."""
        if self.kind is Row:
            return partial(_row, None if self.unnamed else self.names)
        if self.kind is dict:
            return partial(_dict, self.names)
        return getattr(self.kind, "_make", None)

    def columns(self, records: list[Any]) -> dict[str, Sequence[Any]]:
        """The records by columns."""
        if not self.names:
            return {VALUE[0]: records}
        rows: Iterable[Any] = records
        if self.kind is Row:
            rows = [record._values for record in records]
        elif self.kind is dict:
            # One may have its keys in another order than the next.
            return {name: [record[name] for record in records] for name in self.names}
        return dict(zip(self.names, zip(*rows, strict=True), strict=True))

    def records(self, columns: list[list[Any]]) -> list[Any]:
        """The records of columns.

        >>> BatchShape(("a", "b"), Row).records([[1, 2], ["x", "y"]])
        [Row(a=1, b='x'), Row(a=2, b='y')]
        """
        if not self.names:
            return columns[0]
        rows, make = zip(*columns, strict=True), self.maker()
        return list(rows) if make is None else list(map(make, rows))

    def of_result(self, names: tuple[str, ...], *, bare: bool) -> BatchShape:
        """What columns of these names become that a function gives for records of this shape: records of the same kind
        if the names are the same; `bare` says that a column "value" holds records themselves.

        >>> BatchShape(("f0",), tuple).of_result(("price",), bare=True)
        BatchShape(names=('price',), kind=<class 'millstream.common.types.Row'>, unnamed=False)
        """
        if names == self.names:
            return self
        if bare and names == VALUE:
            return VALUES
        if names == numbered(len(names)):
            return (
                BatchShape(names, Row, unnamed=True)
                if self.kind is Row
                else BatchShape(names, tuple)
            )
        return BatchShape(names, dict if self.kind is dict else Row)

    @property
    def has_names(self) -> bool:
        """True if the fields of a record go by names, and not by places alone."""
        return bool(self.names) and self.kind is not tuple and not self.unnamed

    # -- fields of the records ------------------------------------------------------------------------------

    def at(self, item: int | str) -> int | None:
        """The column of `record[item]`; None if there is none, or that would fail.

        >>> BatchShape(("a", "b"), Row).at("b"), BatchShape(("a", "b"), dict).at(1)
        (1, None)
        """
        if isinstance(item, str):
            keyed = self.kind is dict or (self.kind is Row and not self.unnamed)
            return self.names.index(item) if keyed and item in self.names else None
        return item if self.kind is not dict and 0 <= item < len(self.names) else None

    def attribute(self, name: str) -> int | None:
        """The column of `record.name`; None if there is none, or the class means something else by it."""
        if name not in self.names or self.kind is dict or self.unnamed or self.kind is tuple:
            return None
        return None if self.kind is Row and hasattr(Row, name) else self.names.index(name)

    def named(self, name: str) -> int | None:
        """The column of a field that goes by its name, whatever the records are."""
        return self.at(name) if self.kind is dict else self.attribute(name)


VALUES = BatchShape()
"""Records that are values."""


def rows_named(names: Sequence[str]) -> BatchShape:
    """Rows with these names."""
    return BatchShape(tuple(names), Row)


def _row(names: tuple[str, ...] | None, values: tuple[Any, ...]) -> Row:
    return make_row(names, list(values))


def _dict(names: tuple[str, ...], values: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))


def numbered(count: int) -> tuple[str, ...]:
    """The names of columns without names.

    >>> numbered(2)
    ('f0', 'f1')
    """
    return tuple(f"f{place}" for place in range(count))


def shape_of(records: list[Any]) -> BatchShape:
    """What the records are, if they are all alike.

    >>> shape_of([Row(name="a", n=1), Row(name="b", n=2)]).names
    ('name', 'n')
    >>> shape_of([("a", 1)]).names, shape_of([1, 2]).names
    (('f0', 'f1'), ())
    """
    first = records[0]
    kind = type(first)
    shape = VALUES
    alike = True
    if kind is Row:
        fields = first._fields
        alike = all(type(r) is Row and r._fields == fields for r in records)
        names = numbered(len(first)) if fields is None else fields
        shape = BatchShape(names, Row, unnamed=fields is None)
    elif isinstance(first, tuple):
        alike = set(map(type, records)) == {kind}
        named = getattr(kind, "_fields", None)
        shape = BatchShape(named or numbered(len(first)), kind)
    elif kind is dict and all(type(name) is str for name in first):
        alike = all(type(r) is dict and r.keys() == first.keys() for r in records)
        shape = BatchShape(tuple(first), dict)
    if shape.names and not (alike and set(map(len, records)) == {len(shape.names)}):
        other = next(r for r in records if type(r) is not kind or _fields(r) != _fields(first))
        raise UserFunctionError(
            "the records of a batch have different fields, and make no columns",
            first=shorten(first),
            other=shorten(other),
            hint='let the records be alike, or take them with batch_format="list"',
        )
    return shape if shape.names else VALUES


def _fields(record: Any) -> Any:
    if type(record) is Row:
        return record._fields, len(record)
    return record.keys() if type(record) is dict else len(record)
