"""Recognizes functions that only take a field, so that generated code can take it without a call.

`lambda pair: pair[0]` is the key selector of most programs, and it runs twice for every record: as a call it costs
some 45 ns each time, as `v[0]` some 10. A function is recognized by comparing its bytecode with that of the same lambda
written here, by the same interpreter, so nothing is guessed.
"""

from __future__ import annotations

from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FunctionType, MethodType
from typing import Any

__all__ = ["pair_of", "subscript_of", "timestamp_subscript_of"]

# From Python 3.14 on, small numbers are part of the bytecode and not among the constants.
_SMALL = range(8)

# The flags that make a function another kind of function; the rest tell where it was written.
_KIND = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


def subscript_of(function: Any) -> int | str | None:
    """The constant c if `function` is ``lambda v: v[c]``, else None.

    >>> (
    ...     subscript_of(lambda pair: pair[1]),
    ...     subscript_of(lambda d: d["k"]),
    ...     subscript_of(lambda v: v),
    ... )
    (1, 'k', None)
    """
    return _subscript(function, "v")


def pair_of(function: Any) -> int | str | None:
    """The constant c if `function` is ``lambda v: (v, c)``, else None.

    >>> pair_of(lambda word: (word, 1)), pair_of(lambda word: (1, word))
    (1, None)
    """
    return _constant(function, "v", "(v, {})")


def timestamp_subscript_of(method: Any) -> int | str | None:
    """The constant c if `method` is an ``extract_timestamp`` that only gives ``value[c]``, else None.

    >>> class Second:
    ...     def extract_timestamp(self, value, record_timestamp):
    ...         return value[1]
    >>> timestamp_subscript_of(Second().extract_timestamp)
    1
    """
    return _subscript(method.__func__, "self, v, t") if type(method) is MethodType else None


def _subscript(function: Any, parameters: str) -> int | str | None:
    return _constant(function, parameters, "v[{}]")


def _constant(function: Any, parameters: str, body: str) -> int | str | None:
    if type(function) is not FunctionType or function.__defaults__ or function.__closure__:
        return None
    code = function.__code__
    for constant in (*code.co_consts, *_SMALL):
        if type(constant) in (int, str) and _same(code, _template(constant, parameters, body)):
            found: int | str = constant
            return found
    return None


def _template(constant: int | str, parameters: str, body: str) -> CodeType:
    made: FunctionType = eval(f"lambda {parameters}: {body.format(repr(constant))}")
    return made.__code__


def _same(one: CodeType, other: CodeType) -> bool:
    return (
        one.co_code == other.co_code
        # The first is None or the documentation, which the code does not use.
        and one.co_consts[1:] == other.co_consts[1:]
        and one.co_names == other.co_names
        and one.co_argcount == other.co_argcount
        and one.co_kwonlyargcount == other.co_kwonlyargcount
        and one.co_flags & _KIND == other.co_flags & _KIND
    )
