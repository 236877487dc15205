"""pdb for a replay: it shows the user's frames and stops in the user's functions, and nowhere in between."""

from __future__ import annotations

import bdb
import dataclasses
import pdb  # noqa: T100 - the debugger is what this is for
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, TypeVar

from millstream.api.functions import Function
from millstream.errors import UnsupportedOperation
from millstream.graph.stream_graph import StreamNode

__all__ = ["Left", "ReplayDebugger", "entry_points", "where_raised"]

Result = TypeVar("Result")

_PACKAGE = f"{Path(__file__).parents[1]}/"
# Methods that are not about records.
_AROUND = {"open", "close", "initialize_state", "snapshot_state", "get_producer_type", "flush"}


def _is_ours(frame: FrameType) -> bool:
    """True of Millstream's own frames, and of generated code."""
    name = frame.f_code.co_filename
    return name.startswith((_PACKAGE, "<millstream chain"))


class Left(BaseException):
    """The user has left the debugger. Not an `Exception`, which would be taken for a function's failure."""


class ReplayDebugger(pdb.Pdb):
    """A debugger to whom Millstream is not there."""

    def __init__(self) -> None:
        super().__init__(nosigint=True)
        # By file and first line, the functions to stop in. Lambdas may share both with others, and their name too.
        self._wanted: dict[tuple[str, int], list[CodeType]] = {}

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        """What happens in a frame."""
        try:
            return super().trace_dispatch(frame, event, arg)
        except bdb.BdbQuit:
            raise Left from None

    def stop_here(self, frame: FrameType) -> bool:
        """Never inside of Millstream: a step out of a user's function leads to the next one."""
        return not _is_ours(frame) and super().stop_here(frame)

    def break_here(self, frame: FrameType) -> bool:
        """Not in a neighbour of the function that is meant, on the same line."""
        code = frame.f_code
        wanted = self._wanted.get((code.co_filename, code.co_firstlineno), [code])
        return any(code == each for each in wanted) and super().break_here(frame)

    def get_stack(
        self, f: FrameType | None, t: TracebackType | None
    ) -> tuple[list[tuple[FrameType, int]], int]:
        """The user's frames; after a failure, at the one of the function itself, not of what it has called."""
        stack, at = super().get_stack(f, t)
        own = [entry for entry in stack if not _is_ours(entry[0])]
        if not own:
            return stack, at
        if f is not None:
            return own, len(own) - 1
        file = own[0][0].f_code.co_filename
        return own, max(n for n, (frame, _) in enumerate(own) if frame.f_code.co_filename == file)

    def run_until_break(self, call: Callable[[], Result]) -> Result:
        """Call; stop at breakpoints only."""
        self.reset()
        self.botframe = sys._getframe()
        self.set_continue()
        before = sys.gettrace()
        sys.settrace(self.trace_dispatch)
        try:
            return call()
        finally:
            sys.settrace(before)

    def look_at(self, error: BaseException) -> None:
        """Let the user look around where an error was raised."""
        self.reset()
        self.interaction(None, where_raised(error).__traceback__)

    def break_at(self, node: StreamNode) -> None:
        """Stop whenever a function of an operator is called."""
        codes = list(entry_points(node))
        for code in codes:
            self._wanted.setdefault((code.co_filename, code.co_firstlineno), []).append(code)
            problem = self.set_break(code.co_filename, code.co_firstlineno, funcname=code.co_name)
            if problem:
                raise UnsupportedOperation(
                    f"the debugger cannot stop in a function of '{node.name}'", cause=problem
                )
        if not codes:
            raise UnsupportedOperation(
                f"'{node.name}' has no function of yours to stop in",
                declared_at=node.declared_at,
                hint="name an operator that has one: millstream replay without options lists all",
            )


def where_raised(error: BaseException) -> BaseException:
    """Of an error and its causes, the first that was raised in a user's function, or in what it called; else the
    last."""
    causes = [error]
    while (came_from := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(came_from)
    return next((each for each in causes if _leads_to_user(each)), causes[-1])


def _leads_to_user(error: BaseException) -> bool:
    """True if the traceback leads from Millstream into the user's code."""
    trace, ours = error.__traceback__, False
    while trace is not None:
        if not _is_ours(trace.tb_frame) and ours:
            return True
        ours = ours or _is_ours(trace.tb_frame)
        trace = trace.tb_next
    return False


def entry_points(node: StreamNode) -> Iterator[CodeType]:
    """The code of the functions that a user has given to an operator, without what only opens and closes them."""
    operator: Any = node.operator
    for each in dataclasses.fields(operator):
        given = getattr(operator, each.name)
        if isinstance(given, FunctionType) and not _is_of_millstream(given.__module__):
            yield given.__code__
        elif isinstance(given, Function):
            for kind in type(given).__mro__:
                if kind is not object and not _is_of_millstream(kind.__module__):
                    yield from _methods(kind)


def _methods(kind: type) -> Iterator[CodeType]:
    for name, method in vars(kind).items():
        if isinstance(method, FunctionType) and not name.startswith("__") and name not in _AROUND:
            yield method.__code__


def _is_of_millstream(module: str) -> bool:
    return module.partition(".")[0] == "millstream"
