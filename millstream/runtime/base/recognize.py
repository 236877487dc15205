"""Recognizes functions that do next to nothing, so that they need not be called, or may be called in another order.

`lambda pair: pair[0]` is the key selector of most programs, and it runs for every record: as a call it costs some
45 ns, as `v[0]` some 10. This is the one place that reads bytecode. A function is followed step by step, and what it
gives becomes an expression of its arguments: fields, constants, sums and tuples. At the first step that is none of
these, or that another version of Python has made, the function is not recognized, and is called as it is.
"""

from __future__ import annotations

import builtins
import dis
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from math import isfinite
from types import CodeType, FunctionType, MethodDescriptorType, MethodType
from typing import Any, NamedTuple

__all__ = [
    "field_of",
    "keeps_nothing",
    "kept_fields",
    "never_returns",
    "pair_of",
    "subscript_of",
    "timestamp_field_of",
    "timestamp_subscript_of",
]

# The flags that make a function another kind of function; the rest tell where it was written.
_KIND = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR

# Steps that load two variables, of Python 3.13 and of 3.14.
_TWO = ("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")


class Argument(NamedTuple):
    """One of the function's arguments."""

    place: int


class Constant(NamedTuple):
    """A constant. Not to be compared: 1, 1.0 and True are equal."""

    value: Any


class Field(NamedTuple):
    """`of[name]`."""

    of: Any
    name: Any


class Attribute(NamedTuple):
    """`of.name`."""

    of: Any
    name: str


class Sum(NamedTuple):
    """`first + second`."""

    first: Any
    second: Any


class Tuple(NamedTuple):
    """A new tuple."""

    parts: tuple[Any, ...]


def expression_of(function: Any, arguments: int) -> Any:
    """What a function of so many arguments gives, as an expression of them; None if it does anything else.

    >>> expression_of(lambda a, b: a[0] + b, 2)
    Sum(first=Field(of=Argument(place=0), name=Constant(value=0)), second=Argument(place=1))
    """
    if type(function) is not FunctionType or function.__defaults__ or function.__closure__:
        return None
    code = function.__code__
    if (
        code.co_argcount != arguments
        or code.co_kwonlyargcount
        or code.co_flags & _KIND
        or code.co_exceptiontable
    ):
        return None
    names = code.co_varnames[:arguments]
    stack: list[Any] = []
    for step in dis.get_instructions(code):
        name, value = step.opname, step.argval
        if name in ("RESUME", "NOP", "CACHE"):
            continue
        if step.is_jump_target:
            return None
        if name in ("LOAD_FAST", "LOAD_FAST_BORROW") and value in names:
            stack.append(Argument(names.index(value)))
        elif name in _TWO and {*value} <= {*names}:
            stack.extend(Argument(names.index(variable)) for variable in value)
        elif name in ("LOAD_CONST", "LOAD_SMALL_INT"):
            stack.append(Constant(value))
        elif name == "BINARY_SUBSCR" or (name == "BINARY_OP" and step.argrepr == "[]"):
            place, whole = stack.pop(), stack.pop()
            stack.append(Field(whole, place))
        elif name == "LOAD_ATTR" and type(value) is str:
            stack.append(Attribute(stack.pop(), value))
        elif name == "BINARY_OP" and step.argrepr == "+":
            second, first = stack.pop(), stack.pop()
            stack.append(Sum(first, second))
        elif name == "BUILD_TUPLE" and value:
            parts = tuple(stack[-value:])
            del stack[-value:]
            stack.append(Tuple(parts))
        elif name == "RETURN_VALUE":
            return stack.pop()
        elif name == "RETURN_CONST":
            return Constant(value)
        else:
            break
    return None


def subscript_of(function: Any) -> int | str | None:
    """The constant c if `function` is ``lambda v: v[c]``, else None.

    >>> (
    ...     subscript_of(lambda pair: pair[1]),
    ...     subscript_of(lambda d: d["k"]),
    ...     subscript_of(lambda v: v),
    ... )
    (1, 'k', None)
    """
    return _subscript(expression_of(function, 1), 0)


