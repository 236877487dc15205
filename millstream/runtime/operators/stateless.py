"""Operators that turn one record into none, one or many: map, flat map, filter, project, and those of two inputs."""

from __future__ import annotations

from typing import Any, TypeVar

from millstream.api.functions import Function
from millstream.common.types import Row
from millstream.graph import operators as ops
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.recognize import pair_of
from millstream.runtime.base.several import may_return
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.keys import emit_current_key
from millstream.runtime.codegen.unit import OperatorUnit
from millstream.runtime.state.keyed_state import KeyContext

__all__ = [
    "CoFlatMapUnit",
    "CoMapUnit",
    "FilterUnit",
    "FlatMapUnit",
    "MapUnit",
    "ProjectUnit",
]

Op = TypeVar("Op", bound=ops.Operator)


class _WithKey(OperatorUnit[Op]):
    """A function object on a keyed stream may have keyed state, so it gets a current key; a lambda may not."""

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node)
        if self.op.keys and isinstance(self.op.user_function, Function):
            self.keys = KeyContext()

    def enter_key(self, record: str, index: int) -> None:
        """Lines that make the record's key the current one."""
        if self.keys is not None:
            context = self.code.bind(self.keys, "keys")
            emit_current_key(self.builder, self.node, self.op.keys[index], record, context)


class MapUnit(_WithKey[ops.MapOp]):
    """One record becomes one."""

    one_for_one = True

    def lines(self, record: str, index: int) -> None:
        """An assignment. A pair of the record and a constant needs no call."""
        self.enter_key(record, index)
        mapped = self.code.fresh("mapped")
        pair = pair_of(self.op.function, record)
        if pair is None:
            pair = f"{self.bind_function(self.op.function, 'map', 'map')}({record})"
        self.code.line(f"{mapped} = {pair}")
        self.emit(mapped)


class ProjectUnit(OperatorUnit[ops.ProjectOp]):
    """Some fields of a tuple or a row."""

    one_for_one = True

    def lines(self, record: str, index: int) -> None:
        """A tuple is taken apart in place, all else by a call."""
        fields = self.op.fields

        def project(value: Any) -> Any:
            if isinstance(value, Row):
                return Row(*[value[i] for i in fields])
            return tuple(value[i] for i in fields)

        code = self.code
        projected = code.fresh("projected")
        inline = "".join(f"{record}[{i}], " for i in fields)
        slow = code.bind(project, "project")
        code.line(f"{projected} = ({inline}) if type({record}) is tuple else {slow}({record})")
        self.emit(projected)


class FlatMapUnit(_WithKey[ops.FlatMapOp]):
    """One record becomes any number."""

    def lines(self, record: str, index: int) -> None:
        """A loop over the results."""
        self.enter_key(record, index)
        result = self.code.fresh("result")
        function = self.bind_function(self.op.function, "flat_map", "flat_map")
        results = f"{function}({record})"
        if may_return(getattr(self.op.function, "flat_map", self.op.function)):
            results = self.code.fresh("results")
            self.code.line(f"{results} = {function}({record})")
            self.check_results(results, "flat_map")
        with self.builder.each(f"for {result} in {results}:"):
            self.emit(result)


class FilterUnit(_WithKey[ops.FilterOp]):
    """A record goes on, or does not."""

    def lines(self, record: str, index: int) -> None:
        """An `if`."""
        self.enter_key(record, index)
        function = self.bind_function(self.op.function, "filter", "filter")
        with self.code.block(f"if {function}({record}):"):
            self.emit(record)


class CoMapUnit(_WithKey[ops.CoMapOp]):
    """A map with a method for each of two inputs; None is no result."""

    def lines(self, record: str, index: int) -> None:
        """An assignment and an `if`."""
        self.enter_key(record, index)
        mapped = self.code.fresh("mapped")
        function = self.bind_function(self.op.function, f"map{index + 1}", "map")
        self.code.line(f"{mapped} = {function}({record})")
        with self.code.block(f"if {mapped} is not None:"):
            self.emit(mapped)


class CoFlatMapUnit(_WithKey[ops.CoFlatMapOp]):
    """A flat map with a method for each of two inputs; None is no result."""

    def lines(self, record: str, index: int) -> None:
        """A loop over the results, if there are any."""
        self.enter_key(record, index)
        results, result = self.code.fresh("results"), self.code.fresh("result")
        function = self.bind_function(self.op.function, f"flat_map{index + 1}", "flat_map")
        self.code.line(f"{results} = {function}({record})")
        with self.code.block(f"if {results} is not None:"):
            self.check_results(results, f"flat_map{index + 1}")
            with self.builder.each(f"for {result} in {results}:"):
                self.emit(result)
