"""The user's functions of a window operator: how each kind is called, and which of them there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

from millstream.api.functions import AggregateFunction, Function, ReduceFunction
from millstream.api.trigger import Trigger
from millstream.api.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from millstream.graph.operators import WindowOp
from millstream.runtime.base.recognize import keeps_nothing
from millstream.runtime.base.several import several
from millstream.runtime.state.keyed_state import KeyContext
from millstream.runtime.state.table import ATOMIC, MISSING, isolate
from millstream.runtime.windows.contexts import FiringContext

__all__ = ["Incremental", "caller", "combined_by", "functions_in"]


def caller(
    op: WindowOp, context: FiringContext, keys: KeyContext
) -> Callable[[Any, list[Any]], Any]:
    """What makes results of a window and its contents."""
    function = op.function
    if isinstance(function, ProcessWindowFunction):
        process = several(function.process)
        return lambda window, inputs: process(keys.key, context, inputs)
    if isinstance(function, ProcessAllWindowFunction):
        process_all = several(function.process)
        return lambda window, inputs: process_all(context, inputs)
    if isinstance(function, WindowFunction):
        apply = several(function.apply)
        return lambda window, inputs: apply(keys.key, window, inputs)
    if isinstance(function, AllWindowFunction):
        return several(function.apply)
    # Without a function the result of the incremental one is the window's.
    return lambda window, inputs: inputs


class Incremental:
    """A reduce or aggregate function for those who keep one value per window. `fresh` gives what the first record is
    added to; `add` takes that, `reduce` does not. What a function gives and may have kept is copied (rule 45)."""

    __slots__ = ("add", "first", "fresh", "merge", "reduce", "result")

    def __init__(self, function: Any) -> None:
        self.add: Callable[[Any, Any], Any]
        self.merge: Callable[[Any, Any], Any]
        self.result: Callable[[Any], Any]
        self.first: Callable[[Any], Any]
        self.fresh: Callable[[], Any]
        if isinstance(function, AggregateFunction):
            add, create = _own(function.add), _own(function.create_accumulator)
            self.add, self.fresh = add, create
            self.merge, self.result = _own(function.merge), function.get_result
            self.first = lambda value: add(value, create())
            self.reduce: Callable[[Any, Any], Any] = self.merge
        else:
            combine: Callable[[Any, Any], Any] = _own(
                function.reduce if isinstance(function, ReduceFunction) else function
            )
            self.reduce = self.merge = combine
            self.add = lambda value, so_far: value if so_far is MISSING else combine(so_far, value)
            self.result = self.first = _itself
            self.fresh = _missing


def _own(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; one that may keep what it gives, with copies of it."""
    if keeps_nothing(function):
        return function

    def copying(*arguments: Any) -> Any:
        value = function(*arguments)
        return value if type(value) in ATOMIC else isolate(value)

    return copying


def _itself(value: Any) -> Any:
    return value


def _missing() -> Any:
    return MISSING


def combined_by(incremental: Any) -> Callable[[list[Any]], list[Any]] | None:
    """What an incremental function makes of a whole list: its result, or nothing (rule 34)."""
    if incremental is None:
        return None
    if isinstance(incremental, AggregateFunction):

        def aggregate(values: list[Any]) -> list[Any]:
            accumulator = incremental.create_accumulator()
            for value in values:
                accumulator = incremental.add(value, accumulator)
            return [incremental.get_result(accumulator)]

        return aggregate
    combine = incremental.reduce if isinstance(incremental, ReduceFunction) else incremental
    return lambda values: [reduce(combine, values)] if values else []


def functions_in(part: Any) -> Iterator[Function]:
    """Function objects in what describes a window: itself, or for example the function of a `DeltaTrigger`."""
    if isinstance(part, Function):
        yield part
    elif part is not None and not isinstance(part, type):
        for inner in getattr(part, "__dict__", {}).values():
            if isinstance(inner, Function | Trigger):
                yield from functions_in(inner)
