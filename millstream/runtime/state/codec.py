"""How values of a state are put, written and read, by their declared type.

**One type does all three, so that what is written can be read.** When a value is put it is made to fit the type, or
refused (`fit`): what a state holds is then of exactly that type, the same before and after a restore. For a file it is
reduced to plain data (`encode`): a Row and a dataclass to the list of its fields, a date to a number. The *schema*,
plain data too, is kept in every file, and reading goes by the schema that was found: a field added since is filled with
its default (None in a Row), one that is gone is dropped, anything else is a mismatch.

Values without a declared type, and parts of a type that stand for any object, are pickled as they are; a table with
none of them is `plain` and is read by an unpickler that knows no classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from millstream.checkpoint.statefile import TableInfo
from millstream.common.typeinfo import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    SqlTimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from millstream.common.typeinfo_python import (
    DataclassTypeInfo,
    EnumTypeInfo,
    PlainTypeInfo,
    RecordTypeInfo,
    SequenceTypeInfo,
    SetTypeInfo,
    dataclass_type,
)
from millstream.runtime.state.plain_values import LEAVES, row_decoder, row_encoder

__all__ = [
    "PICKLED",
    "SchemaMismatch",
    "ValueCodec",
    "codec_for",
    "codec_of_file",
    "entry_codec",
    "readable",
]

Convert = Callable[[Any], Any]

_OBJECT = PickledBytesTypeInfo()
_NO_TYPES: frozenset[type] = frozenset()
# Of these types a value of exactly this class needs nothing to be done to it.
_READY = {"String": str, "Boolean": bool, "Double": float, "BigInteger": int}
_BITS = {"Byte": 8, "Short": 16, "Integer": 32, "Long": 64}


class SchemaMismatch(Exception):
    """A schema that was found cannot be read as the one that is wanted."""


class ValueCodec:
    """Puts, writes and reads the values of one state.

    `fit` makes a value that is put fit, as a new one, or raises a `TypeMismatchError`; it is None if there is nothing
    to fit. `encode` is None if values are written as they are. Whoever puts many values need not call `fit` for those
    whose class is in `ready`, nor for an int from `low` to `high`.
    """

    __slots__ = ("encode", "fit", "high", "low", "name", "ready", "schema", "type_info")

    def __init__(self, name: str, schema: Any, type_info: Any, encode: Convert | None) -> None:
        self.name = name
        self.schema = schema
        self.type_info: TypeInformation | None = type_info
        self.encode = encode
        self.fit: Convert | None = None if type_info is None else type_info.converter
        self.ready, (self.low, self.high) = _NO_TYPES, (1, 0)
        if isinstance(type_info, BasicTypeInfo):
            basic = type_info.basic_type.value
            if basic in _READY:
                self.ready = frozenset({_READY[basic]})
            elif basic in _BITS:
                half = 1 << (_BITS[basic] - 1)
                self.low, self.high = -half, half - 1

    @property
    def plain(self) -> bool:
        """True if nothing in the values is pickled."""
        return self.name == "plain"

    def decoder(self, name: str, schema: Any) -> Convert | None:
        """What turns values found in a file into those of this type; None if they are already.

        Raises `SchemaMismatch`.
        """
        if self.schema is None or schema is None or isinstance(self.type_info, _Unknown):
            if (name, schema) != (self.name, self.schema):
                raise SchemaMismatch
            return None
        assert self.type_info is not None
        if name == "pickle" and isinstance(schema, str):
            # So version 0.1.0 wrote what it could not make plain.
            if schema != repr(self.type_info):
                raise SchemaMismatch
            return self.fit
        return _decoder(schema, self.type_info)


PICKLED = ValueCodec("pickle", None, None, None)


class _Unknown(TypeInformation):
    """A type of somebody else's: values are made to fit by it, and pickled."""

    def __init__(self, of: TypeInformation) -> None:
        self._of = of

    @property
    def converter(self) -> Convert:
        return self._of.converter

    def __repr__(self) -> str:
        return repr(self._of)


class _Entry(TupleTypeInfo):
    """An entry of a map state: (map key, value)."""


