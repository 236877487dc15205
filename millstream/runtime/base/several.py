"""What a function gives that may give any number of records: a generator, a list, None; and no single record.

`return key, count` in a process function is a slip for `yield key, count`. A tuple can be iterated over, so its fields
would silently become records; it is refused, and so is everything else that is a record more often than a collection of
them (rule 52). Generators need no look.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isgeneratorfunction
from types import BuiltinFunctionType, GeneratorType, MethodDescriptorType
from typing import Any

from millstream.common.types import Row
from millstream.errors import UserFunctionError
from millstream.runtime.base.text import shorten

__all__ = ["SEVERAL", "check_several", "may_return", "several"]

SEVERAL = frozenset({list, GeneratorType})
"""The types that need no further look."""

_SINGLE = (tuple, str, bytes, bytearray, dict, Row)


def may_return(function: Any) -> bool:
    """True if a function may return what it should have yielded; a builtin such as `str.split` is what it is.

    >>> may_return(lambda line: (line, 1)), may_return(str.split)
    (True, False)
    """
    function = function.func if isinstance(function, partial) else function
    known = isinstance(function, BuiltinFunctionType | MethodDescriptorType | type)
    return not (known or isgeneratorfunction(function))


def check_several(results: Any) -> None:
    """Refuse a single record. One without fields or letters is none.

    >>> check_several(("a", 1))
    Traceback (most recent call last):
    millstream.errors.UserFunctionError: [USER_FUNCTION_FAILED] the function returned one tuple where any number of ...
    """
    if isinstance(results, _SINGLE) and len(results) > 0:
        kind = type(results).__name__
        raise UserFunctionError(
            f"the function returned one {kind} where any number of records is wanted",
            returned=shorten(results),
            hint=f"yield the record, or return it in a list; if this {kind} holds records, return a list of them",
        )


def several(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a look at what it returns if it needs one."""
    if not may_return(function):
        return function

    def checked(*arguments: Any) -> Any:
        results = function(*arguments)
        if type(results) not in SEVERAL:
            check_several(results)
        return results

    return checked