def timestamp_subscript_of(method: Any) -> int | str | None:
    """The constant c if `method` is an ``extract_timestamp`` that only gives ``value[c]``, else None.

    >>> class Second:
    ...     def extract_timestamp(self, value, record_timestamp):
    ...         return value[1]
    >>> timestamp_subscript_of(Second().extract_timestamp)
    1
    """
    if type(method) is not MethodType:
        return None
    return _subscript(expression_of(method.__func__, 3), 1)


def field_of(function: Any) -> tuple[str, int | str] | None:
    """How a function takes a field of its argument, if that is all it does: ("item", c) for ``lambda v: v[c]``,
    ("attribute", name) for ``lambda v: v.name``.

    >>> field_of(lambda row: row["n"]), field_of(lambda row: row.n), field_of(lambda row: row.n + 1)
    (('item', 'n'), ('attribute', 'n'), None)
    """
    return _field(expression_of(function, 1), 0)


def timestamp_field_of(method: Any) -> tuple[str, int | str] | None:
    """The same of an ``extract_timestamp``.

    >>> class At:
    ...     def extract_timestamp(self, value, record_timestamp):
    ...         return value.at
    >>> timestamp_field_of(At().extract_timestamp)
    ('attribute', 'at')
    """
    if type(method) is not MethodType:
        return None
    return _field(expression_of(method.__func__, 3), 1)


def _field(expression: Any, argument: int) -> tuple[str, int | str] | None:
    item = _subscript(expression, argument)
    if item is not None:
        return "item", item
    if type(expression) is not Attribute or type(expression.of) is not Argument:
        return None
    return ("attribute", expression.name) if expression.of.place == argument else None


def _subscript(expression: Any, argument: int) -> int | str | None:
    if (
        type(expression) is not Field
        or type(expression.of) is not Argument
        or expression.of.place != argument
    ):
        return None
    return _plain(expression.name)


def _plain(expression: Any) -> int | str | None:
    """A constant that is a whole number or text, and not a truth value."""
    if type(expression) is Constant and type(expression.value) in (int, str):
        value: int | str = expression.value
        return value
    return None


def pair_of(function: Any, v: str) -> str | None:
    """The text of the pair if `function` is ``lambda v: (v, constant)``, else None.

    >>> pair_of(lambda word: (word, 1), "v2"), pair_of(lambda word: (1, word), "v2")
    ('(v2, 1)', None)
    """
    expression = expression_of(function, 1)
    if type(expression) is not Tuple or len(expression.parts) != 2:
        return None
    first, second = expression.parts
    if type(first) is not Argument or type(second) is not Constant:
        return None
    constant = second.value
    # Those whose text is the constant again, type and sign included.
    exact = type(constant) in (int, str, bool, bytes, type(None))
    if exact or (type(constant) is float and isfinite(constant)):
        return f"({v}, {constant!r})"
    return None


def kept_fields(function: Any) -> set[int]:
    """The fields that a reduce function leaves as they are, if all it does beside that is to add up others.

    >>> kept_fields(lambda a, b: (a[0], a[1] + b[1]))
    {0}
    >>> kept_fields(lambda a, b: (a[0], a[1] + 1))
    set()
    >>> kept_fields(lambda a, b: (a[1], a[0]))
    set()
    """
    expression = expression_of(function, 2)
    if type(expression) is not Tuple:
        return set()
    kept: set[int] = set()
    for place, part in enumerate(expression.parts):
        if _is_field(part, place):
            kept.add(place)
        elif not (
            type(part) is Sum
            and _is_field(part.first, place)
            and _is_field(part.second, place)
            and part.first.of.place != part.second.of.place
        ):
            return set()
    return kept


def _is_field(expression: Any, place: int) -> bool:
    """True if the expression is a field of an argument, the one at `place`."""
    if type(expression) is not Field or type(expression.of) is not Argument:
        return False
    name = _plain(expression.name)
    return type(name) is int and name == place


