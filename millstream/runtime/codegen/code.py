"""Generated Python source, with a note for each line of whose it is.

The note is what makes errors exact at no cost: when a line of generated code raises, its number says which
operator was running and which variable held that operator's input.
"""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import BuiltinMethodType, CodeType, MethodType
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


def _identity(value: Any) -> Any:
    """What tells one bound value from another. A method is a new object each time that it is asked for."""
    if isinstance(value, MethodType):
        return id(value.__self__), id(value.__func__)
    if isinstance(value, BuiltinMethodType) and value.__self__ is not None:
        return id(value.__self__), value.__name__
    return id(value)


class _Function:
    __slots__ = ("depth", "lines", "prepared")

    def __init__(self, header: str) -> None:
        self.lines: list[tuple[str, Location | None]] = [("    " + header, None)]
        self.depth = 2
        # How many lines stand before the first loop.
        self.prepared = 0


class Code:
    """A module in the making: functions inside one factory whose parameters are the bound values."""

    def __init__(self, filename: str, title: str = "") -> None:
        self.filename = filename
        # A comment of one line, whatever names the user has given.
        self._title = "".join(c if c.isprintable() else " " for c in title or filename)
        self._functions: list[_Function] = []
        self._stack: list[_Function] = []
        self._bound: dict[str, Any] = {}
        self._names: dict[Any, str] = {}
        self._used: Counter[str] = Counter()
        self.location: Location | None = None

    def bind(self, value: Any, hint: str) -> str:
        """The name by which generated code reaches a value, the same each time: a closure cell, as fast as a local."""
        identity = _identity(value)
        name = self._names.get(identity)
        if name is None:
            name = self._names[identity] = self.name(hint)
            self._bound[name] = value
        return name

    def name(self, hint: str) -> str:
        """A new name for a function or a bound value: `send_1`, `send_2`."""
        hint += "_"
        self._used[hint] += 1
        return f"{hint}{self._used[hint]}"

    def fresh(self, hint: str = "record") -> str:
        """A new local variable: `key`, `key2`. No other function of the module has it."""
        self._used[hint] += 1
        count = self._used[hint]
        return hint if count == 1 else f"{hint}{count}"

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
    def function(self, name: str, parameters: str) -> Iterator[None]:
        """Begin a function; the lines that are added inside of the `with` are its body."""
        function = _Function(f"def {name}({parameters}):")
        self._functions.append(function)
        self._stack.append(function)
        yield
        if len(function.lines) == 1:
            self.line("pass")
        self._stack.pop()

    def finish(self, exports: list[str]) -> Module:
        """Compile; `exports` are the functions that `Module.build` gives back."""
        lines: list[tuple[str, Location | None]] = [
            (f"# {self._title}", None),
            (f"def make({', '.join(self._bound)}):", None),
        ]
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
