"""Functions that do not take what they are called with are refused where they are given, not at their first record."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from inspect import (
    Parameter,
    Signature,
    isasyncgenfunction,
    iscoroutinefunction,
    isgeneratorfunction,
    isroutine,
    signature,
)
from typing import Any

from millstream.api.async_functions import AsyncFunction
from millstream.api.functions import Function, Partitioner, SinkFunction
from millstream.errors import InvalidArgument

__all__ = ["check_arguments"]

# Called in more than one way, or by others.
_LEFT_OUT = (SinkFunction, Partitioner)
# Methods whose result is one value.
_GIVES_ONE = frozenset(
    "map map1 map2 filter reduce get_key join create_accumulator add get_result merge".split()
)


def check_arguments(call: str, function: Any, wanted: type[Function]) -> None:
    """Raise if a method of a function object, or a plain function, cannot take the arguments that it will get."""
    if issubclass(wanted, _LEFT_OUT):
        return
    if isinstance(function, wanted):
        for name in _methods(wanted):
            if getattr(type(function), name) is not getattr(wanted, name):
                subject = f"{name} of {type(function).__name__}"
                _check(subject, getattr(function, name), _names(getattr(wanted, name)))
                if not issubclass(wanted, AsyncFunction):
                    _check_kind(subject, getattr(function, name), name)
    elif len(wanted.__abstractmethods__) == 1:
        (name,) = wanted.__abstractmethods__
        _check(f"the function of {call}", function, _names(getattr(wanted, name)))
        _check_kind(f"the function of {call}", function, name)


def _check_kind(subject: str, function: Any, name: str) -> None:
    """Raise if a call gives an object that only a loop or an `await` would make something of."""
    known = isroutine(function) or isinstance(function, partial)
    called = function if known else type(function).__call__
    if iscoroutinefunction(called) or isasyncgenfunction(called):
        raise InvalidArgument(
            f"{subject} is async, and nobody would wait for it",
            hint="use AsyncDataStream.unordered_wait with an AsyncFunction, or write it without async",
        )
    if name in _GIVES_ONE and isgeneratorfunction(called):
        raise InvalidArgument(
            f"{subject} yields, and its result is to be one value",
            hint="return the value"
            + ("; for any number of records use flat_map" if name.startswith("map") else ""),
        )


def _methods(wanted: type[Function]) -> Iterator[str]:
    """What may be called of a function of this kind."""
    for name in dir(wanted):
        method = getattr(wanted, name)
        if not name.startswith("_") and callable(method) and not isinstance(method, type):
            yield name


def _names(method: Any) -> list[str]:
    return list(signature(method).parameters)[1:]


def _check(subject: str, function: Any, names: list[str]) -> None:
    try:
        takes = signature(function)
    except Exception:
        # A builtin that does not say what it takes, or an object that raises what it likes when it is asked.
        return
    if _fits(takes, len(names)):
        return
    collectors = {"out", "collector", "out_collector"} & set(takes.parameters)
    raise InvalidArgument(
        f"{subject} is called with ({', '.join(names)}), which it does not take",
        takes=str(takes),
        hint="yield the records: nothing collects them here"
        if collectors
        else f"let it take ({', '.join(names)})",
    )


def _fits(takes: Signature, count: int) -> bool:
    kinds = [parameter.kind for parameter in takes.parameters.values()]
    named_only = [
        parameter
        for parameter in takes.parameters.values()
        if parameter.kind is Parameter.KEYWORD_ONLY and parameter.default is Parameter.empty
    ]
    places = [
        parameter
        for parameter in takes.parameters.values()
        if parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    needed = sum(parameter.default is Parameter.empty for parameter in places)
    most = float("inf") if Parameter.VAR_POSITIONAL in kinds else len(places)
    return needed <= count <= most and not named_only