def codec_for(type_info: Any) -> ValueCodec:
    """The codec of a declared type.

    >>> from millstream.common.typeinfo import Types
    >>> from millstream.common.types import make_row
    >>> codec = codec_for(Types.ROW_NAMED(["id", "n"], [Types.STRING(), Types.INT()]))
    >>> codec.schema
    {'row': [['id', 'String'], ['n', 'Integer']]}
    >>> codec.fit({"n": True, "id": "a"})
    Row(id='a', n=1)
    >>> codec.encode(make_row(("id", "n"), ["a", 1]))
    ['a', 1]
    """
    kind = _type_of(type_info)
    if isinstance(kind, PickledBytesTypeInfo):
        return PICKLED
    schema = _schema(kind)
    if schema is None:
        return ValueCodec("pickle", repr(kind), _Unknown(kind), None)
    return ValueCodec("plain" if _is_plain(schema) else "pickle", schema, kind, _encoder(kind))


def entry_codec(key_type: Any, value_type: Any) -> ValueCodec:
    """The codec of a map state's entries, which are pairs."""
    key, value = codec_for(key_type), codec_for(value_type)
    if key.schema is None and value.schema is None:
        return PICKLED
    kinds = [codec.type_info or _OBJECT for codec in (key, value)]
    pair = _Entry([_OBJECT if isinstance(kind, _Unknown) else kind for kind in kinds])
    return codec_for(pair)


def codec_of_file(info: TableInfo) -> ValueCodec:
    """The codec of a table of which nothing but a file is known: dataclasses are dictionaries by field, members of
    enumerations their names."""
    schema = _schema_of(info)
    kind = None if schema is None else _type_of_schema(schema)
    return PICKLED if isinstance(kind, _Unknown) else codec_for(kind)


def readable(info: TableInfo) -> Convert:
    """What turns kept values of a table, without their time, into those that people read: pairs for entries of a map,
    rows for rows, dictionaries for dataclasses."""
    codec = codec_of_file(info)
    if codec is PICKLED:
        return _same
    return codec.decoder(info.codec, _schema_of(info)) or _same


def _schema_of(info: TableInfo) -> Any:
    schema = info.schema
    if info.kind != "map" or schema is None or (isinstance(schema, dict) and "entry" in schema):
        return schema
    # Version 0.1.0 wrote down the value's type alone.
    return {"entry": ["object", schema]}


def _type_of(declared: Any) -> TypeInformation:
    if declared is None:
        return _OBJECT
    if isinstance(declared, type) and dataclasses.is_dataclass(declared):
        return dataclass_type(declared)
    kind: TypeInformation = declared
    return kind


# -- types and schemas --------------------------------------------------------------------------------------


def _schema(kind: TypeInformation) -> Any:
    """A type as plain data; None if there is no way to write it down."""
    match kind:
        case PickledBytesTypeInfo():
            return "object"
        case BasicTypeInfo() | SqlTimeTypeInfo() | PlainTypeInfo():
            return repr(kind)
        case PrimitiveArrayTypeInfo() if kind._is_bytes():
            return "bytes"
        case RowTypeInfo():
            kinds = zip(kind.get_field_names(), kind.get_field_types(), strict=True)
            return _made("row", [[name, _schema(field_kind)] for name, field_kind in kinds])
        case TupleTypeInfo():
            name = "entry" if isinstance(kind, _Entry) else "tuple"
            return _made(name, [_schema(field_type) for field_type in kind.get_field_types()])
        case (
            ListTypeInfo() | PrimitiveArrayTypeInfo() | BasicArrayTypeInfo() | ObjectArrayTypeInfo()
        ):
            return _made("list", _schema(kind.elem_type))
        case MapTypeInfo():
            return _made("map", [_schema(kind.key_type), _schema(kind.value_type)])
        case SetTypeInfo():
            return _made(kind.made.__name__, _schema(kind.elem_type))
        case SequenceTypeInfo():
            return _made("sequence", _schema(kind.elem_type))
        case EnumTypeInfo():
            return {"enum": kind.name, "members": kind.members}
        case RecordTypeInfo():
            parts = zip(kind.names, kind.kinds, strict=True)
            made = _made("parts", [[name, _schema(part)] for name, part in parts])
            return made and {"dataclass": kind.name, **made}
    return None


