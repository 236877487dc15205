"""Functions that do not take what they are called with are refused where they are given, not at their first record."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import Parameter, Signature, signature
from typing import Any

from millstream.api.functions import Function, Partitioner, SinkFunction
from millstream.errors import InvalidArgument

__all__ = ["check_arguments"]

# Called in more than one way, or by others.
_LEFT_OUT = (SinkFunction, Partitioner)


def check_arguments(call: str, function: Any, wanted: type[Function]) -> None:
    """Raise if a method of a function object, or a plain function, cannot take the arguments that it will get."""
    if issubclass(wanted, _LEFT_OUT):
        return
    if isinstance(function, wanted):
        for name in _methods(wanted):
            if getattr(type(function), name) is not getattr(wanted, name):
                subject = f"{name} of {type(function).__name__}"
                _check(subject, getattr(function, name), _names(getattr(wanted, name)))
    elif len(wanted.__abstractmethods__) == 1:
        (name,) = wanted.__abstractmethods__
        _check(f"the function of {call}", function, _names(getattr(wanted, name)))


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
