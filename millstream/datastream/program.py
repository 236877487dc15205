"""Small checks and adapters that all stream classes share when they turn calls into transformations."""

from __future__ import annotations

from typing import Any

from millstream.api.functions import Function, KeySelector
from millstream.common.typeinfo import TypeInformation, Types
from millstream.datastream.arguments import check_arguments
from millstream.errors import InvalidArgument, NotSupportedYet, UnsupportedOperation
from millstream.graph.operators import Key
from millstream.graph.transformations import calling_line

__all__ = ["as_function", "as_key", "as_type", "class_given", "not_on_keyed", "not_yet", "or_build"]


def as_type(output_type: Any) -> TypeInformation | None:
    """A declared type; a list of types means a row of them."""
    if output_type is None or isinstance(output_type, TypeInformation):
        return output_type
    if isinstance(output_type, list):
        row: TypeInformation = Types.ROW(output_type)
        return row
    msg = "an output type must come from Types"
    raise InvalidArgument(msg, got=repr(output_type), hint="for example Types.STRING()")


def as_function(call: str, function: Any, wanted: type[Function], *, plain: bool = True) -> Any:
    """The user's function if it fits: an object of the wanted class, or any callable if `plain`."""
    if isinstance(function, wanted):
        check_arguments(call, function, wanted)
        return function
    if isinstance(function, type) and issubclass(function, Function):
        raise class_given(call, function)
    if isinstance(function, Function) or not plain or not callable(function):
        msg = f"{call} needs a {wanted.__name__}" + (" or a callable" if plain else "")
        hint = f"write a class that extends {wanted.__name__}"
        if plain:
            hint = "pass the function itself, not what a call of it gives"
        raise InvalidArgument(msg, got=type(function).__name__, hint=hint)
    check_arguments(call, function, wanted)
    return function


def class_given(call: str, given: type) -> InvalidArgument:
    """The error for a class where an object of it is needed."""
    msg = f"{call} was given the class {given.__name__}, not an object of it"
    return InvalidArgument(msg, hint=f"write {given.__name__}()")


def or_build(given: Any, hint: str) -> str:
    """What to do with what is no source or sink: a builder makes one."""
    return "call build() on it" if callable(getattr(given, "build", None)) else hint


def as_key(selector: Any, key_type: Any = None, call: str = "key_by") -> Key:
    """A key by callable, KeySelector, field name or field index."""
    declared, line = as_type(key_type), calling_line()
    if isinstance(selector, bool):
        msg = f"{call} needs a selector, a field name or an index"
        raise InvalidArgument(msg, got=selector)
    if isinstance(selector, str) and not selector.isidentifier():
        msg = f"{call} was given a name that cannot be a field"
        raise InvalidArgument(msg, got=repr(selector))
    if isinstance(selector, int | str):
        return Key(field=selector, key_type=declared, declared_at=line)
    function = as_function(call, selector, KeySelector)
    return Key(selector=function, key_type=declared, declared_at=line)


def not_yet(call: str, instead: str | None = None) -> NotSupportedYet:
    """The error for a call whose feature has not landed."""
    return NotSupportedYet(f"{call} is not available yet", hint=instead)


def not_on_keyed(call: str) -> UnsupportedOperation:
    """The error for calls that a keyed stream rejects (rule 40)."""
    msg = f"{call} cannot be called on a KeyedStream"
    return UnsupportedOperation(
        msg, hint=f"call {call} on the operator before key_by, or on the one after it"
    )