def _made(name: str, parts: Any) -> Any:
    flat = (
        [part[1] if isinstance(part, list) else part for part in parts] if name in _NAMED else parts
    )
    missing = flat is None or (isinstance(flat, list) and None in flat)
    return None if missing else {name: parts}


_NAMED = ("row", "parts")
_TEXTS = ("dataclass", "enum", "members")


def _is_plain(schema: Any) -> bool:
    """True if there is no object in it."""
    if isinstance(schema, dict):
        return all(_is_plain(part) for name, part in schema.items() if name not in _TEXTS)
    if isinstance(schema, list):
        # Of a field both its name and its type.
        return all(
            _is_plain(part[1] if isinstance(part, list) and len(part) == 2 else part)
            for part in schema
        )
    return bool(schema != "object")


def _type_of_schema(schema: Any) -> TypeInformation:
    """The type that a schema was made of, as far as it can be known."""
    if isinstance(schema, str):
        return _leaf(schema)
    of = _type_of_schema
    match schema:
        case {"row": fields}:
            names = [name for name, _ in fields]
            made_up = names == [f"f{place}" for place in range(len(names))]
            return RowTypeInfo([of(part) for _, part in fields], None if made_up else names)
        case {"tuple": parts}:
            return TupleTypeInfo([of(part) for part in parts])
        case {"entry": parts}:
            return _Entry([of(part) for part in parts])
        case {"list": element}:
            return ListTypeInfo(of(element))
        case {"map": [key, value]}:
            return MapTypeInfo(of(key), of(value))
        case {"set": element}:
            return SetTypeInfo(of(element), set)
        case {"frozenset": element}:
            return SetTypeInfo(of(element), frozenset)
        case {"sequence": element}:
            return SequenceTypeInfo(of(element))
        case {"enum": name, "members": members}:
            return _Names(name, members)
        case {"dataclass": name, "parts": fields}:
            return RecordTypeInfo(
                name, [field for field, _ in fields], [of(kind) for _, kind in fields]
            )
    return _Unknown(_OBJECT)


def _leaf(name: str) -> TypeInformation:
    if name == "object":
        return _OBJECT
    if name == "bytes":
        return PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE))
    if name in ("Duration", "Uuid"):
        return PlainTypeInfo(name)
    for kind in (SqlTimeTypeInfo.DATE(), SqlTimeTypeInfo.TIME(), SqlTimeTypeInfo.TIMESTAMP()):
        if repr(kind) == name:
            return kind
    basic = [kind for kind in BasicType if kind.value == name]
    if not basic:
        return _Unknown(_OBJECT)
    return BasicTypeInfo.INSTANT_TYPE_INFO() if name == "Instant" else BasicTypeInfo(basic[0])


class _Names(EnumTypeInfo):
    """Members of an enumeration that is not known: their names."""

    def __init__(self, name: str, members: list[str]) -> None:
        self.name = name
        self.members = members

    def convert(self, value: Any) -> Any:
        member = getattr(value, "name", value)
        if value is None or member in self.members:
            return None if value is None else member
        from millstream.common.typeinfo_convert import misfit

        raise misfit(value, repr(self))

    def _parts(self) -> tuple[Any, ...]:
        return self.name, tuple(self.members)


# -- writing --------------------------------------------------------------------------------------------------