def never_returns(function: Any) -> bool:
    """True if a function can only give None, or raise: one that was left empty.

    >>> def merge(acc_a, acc_b):
    ...     raise NotImplementedError
    >>> never_returns(merge), never_returns(max)
    (True, False)
    """
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & _KIND:
        return False
    before: Any = None
    for step in dis.get_instructions(code):
        if step.opname == "RETURN_CONST" and step.argval is not None:
            return False
        if step.opname == "RETURN_VALUE" and (
            # What is jumped to may return another value than the one loaded just before.
            step.is_jump_target
            or before is None
            or before.opname != "LOAD_CONST"
            or before.argval is not None
        ):
            return False
        before = step
    return True


def keeps_nothing(function: Any) -> bool:
    """True if a function is seen to keep nothing of what it is given or gives: when it has returned, nobody but the
    caller can change its result.

    It has no place to keep anything in: no closure, no use of `self`, and of the global names only constants, harmless
    builtins and functions that keep nothing either. A method that is called as one of the builtin types' is taken for
    it. Everything else may keep something; so may generators, which go on after they have given a result.

    >>> keeps_nothing(lambda line: line.lower().split()), keeps_nothing(str.split)
    (True, True)
    >>> seen = []
    >>> keeps_nothing(lambda v: seen.append(v) or v)
    False
    """
    return _keeps_nothing(function, set())


# Builtins that run no code of others later on, as `map` would, and give nothing that is kept elsewhere.
_HARMLESS = frozenset(
    getattr(builtins, name)
    for name in (
        "abs all any ascii bin bool bytes chr complex dict divmod enumerate float frozenset hash hex "
        "int isinstance len list max min oct ord pow range repr reversed round set sorted str sum tuple zip"
    ).split()
) | {
    kind
    for kind in vars(builtins).values()
    if isinstance(kind, type) and issubclass(kind, Exception)
}
_BUILTIN_TYPES = (str, bytes, int, float, complex, bool, tuple, list, dict, set, frozenset)
_METHODS = frozenset(
    name for kind in _BUILTIN_TYPES for name in dir(kind) if not name.startswith("_")
)
_KEEPING = frozenset(
    (
        "STORE_GLOBAL DELETE_GLOBAL LOAD_NAME STORE_NAME IMPORT_NAME IMPORT_FROM LOAD_BUILD_CLASS LOAD_LOCALS "
        "LOAD_FROM_DICT_OR_GLOBALS LOAD_CLASSDEREF"
    ).split()
)


def _keeps_nothing(function: Any, seen: set[CodeType]) -> bool:
    bound = type(function) is MethodType
    plain = function.__func__ if bound else function
    if type(plain) is MethodDescriptorType:
        return plain.__objclass__ in _BUILTIN_TYPES
    if type(plain) is not FunctionType:
        try:
            return plain in _HARMLESS
        except TypeError:
            return False
    defaults = (*(plain.__defaults__ or ()), *(plain.__kwdefaults__ or {}).values())
    if plain.__closure__ or not all(
        default is None or _is_constant(default) for default in defaults
    ):
        return False
    code = plain.__code__
    if code in seen:
        return True
    seen.add(code)
    # What a method does without `self` it does without the object.
    forbidden = code.co_varnames[:1] if bound else ()
    if set(forbidden) & set(code.co_cellvars):
        return False
    return _is_closed(code, forbidden, plain.__globals__, seen)


def _is_closed(
    code: CodeType, forbidden: tuple[str, ...], scope: dict[str, Any], seen: set[CodeType]
) -> bool:
    if code.co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR):
        return False
    for step in dis.get_instructions(code):
        name, value = step.opname, step.argval
        if name in _KEEPING:
            return False
        if name == "LOAD_GLOBAL":
            global_value = scope.get(value, getattr(builtins, value, _KEEPING))
            if not _is_constant(global_value) and not _keeps_nothing(global_value, seen):
                return False
        elif name in ("LOAD_METHOD", "LOAD_ATTR", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR"):
            if value not in _METHODS:
                return False
        # Also one of two variables that are loaded at once.
        elif "FAST" in name and {*forbidden} & {*(value if type(value) is tuple else (value,))}:
            return False
    return all(
        _is_closed(constant, (), scope, seen)
        for constant in code.co_consts
        if type(constant) is CodeType
    )


def _is_constant(value: Any) -> bool:
    # None is what a global variable begins with that is set later.
    return type(value) in (str, bytes, int, float, complex, bool)
