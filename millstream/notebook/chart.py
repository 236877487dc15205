"""Charts of records: which field goes where, and what kind of a chart that makes.

Numbers and moments on the x axis make lines, names make bars, and a pair of fields, the start and the end of a
window, makes boxes as wide as their windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from math import isnan
from numbers import Real
from types import NoneType
from typing import Any

from millstream.errors import InvalidArgument
from millstream.notebook import svg
from millstream.notebook.fields import fields_of, records_of
from millstream.notebook.svg import place_of
from millstream.runtime.base.text import shorten

__all__ = ["Chart", "chart"]

Fields = str | tuple[str, str] | None


@dataclass(frozen=True)
class Chart:
    """What is to be drawn; a notebook shows it as a picture, `svg()` is its text."""

    title: str
    kind: str
    series: dict[str, list[tuple[Any, ...]]] = field(repr=False)
    x_label: str = ""
    y_label: str = ""

    def svg(self) -> str:
        """The picture as text, for a file or a page.

        >>> chart([("oats", 2)], x="f0", y="f1").svg().startswith("<svg ")
        True
        """
        return svg.draw(self.kind, self.series, self.title, self.x_label, self.y_label)

    def _repr_html_(self) -> str:
        return self.svg()


def chart(
    records: Iterable[Any], y: str, x: Fields = None, by: str | None = None, title: str = ""
) -> Chart:
    """A chart of records, or of a pandas frame.

    `y` is the field that is drawn, `x` the one that it is drawn over: numbers or moments give lines, names give bars,
    and a pair of fields (start and end of a window) gives boxes, of which the last one of each window counts. Without
    `x` it is the order of the records. `by` is a field that has a line, or a colour, for each of its values. Fields
    of tuples are f0, f1, ...

    >>> chart([("oats", 2), ("rye", 5)], x="f0", y="f1")
    Chart(title='', kind='bars', x_label='f0', y_label='f1')
    >>> windows = [{"start": 0, "end": 60, "n": 3}, {"start": 60, "end": 120, "n": 1}]
    >>> chart(windows, x=("start", "end"), y="n").kind
    'windows'
    """
    rows = [fields_of(record) for record in records_of(records)]
    names = (x,) if isinstance(x, str) else tuple(x or ())
    if len(names) > 2 or not all(isinstance(name, str) for name in (y, *names, by or "")):
        msg = "x is a field or a pair of them, y and by are fields"
        raise InvalidArgument(msg, x=repr(x), y=repr(y), by=repr(by))
    series: dict[str, list[tuple[Any, ...]]] = {}
    kind = "windows" if len(names) == 2 else "lines"
    for place, row in enumerate(rows):
        at = tuple(_value(row, name) for name in names) or (place,)
        if kind == "lines" and not _measured(at[0]):
            kind = "bars"
        group = "" if by is None else str(_value(row, by))
        series.setdefault(group, []).append((*at, _number(row, y)))
    label = " to ".join(names)
    if kind == "bars":
        named = {group: [(str(at), y) for at, y in points] for group, points in series.items()}
        series = {group: _last(points) for group, points in named.items()}
    if kind == "windows":
        series = {group: _windows(points) for group, points in series.items()}
    return Chart(title, kind, series, label, y)


def _last(points: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The last value of each place: a later result of a key or window replaces the one before."""
    return [(*at, value) for at, value in {point[:-1]: point[-1] for point in points}.items()]


def _windows(points: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The points that have a start and an end, in the order of their starts."""
    for point in points:
        for bound in point[:2]:
            if bound is not None and not _measured(bound):
                msg = "the start and the end of a window are numbers or moments"
                raise InvalidArgument(msg, got=shorten(bound))
    whole = [point for point in points if not any(isnan(place_of(bound)) for bound in point[:2])]
    return sorted(_last(whole), key=lambda point: (place_of(point[0]), place_of(point[1])))


def _value(row: Mapping[str, Any], name: str) -> Any:
    if name not in row:
        msg = f"there is no field '{name}' to draw"
        raise InvalidArgument(msg, found=", ".join(row) or "none", hint="y=..., x=..., by=...")
    return row[name]


def _measured(value: Any) -> bool:
    return isinstance(value, Real | Decimal | date) and not isinstance(value, bool)


def _number(row: Mapping[str, Any], name: str) -> float:
    value = _value(row, name)
    if isinstance(value, Real | Decimal | NoneType):
        # None, NaN and what no float can hold are gaps.
        return place_of(value)
    try:
        return float(value)
    except (TypeError, ValueError):
        msg = f"the field '{name}' is no number and cannot be drawn"
        raise InvalidArgument(msg, got=shorten(value)) from None