def _encoder(kind: TypeInformation) -> Convert | None:
    """What makes a value that fits plain; None if it is."""
    match kind:
        case PickledBytesTypeInfo():
            return None
        case BasicTypeInfo() | SqlTimeTypeInfo() | PlainTypeInfo():
            leaf = LEAVES.get(repr(kind))
            return None if leaf is None else _unless_none(leaf[0])
        case PrimitiveArrayTypeInfo() if kind._is_bytes():
            return None
        case RowTypeInfo():
            return _unless_none(
                row_encoder([_encoder(field_type) for field_type in kind.get_field_types()])
            )
        case TupleTypeInfo():
            parts = [_encoder(field_type) for field_type in kind.get_field_types()]
            if not any(parts):
                return None if isinstance(kind, _Entry) else _unless_none(list)
            steps = [encode or _same for encode in parts]
            return _unless_none(
                lambda value: [step(item) for step, item in zip(steps, value, strict=True)]
            )
        case MapTypeInfo():
            key, item = _encoder(kind.key_type), _encoder(kind.value_type)
            if key is None and item is None:
                return None
            key_of, item_of = key or _same, item or _same
            # Not a dictionary: what a key becomes need not be hashable.
            return _unless_none(lambda value: [[key_of(k), item_of(v)] for k, v in value.items()])
        case _Names():
            return None
        case EnumTypeInfo():
            return _unless_none(lambda value: value.name)
        case DataclassTypeInfo():
            names, steps = kind.names, [_encoder(field_kind) or _same for field_kind in kind.kinds]
            pairs = list(zip(names, steps, strict=True))
            return _unless_none(lambda value: [step(getattr(value, name)) for name, step in pairs])
        case RecordTypeInfo():
            names, steps = kind.names, [_encoder(field_kind) or _same for field_kind in kind.kinds]
            pairs = list(zip(names, steps, strict=True))
            return _unless_none(lambda value: [step(value[name]) for name, step in pairs])
    inner = _encoder(kind.elem_type)  # type: ignore[attr-defined]
    if isinstance(kind, SetTypeInfo | SequenceTypeInfo):
        each = inner or _same
        return _unless_none(lambda value: [each(item) for item in value])
    return None if inner is None else _unless_none(lambda value: [inner(item) for item in value])


def _same(value: Any) -> Any:
    return value


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


# -- reading ----------------------------------------------------------------------------------------------------


def _decoder(schema: Any, wanted: TypeInformation) -> Convert | None:
    """What makes a plain value one of the wanted type; None if it is."""
    if isinstance(wanted, PickledBytesTypeInfo):
        if schema != "object":
            raise SchemaMismatch
        return None
    if schema == "object":
        # The part was not declared when it was written.
        return wanted.converter
    match wanted:
        case BasicTypeInfo() | SqlTimeTypeInfo() | PlainTypeInfo():
            if schema != repr(wanted):
                raise SchemaMismatch
            leaf = LEAVES.get(schema)
            return None if leaf is None else _unless_none(leaf[1])
        case PrimitiveArrayTypeInfo() if wanted._is_bytes():
            if schema != "bytes":
                raise SchemaMismatch
            return None
        case RowTypeInfo():
            return _unless_none(_row(_part(schema, "row"), wanted))
        case _Entry():
            return _entry(schema, wanted)
        case TupleTypeInfo():
            readers = _all(_part(schema, "tuple"), wanted.get_field_types())
            return _unless_none(
                lambda value: tuple(read(item) for read, item in zip(readers, value, strict=True))
            )
        case MapTypeInfo():
            parts = _part(schema, "map")
            key, item = _all(parts, [wanted.key_type, wanted.value_type])
            if key is _same and item is _same:
                return None
            return _unless_none(lambda value: {key(k): item(v) for k, v in _pairs(value)})
        case EnumTypeInfo():
            if not set(_part(schema, "members")) <= set(wanted.members):
                raise SchemaMismatch
            return None if isinstance(wanted, _Names) else _unless_none(wanted.enum.__getitem__)
        case RecordTypeInfo():
            return _unless_none(_record(schema, wanted))
        case SetTypeInfo():
            made = wanted.made
            each = _decoder(_part(schema, made.__name__), wanted.elem_type) or _same
            return _unless_none(lambda value: made(each(item) for item in value))
        case SequenceTypeInfo():
            each = _decoder(_part(schema, "sequence"), wanted.elem_type) or _same
            return _unless_none(lambda value: tuple(each(item) for item in value))
    inner = _decoder(_part(schema, "list"), wanted.elem_type)  # type: ignore[attr-defined]
    return None if inner is None else _unless_none(lambda value: [inner(item) for item in value])


