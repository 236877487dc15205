"""Which variable or attribute keeps a function from being sent to the workers.

Pickling says of what kind the object was that it could not take, but not where it found it. Here a function is taken
apart the way cloudpickle does it, one step at a time: variables of the closure, globals that it names, defaults,
attributes, items.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle

from millstream.runtime.base.text import shorten

__all__ = ["culprit_in"]

_DEPTH = 8
_PARTS = 500


def culprit_in(part: Any) -> str | None:
    """The way to the innermost object that cannot be pickled, and what that is; None if the way is not found.

    >>> import threading
    >>> lock = threading.Lock()
    >>> def guarded(value, lock=lock):
    ...     return value
    >>> culprit_in(guarded).split("<")[0]
    "the default of 'lock': "
    """
    way: list[str] = []
    seen: set[int] = set()
    while len(way) < _DEPTH:
        seen.add(id(part))
        inner = next(
            ((name, value) for name, value in _parts_of(part, seen) if not _travels(value)), None
        )
        if inner is None:
            break
        way.append(inner[0])
        part = inner[1]
    # Steps without a name, as from an object to its class, are no news.
    named = [step for step in way if step]
    return f"{' of '.join(reversed(named))}: {shorten(part)}" if named else None


def _travels(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True


def _parts_of(whole: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    for name, value in islice(_parts(whole), _PARTS):
        if id(value) not in seen:
            yield name, value


def _parts(whole: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(whole, FunctionType):
        yield from _parts_of_function(whole)
    elif isinstance(whole, MethodType):
        yield "", whole.__self__
        yield "", whole.__func__
    elif isinstance(whole, partial):
        yield "", whole.func
        yield from ((f"argument {place}", value) for place, value in enumerate(whole.args))
        yield from ((f"argument {name!r}", value) for name, value in whole.keywords.items())
    elif isinstance(whole, type):
        for name, value in vars(whole).items():
            yield f"{whole.__name__}.{name}", getattr(value, "__func__", value)
    elif isinstance(whole, dict):
        yield from ((f"entry {shorten(key, 40)}", value) for key, value in whole.items())
    elif isinstance(whole, list | tuple | set | frozenset):
        yield from ((f"item {place}", value) for place, value in enumerate(whole))
    elif not isinstance(whole, ModuleType):
        # Where the plan keeps a function is not the user's business.
        ours = type(whole).__module__.startswith("millstream.graph.")
        for name, value in _attributes(whole):
            yield "" if ours else f"attribute {name!r}", value
        yield "", type(whole)


def _attributes(whole: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(whole, "__dict__", {}).items()
    for slot in getattr(type(whole), "__slots__", ()):
        if hasattr(whole, slot):
            yield slot, getattr(whole, slot)


def _parts_of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"variable {name!r}", cell.cell_contents
        except ValueError:
            # It has no value yet.
            continue
    for name in _names_in(code):
        if name in function.__globals__:
            yield f"global variable {name!r}", function.__globals__[name]
    last = code.co_varnames[: code.co_argcount][-len(function.__defaults__ or ()) :]
    for name, value in zip(last, function.__defaults__ or (), strict=False):
        yield f"the default of {name!r}", value
    for name, value in (function.__kwdefaults__ or {}).items():
        yield f"the default of {name!r}", value


def _names_in(code: CodeType) -> Iterator[str]:
    """The names of globals that a function may use, and those of functions inside of it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
