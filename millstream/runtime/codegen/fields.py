"""Fields of records: how one is read, and how two records are combined by one (rule 46)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from millstream.common.types import Row, named_field
from millstream.errors import TypeMismatchError, told
from millstream.graph.operators import RollingOp
from millstream.runtime.wire.codec import dumps

__all__ = ["combiner_of", "field_getter", "misfit", "reader_of"]


def misfit(
    op: RollingOp, name: str, value: Any, error: Exception | None = None
) -> TypeMismatchError:
    """The error for a record that cannot be aggregated."""
    call = f"{op.kind}({op.field!r}) on '{name}'"
    try:
        field = reader_of(op.field)(value)
    except Exception:
        wanted = None
        if isinstance(op.field, int):
            fields = len(value) if isinstance(value, tuple | list | Row) else 1
            wanted = f"a position from 0 to {fields - 1}" if fields > 1 else "position 0"
        return TypeMismatchError(
            f"{call}: the record has no field {op.field!r}",
            operator=name,
            wanted=wanted,
            hint="name a field that every record has, or filter out records without it",
        )
    if error is None:
        return TypeMismatchError(
            f"{call} needs a number",
            operator=name,
            found=type(field).__name__,
            hint="turn the field into a number first, for example with map",
        )
    return TypeMismatchError(
        f"{call} cannot combine the record with the value so far",
        operator=name,
        cause=told(error),
        hint=f"make field {op.field!r} of the same type in every record of a key",
    )


def reader_of(field: int | str) -> Callable[[Any], Any]:
    """Reads a field of a record; a value that is no record has only position 0."""
    if isinstance(field, str):
        return field_getter(field)

    def at(value: Any) -> Any:
        if isinstance(value, tuple | list | Row):
            return value[field]
        if field == 0:
            return value
        raise IndexError(field)

    return at


def _replacer(field: int | str) -> Callable[[Any, Any], Any]:
    """Gives a copy of a record with one field changed."""

    def replace(value: Any, new: Any) -> Any:
        if type(value) is tuple:
            assert isinstance(field, int)
            return (*value[:field], new, *value[field + 1 :])
        if isinstance(value, Row | list) or (isinstance(value, dict) and isinstance(field, str)):
            copy = pickle.loads(dumps(value))
            copy[field] = new
            return copy
        if isinstance(value, tuple):
            fields = getattr(value, "_fields", ())
            name = fields[field] if isinstance(field, int) else field
            return value._replace(**{name: new})  # type: ignore[attr-defined]
        if isinstance(field, str):
            copy = pickle.loads(dumps(value))
            # Not setattr: the copy is ours, and a frozen dataclass would refuse.
            object.__setattr__(copy, field, new)
            return copy
        return new

    return replace


def combiner_of(op: RollingOp) -> Callable[[Any, Any], Any]:
    """What makes one record of the one so far and the next."""
    read, replace = reader_of(op.field), _replacer(op.field)
    match op.kind:
        case "sum":
            return lambda so_far, value: replace(so_far, read(so_far) + read(value))
        case "min":
            return lambda so_far, value: (
                replace(so_far, read(value)) if read(value) < read(so_far) else so_far
            )
        case "max":
            return lambda so_far, value: (
                replace(so_far, read(value)) if read(value) > read(so_far) else so_far
            )
        case "min_by":
            return lambda so_far, value: value if read(value) < read(so_far) else so_far
        case "max_by":
            return lambda so_far, value: value if read(value) > read(so_far) else so_far
    raise AssertionError(op.kind)


def field_getter(field: str) -> Callable[[Any], Any]:
    """Reads a named field of a Row, a dictionary or an object."""

    def get(value: Any) -> Any:
        if type(value) is Row:
            return named_field(value, field)
        if isinstance(value, dict):
            return value[field]
        return getattr(value, field)

    return get
