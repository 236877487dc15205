"""Values on their way to PostgreSQL, by one rule for both sinks.

Every value is sent as text and read by the server as the column's own type reads text, so that `2.7` for an `integer`
is an error in both, and never a 3. What the server would read by leaving a part out is refused here; json takes what
Python's `json` can write.

```
timestamp       a datetime with a time zone is refused, because the zone would be dropped
date            a datetime is refused, unless it is midnight without a time zone
time            a datetime, and a time with a time zone, are refused
json, jsonb     dict, list, tuple, bool, int, float and Decimal become JSON; a str is JSON text already
```

A column's own precision (`numeric(8, 2)`, `timestamp(0)`, `real`) rounds as the server does.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import psycopg
from psycopg.adapt import PyFormat, Transformer

from millstream.connectors.postgres.table import Connection, SqlTable
from millstream.errors import SinkError
from millstream.runtime.base.text import shorten

__all__ = ["Values"]

_MODIFIER = re.compile(r"\(\d+(,\s*-?\d+)?\)")


class Values:
    """What the rows of some columns of a table become."""

    def __init__(self, connection: Connection, table: SqlTable, columns: Sequence[str]) -> None:
        self._table = table
        self._columns = columns
        self._fits = [_FITS.get(_base(table.columns[name].type)) for name in columns]
        self._special = [index for index, fit in enumerate(self._fits) if fit is not None]
        self._transformer = Transformer.from_context(connection)

    def fitted(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """The row as it is sent; an error if the table does not take it, or not all of it."""
        if None in row:
            self._table.check_nulls(self._columns, row)
        if not self._special:
            return row
        values = list(row)
        for index in self._special:
            if values[index] is not None:
                fit = self._fits[index]
                assert fit is not None
                try:
                    values[index] = fit(values[index])
                except (TypeError, ValueError) as error:
                    raise self._misfit(row, index, error) from error
        return tuple(values)

    def text(self, row: tuple[Any, ...]) -> list[str | None]:
        """A fitted row as the texts that `COPY` would send, for statements that do not copy."""
        return [self._text(row, index) for index in range(len(row))]

    def _text(self, row: tuple[Any, ...], index: int) -> str | None:
        value = row[index]
        if value is None or type(value) is str:
            return value
        try:
            data = self._transformer.get_dumper(value, PyFormat.TEXT).dump(value)
        except (TypeError, ValueError) as error:
            if isinstance(error, psycopg.Error):
                raise
            raise self._misfit(row, index, error) from error
        return None if data is None else bytes(data).decode()

    def _misfit(self, row: tuple[Any, ...], index: int, error: Exception) -> SinkError:
        name = self._columns[index]
        return SinkError(
            f"a value does not fit the column {name} ({self._table.columns[name].type}): {error}",
            table=self._table.settings.table_name,
            columns=", ".join(self._columns),
            record=self._table.settings.redact(shorten(row)),
            hint="convert the value before the sink, or change the column's type",
        )


def _base(kind: str) -> str:
    """A type without its modifier.

    >>> _base("timestamp(0) without time zone"), _base("numeric(8,2)")
    ('timestamp without time zone', 'numeric')
    """
    return _MODIFIER.sub("", kind)


def _timestamp(value: Any) -> Any:
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        raise ValueError("it has a time zone, which the column would drop")
    return value


def _date(value: Any) -> Any:
    if not isinstance(value, datetime.datetime):
        return value
    if value.tzinfo is not None or value.time() != datetime.time():
        raise ValueError("it has a time of day, which the column would drop")
    return value.date()


def _time(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        raise TypeError("it has a date, which the column would drop")
    if isinstance(value, datetime.time) and value.tzinfo is not None:
        raise ValueError("it has a time zone, which the column would drop")
    return value


def _json(value: Any) -> Any:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (dict, list, tuple, bool, int, float)):
        return json.dumps(value)
    return value


_FITS: dict[str, Callable[[Any], Any]] = {
    "timestamp without time zone": _timestamp,
    "date": _date,
    "time without time zone": _time,
    "json": _json,
    "jsonb": _json,
}
