"""The plain form of single values and of rows, as files have them.

| type | plain form |
|---|---|
| BIG_DEC, UUID | text |
| INSTANT | [seconds, nanoseconds] |
| SQL_DATE | days since the year 1 |
| SQL_TIME, SQL_TIMESTAMP | ISO text; with a zone or a fold [text, fold, zone] |
| timedelta | [days, seconds, microseconds] |
| Row | the list of its fields; behind them its kind, if that is not INSERT |

All others are their own plain form. A zone is its name, or its offset in microseconds.
"""

from __future__ import annotations

import datetime
import uuid
import zoneinfo
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from millstream.common.time import Instant
from millstream.common.types import RowKind, make_row

__all__ = ["LEAVES", "row_decoder", "row_encoder"]

Convert = Callable[[Any], Any]

_MICROSECOND = datetime.timedelta(microseconds=1)
_INSERT = RowKind.INSERT


def _moment(value: Any) -> Any:
    """A time of day or a timestamp."""
    zone = value.tzinfo
    if zone is None and not value.fold:
        return value.isoformat()
    text = value.replace(tzinfo=None, fold=0).isoformat()
    if isinstance(zone, zoneinfo.ZoneInfo):
        return [text, value.fold, zone.key]
    offset = None if zone is None else zone.utcoffset(None) // _MICROSECOND
    return [text, value.fold, offset]


def _moment_reader(cls: Any) -> Convert:
    read = cls.fromisoformat

    def moment(plain: Any) -> Any:
        if isinstance(plain, str):
            return read(plain)
        text, fold, zone = plain
        if isinstance(zone, str):
            zone = zoneinfo.ZoneInfo(zone)
        elif zone is not None:
            zone = datetime.timezone(zone * _MICROSECOND)
        return read(text).replace(tzinfo=zone, fold=fold)

    return moment


LEAVES: dict[str, tuple[Convert, Convert]] = {
    "BigDecimal": (str, Decimal),
    "Uuid": (str, uuid.UUID),
    "Instant": (lambda instant: [instant.seconds, instant.nanos], lambda parts: Instant(*parts)),
    "DateTypeInfo": (datetime.date.toordinal, datetime.date.fromordinal),
    "TimeTypeInfo": (_moment, _moment_reader(datetime.time)),
    "TimestampTypeInfo": (_moment, _moment_reader(datetime.datetime)),
    "Duration": (
        lambda delta: [delta.days, delta.seconds, delta.microseconds],
        lambda parts: datetime.timedelta(*parts),
    ),
}
"""The way to the plain form and back, of each type whose values are not plain."""


def row_encoder(parts: Sequence[Convert | None]) -> Convert:
    """What makes a Row plain, given what does so for its fields."""
    simple = not any(parts)

    def encode(row: Any) -> list[Any]:
        values = row._values
        plain = (
            list(values)
            if simple
            else [
                value if step is None else step(value)
                for step, value in zip(parts, values, strict=True)
            ]
        )
        if row._row_kind is not _INSERT:
            plain.append(row._row_kind.value)
        return plain

    return encode


def row_decoder(
    names: tuple[str, ...], size: int, steps: Sequence[tuple[int | None, Convert]]
) -> Convert:
    """What makes a Row of the plain form of one with `size` fields: for each field, where it was and how to read it."""

    def decode(plain: list[Any]) -> Any:
        values = [None if place is None else read(plain[place]) for place, read in steps]
        if len(plain) > size:
            return make_row(names, values, RowKind(plain[size]))
        return make_row(names, values)

    return decode
