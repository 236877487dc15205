"""Schemas of Avro, seen from here: as columns, as rows, and why one cannot be read with another. Needs no fastavro."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from millstream.common.types import Row, make_row
from millstream.errors import InvalidArgument

__all__ = ["as_arrow_schema", "as_rows", "disagreement", "misfit", "plain", "rows_reader"]

Convert = Callable[[Any], Any]

_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "null": pa.null(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}
# What a value may be read as, beside its own type.
_GROWS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}


def plain(value: Any, names: Sequence[str] | None = None) -> Any:
    """A row as the dict that Avro's writers take, with all inside; `names` are those of a row that has none.

    >>> plain(Row(a=1, b=[Row(c=2)]))
    {'a': 1, 'b': [{'c': 2}]}
    """
    if isinstance(value, Row):
        own = value._fields if value._fields is not None else names
        if own is None:
            own = [f"f{n}" for n in range(len(value))]
        if len(own) != len(value):
            raise InvalidArgument(
                f"the row has {len(value)} fields, and the schema {len(own)}", got=repr(value)[:200]
            )
        return {name: plain(inner) for name, inner in zip(own, value._values, strict=True)}
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value


def rows_reader(schema: Any, named: Mapping[str, Any] | None = None) -> Convert:
    """What makes rows of the dicts that stand for records, and leaves maps as they are; `named` has the schemas of
    names.

    >>> inner = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}
    >>> rows_reader({"type": "array", "items": ["null", "r"]}, {"r": inner})([{"n": 1}])
    [Row(n=1)]
    """
    return lambda value: _rows(value, schema, named or {})


def as_rows(convert: Convert | None, value: Any) -> Any:
    """A value with rows in it, if there are any to be made."""
    return value if convert is None or value is None else convert(value)


def _rows(value: Any, schema: Any, named: Mapping[str, Any]) -> Any:
    if not isinstance(value, dict | list):
        return value
    schema = _resolved(schema, named)
    if isinstance(schema, list):
        schema = _branch(value, schema, named)
    kind = schema.get("type") if isinstance(schema, dict) else schema
    if kind == "record":
        fields = schema["fields"]
        inside = [_rows(value[field["name"]], field["type"], named) for field in fields]
        return make_row(tuple(field["name"] for field in fields), inside)
    if kind == "array":
        return [_rows(inner, schema["items"], named) for inner in value]
    if kind == "map":
        values: dict[str, Any] = dict(value)
        return {key: _rows(inner, schema["values"], named) for key, inner in values.items()}
    return _rows(value, kind, named) if isinstance(kind, dict | list) else value


def _resolved(schema: Any, named: Mapping[str, Any]) -> Any:
    return named.get(schema, schema) if isinstance(schema, str) else schema


def _branch(value: dict[str, Any] | list[Any], union: list[Any], named: Mapping[str, Any]) -> Any:
    """The branch of a union that a value was read with: a record with just these fields, else an array or a map."""
    found: Any = None
    for branch in union:
        schema = _resolved(branch, named)
        kind = schema.get("type") if isinstance(schema, dict) else schema
        if kind == "record" and isinstance(value, dict):
            if value.keys() == {field["name"] for field in schema["fields"]}:
                return schema
        elif kind == ("array" if isinstance(value, list) else "map"):
            found = schema
    return found


_FINEST = {"millis": 1_000}  # microseconds


def misfit(value: Any, schema: Any, named: Mapping[str, Any], place: str = "") -> str | None:
    """Why a value would be changed by being written: fastavro cuts off what is finer than the type, takes a moment
    without a time zone for one of the machine's own, and writes what it cannot read. None if nothing is found.

    >>> misfit(
    ...     datetime(2026, 1, 1), {"type": "long", "logicalType": "timestamp-millis"}, {}, "seen"
    ... )
    "the field 'seen' is a moment, and the value has no time zone"
    """
    schema = _resolved(schema, named)
    if isinstance(schema, list):
        found = [misfit(value, branch, named, place) for branch in schema if branch != "null"]
        return None if None in found else next(iter(found), None)
    if not isinstance(schema, dict):
        return None
    kind, logical = schema.get("type"), str(schema.get("logicalType", ""))
    if logical:
        why = _logical_misfit(value, schema, logical)
        return f"the field '{place}' {why}" if why else None
    inside: list[tuple[Any, Any, str]] = []
    if kind == "record" and isinstance(value, Mapping):
        dot = f"{place}." if place else ""
        inside = [(value.get(f["name"]), f["type"], f"{dot}{f['name']}") for f in schema["fields"]]
    elif kind == "array" and isinstance(value, list | tuple):
        inside = [(item, schema["items"], f"{place}[{n}]") for n, item in enumerate(value)]
    elif kind == "map" and isinstance(value, Mapping):
        inside = [(item, schema["values"], f"{place}[{key}]") for key, item in value.items()]
    elif isinstance(kind, dict | list):
        inside = [(value, kind, place)]
    return next((why for each in inside if (why := misfit(each[0], each[1], named, each[2]))), None)


def _logical_misfit(value: Any, schema: Mapping[str, Any], logical: str) -> str | None:
    if isinstance(value, datetime):
        if logical == "date":
            return "is a date, and the value has a time of day"
        if logical.startswith("timestamp") and value.tzinfo is None:
            return "is a moment, and the value has no time zone"
        if logical.startswith("local-timestamp") and value.tzinfo is not None:
            return "has no time zone, and the value has one"
    if isinstance(value, datetime | time) and value.microsecond % _FINEST.get(logical[-6:], 1):
        return "has milliseconds, and the value is finer"
    if logical == "decimal" and isinstance(value, Decimal) and value.is_finite():
        precision, scale = schema.get("precision", 0), schema.get("scale", 0)
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        if -exponent > scale or len(digits) + exponent + scale > precision:
            return f"has {precision} digits, {scale} of them behind the point, and the value others"
    if logical == "uuid" and isinstance(value, str):
        try:
            UUID(value)
        except ValueError:
            return "is a UUID, and the value is none"
    return None


def as_arrow_schema(schema: Any) -> pa.Schema:
    """The columns of a record's schema.

    >>> fields = [{"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"]}]
    >>> as_arrow_schema({"type": "record", "name": "r", "fields": fields}).types
    [DataType(int64), DataType(string)]
    """
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise InvalidArgument("columns need the schema of a record", got=repr(schema)[:200])
    named = schema.get("__named_schemas", {})
    # Without the record's own name: what refers to it is recursive.
    others = {name: inner for name, inner in named.items() if name != schema.get("name")}
    return pa.schema([_field(field, others) for field in schema["fields"]])


def _field(field: Any, named: Mapping[str, Any]) -> pa.Field:
    kind = field["type"]
    nullable = kind == "null" or (isinstance(kind, list) and "null" in kind)
    return pa.field(field["name"], _type(kind, field["name"], named), nullable)


def _type(schema: Any, name: str, named: Mapping[str, Any]) -> pa.DataType:
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        if len(others) == 1:
            return _type(others[0], name, named)
    elif isinstance(schema, str) and schema in named:
        return _type(named[schema], name, named)
    elif isinstance(schema, str) and schema in _ARROW:
        return _ARROW[schema]
    elif isinstance(schema, dict):
        kind, logical = schema.get("type"), schema.get("logicalType")
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        if logical == "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        if kind == "record":
            inner = {key: value for key, value in named.items() if key != schema.get("name")}
            return pa.struct([_field(field, inner) for field in schema["fields"]])
        if kind == "array":
            return pa.list_(_type(schema["items"], name, named))
        if kind == "map":
            return pa.map_(pa.string(), _type(schema["values"], name, named))
        if kind == "enum":
            return pa.string()
        if kind == "fixed":
            return pa.binary(schema["size"])
        if isinstance(kind, dict | list) or kind in _ARROW:
            return _type(kind, name, named)
    raise InvalidArgument(
        f"no column can hold the field '{name}'",
        type=repr(schema)[:200],
        hint="Parquet has no unions but those with null, and no recursive types",
    )


def disagreement(written: Any, wanted: Any, place: str = "") -> str | None:
    """Why records of one schema cannot be read with another, with the field's name; None if nothing is found.

    >>> one = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "string"}]}
    >>> two = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}
    >>> disagreement(one, two)
    "the field 'n' was written as string and is to be read as int"
    """
    if isinstance(written, list) or isinstance(wanted, list):
        return None
    is_record = [
        isinstance(schema, dict) and schema.get("type") == "record" for schema in (written, wanted)
    ]
    if all(is_record):
        there = {field["name"]: field for field in written["fields"]}
        for field in wanted["fields"]:
            name = f"{place}{field['name']}"
            names = [field["name"], *field.get("aliases", ())]
            found = next((there[alias] for alias in names if alias in there), None)
            if found is None:
                if "default" not in field:
                    return f"the field '{name}' is not in the file and has no default"
                continue
            why = disagreement(found["type"], field["type"], f"{name}.")
            if why is not None:
                return why
        was, now = (str(schema.get("name")).rpartition(".")[2] for schema in (written, wanted))
        return (
            None
            if was == now
            else f"the record was written as '{was}' and is to be read as '{now}'"
        )
    was, now = _name_of(written), _name_of(wanted)
    if was == now or now in _GROWS.get(was, ()):
        return None
    return f"the field '{place.rstrip('.')}' was written as {was} and is to be read as {now}"


def _name_of(schema: Any) -> str:
    return str(schema.get("type")) if isinstance(schema, dict) else str(schema)
