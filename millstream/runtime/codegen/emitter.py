"""What the lines of an exchange need of the chain that they are written for."""

from __future__ import annotations

from typing import Any, Protocol

from millstream.api.functions import Function
from millstream.graph.operators import Key
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.codegen.code import Code
from millstream.runtime.wire.output import EdgeWriter

__all__ = ["Emitter"]


class Emitter(Protocol):
    """A chain in the making, as `ChainBuilder` makes it."""

    code: Code
    subtask: int

    def at(
        self, node: StreamNode, variable: str, role: str = "run", declared_at: Any = None
    ) -> None:
        """Lines from here on belong to `node`, whose input is in `variable`."""

    def stamp(self) -> str:
        """The timestamp of the record at hand, as an expression."""

    def brought_key(self, key: Key) -> str | None:
        """The variable of a key that the record at hand has brought along; None if it has not."""

    def bind_function(self, node: StreamNode, function: Any, method: str, hint: str) -> str:
        """Bind a user's function, given as an object with `method` or as a plain callable."""

    def opens(self, node: StreamNode, function: Function) -> None:
        """Have a function opened before the first record and closed after the last."""

    def append(self, writer: EdgeWriter, index: int, expression: str) -> None:
        """Append to a fixed target's list."""
