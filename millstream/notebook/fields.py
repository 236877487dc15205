"""Records as fields with names: the columns of a table, and what a chart is told to draw."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from millstream.common.types import Row

__all__ = ["fields_of", "records_of", "table_of"]


def fields_of(record: Any) -> dict[str, Any]:
    """The fields of a record by name. Those without names are f0, f1, ..., as in Flink; what has no fields is `value`.

    >>> fields_of(Row(word="mill", n=2)), fields_of(("mill", 2)), fields_of("mill")
    ({'word': 'mill', 'n': 2}, {'f0': 'mill', 'f1': 2}, {'value': 'mill'})
    """
    if isinstance(record, Mapping):
        return {str(name): value for name, value in record.items()}
    if isinstance(record, Row):
        values = list(record)
        return dict(zip(record._fields or _numbered(values), values, strict=True))
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    if isinstance(record, tuple):
        return dict(zip(getattr(record, "_fields", _numbered(record)), record, strict=True))
    return {"value": record}


def _numbered(values: Any) -> list[str]:
    return [f"f{place}" for place in range(len(values))]


def records_of(given: Any) -> list[Any]:
    """Records, or the rows of a pandas frame.

    >>> import pandas as pd
    >>> records_of(pd.DataFrame({"key": ["a"], "value": [1]}))
    [{'key': 'a', 'value': 1}]
    """
    if hasattr(given, "itertuples") and hasattr(given, "columns"):
        return list(given.to_dict("records"))
    return list(given)


def table_of(records: Iterable[Any]) -> tuple[list[str], list[list[Any]]]:
    """The names of all fields in the order in which they come up, and the values of each record; "" for none.

    >>> table_of([{"a": 1}, {"b": 2}])
    (['a', 'b'], [[1, ''], ['', 2]])
    """
    every = [fields_of(record) for record in records]
    names = list(dict.fromkeys(name for fields in every for name in fields))
    return names, [[fields.get(name, "") for name in names] for fields in every]
