"""Generated Python source, with a note for each line of whose it is.

The note is what makes errors exact at no cost: when a line of generated code raises, its number says which
operator was running and which variable held that operator's input.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any

__all__ = ["Code", "Location", "Module"]

# CPython allows 20 nested blocks; beyond this depth the code goes on in a function of its own.
MAX_DEPTH = 12


@dataclass(frozen=True)
class Location:
    """Whose line it is: a stream node, what it was doing, and the variable with its input.

    `declared_at` is the user's line if it is not the node's: that of a `key_by` behind it.
    """

    node: int
    role: str
    variable: str
    declared_at: Any = None


@dataclass(frozen=True)
class Module:
    """Compiled code: `make` builds the functions from the bound values."""

    source: str
    locations: dict[int, Location]
    code: CodeType
    names: tuple[str, ...]
    values: tuple[Any, ...]

    def build(self) -> Any:
        """Run the factory; gives the tuple of functions that `finish` was asked for."""
        scope: dict[str, Any] = {}
        exec(self.code, scope)
        return scope["make"](*self.values)


class _Function:
    __slots__ = ("depth", "lines", "prepared")

    def __init__(self, header: str) -> None:
        self.lines: list[tuple[str, Location | None]] = [("    " + header, None)]
        self.depth = 2
        # How many lines stand before the first loop.
        self.prepared = 0


class Code:
    """A module in the making: functions inside one factory whose parameters are the bound values."""

    def __init__(self, filename: str) -> None:
        self.filename = filename
        self._functions: list[_Function] = []
        self._stack: list[_Function] = []
        self._bound: dict[str, Any] = {}
        self._counter = 0
        self.location: Location | None = None

    def bind(self, value: Any, hint: str) -> str:
        """A name by which generated code reaches a value; a closure cell, as fast as a local."""
        self._counter += 1
        name = f"{hint}_{self._counter}"
        self._bound[name] = value
        return name

    def bind_once(self, value: Any, hint: str) -> str:
        """As `bind`, the same name each time for one object."""
        for name, known in self._bound.items():
            if known is value:
                return name
        return self.bind(value, hint)

    def fresh(self, hint: str = "v") -> str:
        """A new local variable."""
        self._counter += 1
        return f"{hint}{self._counter}"

    def line(self, text: str) -> None:
        """Add a line to the function at hand."""
        function = self._stack[-1]
        function.lines.append(("    " * function.depth + text, self.location))

    def prepare(self, text: str) -> None:
        """Add a line to the beginning of the function at hand, before the loop over its records."""
        function = self._stack[-1]
        function.prepared += 1
        function.lines.insert(function.prepared, ("    " * 2 + text, None))

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """A header line and an indented body."""
        self.line(header)
        function = self._stack[-1]
        function.depth += 1
        yield
        function.depth -= 1

    @property
    def deep(self) -> bool:
        """True if the body should go on in a function of its own."""
        return self._stack[-1].depth >= MAX_DEPTH

    @contextmanager
    def function(self, name: str, parameter: str) -> Iterator[None]:
        """A function of one parameter."""
        function = _Function(f"def {name}({parameter}):")
        self._functions.append(function)
        self._stack.append(function)
        yield
        if len(function.lines) == 1:
            self.line("pass")
        self._stack.pop()

    def finish(self, exports: list[str]) -> Module:
        """Compile; `exports` are the functions that `Module.build` gives back."""
        lines: list[tuple[str, Location | None]] = [(f"def make({', '.join(self._bound)}):", None)]
        for function in self._functions:
            lines.extend(function.lines)
        lines.append((f"    return ({', '.join(exports)},)", None))
        source = "\n".join(text for text, _ in lines) + "\n"
        # Registered so that tracebacks and pdb show the generated lines.
        linecache.cache[self.filename] = (
            len(source),
            None,
            source.splitlines(keepends=True),
            self.filename,
        )
        return Module(
            source=source,
            locations={i + 1: place for i, (_, place) in enumerate(lines) if place is not None},
            code=compile(source, self.filename, "exec"),
            names=tuple(self._bound),
            values=tuple(self._bound.values()),
        )
