"""How values of a state are written, by their declared type, and how those of an earlier program are read.

A declared type becomes a *schema*, plain data that is kept in every file. Values are reduced to plain ones: a Row to
the list of its fields, a dataclass to a dictionary by field. Reading goes by the schema that was found: a field added
since is filled with its default (None in a Row), one that is gone is dropped, anything else is a mismatch. Values
without a declared type are pickled as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from millstream.checkpoint.statefile import TableInfo
from millstream.common.typeinfo import (
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from millstream.common.types import Row, make_row

__all__ = ["PICKLED", "SchemaMismatch", "ValueCodec", "codec_for", "readable", "writable"]

Convert = Callable[[Any], Any]

_NOT_PLAIN = {"BigDecimal", "Instant"}


class SchemaMismatch(Exception):
    """A schema that was found cannot be read as the one that is wanted."""


class ValueCodec:
    """Writes and reads the values of one state. `encode` is None if values are written as they are."""

    __slots__ = ("encode", "name", "schema", "type_info")

    def __init__(self, name: str, schema: Any, type_info: Any, encode: Convert | None) -> None:
        self.name = name
        self.schema = schema
        self.type_info = type_info
        self.encode = encode

    def decoder(self, name: str, schema: Any) -> Convert | None:
        """What turns values found in a file into those of this type; None if they are already.

        Raises `SchemaMismatch`.
        """
        if name == "pickle" and self.name == "pickle":
            if schema != self.schema:
                raise SchemaMismatch
            return None
        if name != self.name:
            raise SchemaMismatch
        return _decoder(schema, self.type_info)


PICKLED = ValueCodec("pickle", None, None, None)


def codec_for(type_info: Any) -> ValueCodec:
    """The codec of a declared type.

    >>> from millstream.common.typeinfo import Types
    >>> codec = codec_for(Types.ROW_NAMED(["id", "n"], [Types.STRING(), Types.INT()]))
    >>> codec.schema
    {'row': [['id', 'String'], ['n', 'Integer']]}
    >>> codec.encode(make_row(("id", "n"), ["a", 1]))
    ['a', 1]
    """
    if type_info is None:
        return PICKLED
    schema = _schema(type_info)
    if schema is None:
        text = repr(type_info)
        return ValueCodec("pickle", None if text.startswith("Pickled") else text, type_info, None)
    return ValueCodec("plain", schema, type_info, _encoder(type_info))


def _schema(kind: Any) -> Any:
    """The schema of a type whose values can be made plain, else None."""
    if isinstance(kind, BasicTypeInfo):
        name = kind.basic_type.value
        return None if name in _NOT_PLAIN else name
    if isinstance(kind, RowTypeInfo):
        fields = [
            [name, _schema(one)]
            for name, one in zip(kind.get_field_names(), kind.get_field_types(), strict=True)
        ]
        return None if any(one is None for _, one in fields) else {"row": fields}
    if isinstance(kind, TupleTypeInfo):
        parts = [_schema(one) for one in kind.get_field_types()]
        return None if None in parts else {"tuple": parts}
    if isinstance(kind, ListTypeInfo):
        element = _schema(_element(kind))
        return None if element is None else {"list": element}
    if isinstance(kind, MapTypeInfo):
        key, value = (_schema(one) for one in kind._parts())
        return None if key is None or value is None else {"map": [key, value]}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        fields = [[field.name, _annotation(field.type)] for field in dataclasses.fields(kind)]
        return {"dataclass": kind.__qualname__, "fields": fields}
    return None


def _element(kind: ListTypeInfo) -> TypeInformation:
    element: TypeInformation = kind._parts()[0]
    return element


def _annotation(annotation: Any) -> str:
    return (
        annotation
        if isinstance(annotation, str)
        else getattr(annotation, "__name__", str(annotation))
    )


def _encoder(kind: Any) -> Convert | None:
    """What makes a value plain; None if it is."""
    if isinstance(kind, BasicTypeInfo):
        return None
    if isinstance(kind, RowTypeInfo | TupleTypeInfo):
        parts = [_encoder(one) for one in kind.get_field_types()]
        if not any(parts):
            return lambda value: None if value is None else list(value)
        return lambda value: (
            None
            if value is None
            else [
                one if enc is None or one is None else enc(one)
                for enc, one in zip(parts, value, strict=True)
            ]
        )
    if isinstance(kind, ListTypeInfo):
        inner = _encoder(_element(kind))
        if inner is None:
            return None
        return lambda value: None if value is None else [inner(one) for one in value]
    if isinstance(kind, MapTypeInfo):
        key, item = (_encoder(one) or _same for one in kind._parts())
        return lambda value: None if value is None else {key(k): item(v) for k, v in value.items()}
    names = [field.name for field in dataclasses.fields(kind)]
    return lambda value: None if value is None else {name: getattr(value, name) for name in names}


def _same(value: Any) -> Any:
    return value


def _decoder(schema: Any, wanted: Any) -> Convert | None:
    if isinstance(wanted, BasicTypeInfo):
        if schema != _schema(wanted):
            raise SchemaMismatch
        return None
    if isinstance(wanted, RowTypeInfo):
        return _row_decoder(_part(schema, "row"), wanted)
    if isinstance(wanted, TupleTypeInfo):
        parts, kinds = _part(schema, "tuple"), wanted.get_field_types()
        if len(parts) != len(kinds):
            raise SchemaMismatch
        readers = [_decoder(a, b) or _same for a, b in zip(parts, kinds, strict=True)]
        return lambda value: (
            None if value is None else tuple(r(v) for r, v in zip(readers, value, strict=True))
        )
    if isinstance(wanted, ListTypeInfo):
        inner = _decoder(_part(schema, "list"), _element(wanted))
        if inner is None:
            return None
        return lambda value: None if value is None else [inner(one) for one in value]
    if isinstance(wanted, MapTypeInfo):
        key, item = (
            _decoder(a, b) or _same
            for a, b in zip(_part(schema, "map"), wanted._parts(), strict=True)
        )
        return lambda value: None if value is None else {key(k): item(v) for k, v in value.items()}
    return _dataclass_decoder(schema, wanted)


def _part(schema: Any, name: str) -> Any:
    if not isinstance(schema, dict) or name not in schema:
        raise SchemaMismatch
    return schema[name]


def _row_decoder(found: list[list[Any]], wanted: RowTypeInfo) -> Convert:
    places = {name: place for place, (name, _) in enumerate(found)}
    names = tuple(wanted.get_field_names())
    steps: list[tuple[int | None, Convert]] = []
    for name, kind in zip(names, wanted.get_field_types(), strict=True):
        place = places.get(name)
        steps.append((place, _same if place is None else _decoder(found[place][1], kind) or _same))
    if all(place is None for place, _ in steps) and found:
        raise SchemaMismatch
    return lambda value: (
        None
        if value is None
        else make_row(names, [None if p is None else read(value[p]) for p, read in steps])
    )


def _dataclass_decoder(schema: Any, wanted: Any) -> Convert:
    found = dict(_part(schema, "fields"))
    known = []
    for field in dataclasses.fields(wanted):
        if field.name in found:
            if found[field.name] != _annotation(field.type):
                raise SchemaMismatch
            known.append(field.name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise SchemaMismatch
    return lambda value: None if value is None else wanted(**{name: value[name] for name in known})


def readable(info: TableInfo) -> Convert:
    """What turns kept values of a table into those that people read: rows for rows, dictionaries for dataclasses,
    without the time that stands beside values with time-to-live."""
    shown = _shown(info.schema) if info.codec == "plain" else _same
    if info.kind == "map":
        bare = shown
        shown = lambda entry: (entry[0], bare(entry[1]))  # noqa: E731
    if info.ttl:
        timeless = shown
        return lambda pair: timeless(pair[0])
    return shown


def writable(info: TableInfo) -> Callable[[Any, Any], Any]:
    """The way back, for a value and the kept one that it replaces, whose time it gets."""
    kept = _kept if info.codec == "plain" else _same
    if info.ttl:
        return lambda value, before: (kept(value), before[1] if before is not None else 0)
    return lambda value, before: kept(value)


def _shown(schema: Any) -> Convert:
    if isinstance(schema, dict) and "row" in schema:
        names = tuple(name for name, _ in schema["row"])
        parts = [_shown(part) for _, part in schema["row"]]
        return lambda value: (
            None
            if value is None
            else make_row(names, [read(one) for read, one in zip(parts, value, strict=True)])
        )
    if isinstance(schema, dict) and "tuple" in schema:
        return lambda value: None if value is None else tuple(value)
    return _same


def _kept(value: Any) -> Any:
    if isinstance(value, Row):
        return [_kept(one) for one in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return list(value) if isinstance(value, tuple) else value