def _part(schema: Any, name: str) -> Any:
    if not isinstance(schema, dict) or name not in schema:
        raise SchemaMismatch
    return schema[name]


def _all(schemas: list[Any], kinds: list[TypeInformation]) -> list[Convert]:
    if len(schemas) != len(kinds):
        raise SchemaMismatch
    return [_decoder(a, b) or _same for a, b in zip(schemas, kinds, strict=True)]


def _pairs(value: Any) -> Any:
    return value.items() if isinstance(value, dict) else value


def _row(fields: list[list[Any]], wanted: RowTypeInfo) -> Convert:
    places = {name: place for place, (name, _) in enumerate(fields)}
    names = tuple(wanted.get_field_names())
    steps: list[tuple[int | None, Convert]] = []
    for name, kind in zip(names, wanted.get_field_types(), strict=True):
        place = places.get(name)
        steps.append((place, _same if place is None else _decoder(fields[place][1], kind) or _same))
    if all(place is None for place, _ in steps) and fields:
        raise SchemaMismatch
    return row_decoder(names, len(fields), steps)


def _entry(schema: Any, wanted: _Entry) -> Convert | None:
    key, item = wanted.get_field_types()
    if not isinstance(schema, dict) or "entry" not in schema:
        # Version 0.1.0 wrote down the value's type alone, and keys as they were.
        read, fit = _decoder(schema, item) or _same, key.converter
        return lambda entry: (fit(entry[0]), read(entry[1]))
    read_key, read_item = _all(schema["entry"], [key, item])
    if read_key is _same and read_item is _same:
        return None
    return lambda entry: (read_key(entry[0]), read_item(entry[1]))


def _record(schema: Any, wanted: RecordTypeInfo) -> Convert:
    if "fields" in schema and "parts" not in schema and isinstance(wanted, DataclassTypeInfo):
        return _record_of_0_1_0(schema, wanted)
    parts = _part(schema, "parts")
    places = {name: place for place, (name, _) in enumerate(parts)}
    defaults = _defaults(wanted)
    steps: list[Callable[[list[Any]], Any]] = []
    for name, kind in zip(wanted.names, wanted.kinds, strict=True):
        place = places.get(name)
        if place is not None:
            steps.append(_at(place, _decoder(parts[place][1], kind) or _same))
        elif name in defaults:
            steps.append(defaults[name])
        else:
            raise SchemaMismatch
    if isinstance(wanted, DataclassTypeInfo):
        make = wanted.make
        return lambda value: make([step(value) for step in steps])
    names = wanted.names
    return lambda value: dict(zip(names, [step(value) for step in steps], strict=True))


def _at(place: int, read: Convert) -> Callable[[list[Any]], Any]:
    return lambda value: read(value[place])


def _defaults(wanted: RecordTypeInfo) -> dict[str, Callable[[list[Any]], Any]]:
    if not isinstance(wanted, DataclassTypeInfo):
        return {}
    made: dict[str, Callable[[list[Any]], Any]] = {}
    # Not by identity: a class of a script comes to the workers with a mark of its own for what has no default.
    missing = type(dataclasses.MISSING)
    for field in dataclasses.fields(wanted.cls):
        factory: Any = field.default_factory
        if not isinstance(field.default, missing):
            made[field.name] = _always(field.default)
        elif not isinstance(factory, missing):
            made[field.name] = _fresh(factory)
    return made


def _always(default: Any) -> Convert:
    return lambda _: default


def _fresh(factory: Callable[[], Any]) -> Convert:
    return lambda _: factory()


def _record_of_0_1_0(schema: Any, wanted: DataclassTypeInfo) -> Convert:
    """Version 0.1.0 wrote dictionaries of plain values, and the annotations as text."""
    fields = dict(schema["fields"])
    defaults = _defaults(wanted)
    for field in dataclasses.fields(wanted.cls):
        hint = field.type
        text = hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))
        if fields.get(field.name, text) != text:
            raise SchemaMismatch
        if field.name not in fields and field.name not in defaults:
            raise SchemaMismatch
    return lambda value: wanted.make(
        [value[name] if name in fields else defaults[name](value) for name in wanted.names]
    )
