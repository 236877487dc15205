"""Rolling aggregations: reduce, sum, min, max, min_by, max_by (Flink's `StreamGroupedReduceOperator`).

The state is one value per key in a `Table`. Generated code looks at this epoch's changes first, then at the version
before it, and writes to the changes only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from millstream.api.functions import Function
from millstream.common.constants import NO_TIME
from millstream.graph.operators import Operator, ReduceOp, RollingOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.recognize import keeps_nothing
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.fields import combiner_of, misfit, reader_of
from millstream.runtime.codegen.keys import emit_canonical, emit_current_key
from millstream.runtime.codegen.outlet import Outlet
from millstream.runtime.codegen.ownership import method_of
from millstream.runtime.codegen.unit import OperatorUnit
from millstream.runtime.state.keyed_state import KeyContext
from millstream.runtime.state.table import MISSING, isolate

__all__ = [
    "ReduceUnit",
    "RollingUnit",
    "isolate",
]

Op = TypeVar("Op", bound=Operator)


class _ValuePerKey(OperatorUnit[Op]):
    """Keeps one value for each key, and emits it whenever it changes; in a batch job once, at the end (rule 47)."""

    def __init__(self, builder: ChainBuilder, node: StreamNode, state: str) -> None:
        super().__init__(builder, node)
        self._table = self.table(state)
        self._results = Outlet()
        # In a batch job a key has one result.
        self.one_for_one = not builder.settings.batch

    def look_up(self, record: str, read: Callable[[Any, Any], Any]) -> tuple[str, str, str]:
        """Lines that find the value so far, with `read` for the version before this epoch; the names of the key, of the
        value so far, and of the dictionary of changes."""
        code, key = self.code, self.op.keys[0]
        if self.keys is None:
            canon = emit_canonical(self.builder, self.node, key, record)
        else:
            context = code.bind(self.keys, "keys")
            canon = emit_current_key(self.builder, self.node, key, record, context)
        self.at(record)
        changes = self._table.changes
        so_far, missing = code.fresh("so_far"), code.bind(MISSING, "MISSING")
        code.line(f"{so_far} = {code.bind(changes.get, 'new_value')}({canon}, {missing})")
        with code.block(f"if {so_far} is {missing}:"):
            code.line(f"{so_far} = {code.bind(read, 'old_value')}({canon}, {missing})")
        return canon, so_far, code.bind(changes, "new_values")

    def write_entries(self) -> None:
        """In a batch job, the function that is called for each key's result."""
        if self.builder.settings.batch:
            with self.builder.entry("result", "result", self._results.attach) as result:
                self.at(result, "result")
                self.emit(result, own=True)

    def end_key(self) -> None:
        """All records of the keys at hand are there."""
        for value in self._table.changes.values():
            self._results(value, NO_TIME)


def _copy_of(read: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Reads copies: whoever changes what it is given must not change the version before this epoch."""

    def copy(key: Any, missing: Any) -> Any:
        value = read(key, missing)
        return value if value is missing else isolate(value)

    return copy


class ReduceUnit(_ValuePerKey[ReduceOp]):
    """The user's function makes one value of each key's records."""

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node, "reduce")
        function = self.op.function
        # Only a function that is opened can have asked for state of the key.
        if isinstance(function, Function) and type(function).open is not Function.open:
            self.keys = KeyContext()
        self._before = _copy_of(self._table.read)

    def lines(self, record: str, index: int) -> None:
        """The value so far, one call, and the new value into the changes."""
        code, batch = self.code, self.builder.settings.batch
        canon, so_far, changes = self.look_up(record, self._before)
        function = self.bind_function(self.op.function, "reduce", "reduce")
        reduced = code.fresh("reduced")
        with code.block(f"if {so_far} is {code.bind(MISSING, 'MISSING')}:"):
            code.line(f"{reduced} = {record}")
        with code.block("else:"):
            code.line(f"{reduced} = {function}({so_far}, {record})")
        # Where nothing is emitted before the end, only a function that keeps what it gives can change it.
        if batch and keeps_nothing(method_of(self.op.function, "reduce")):
            code.line(f"{changes}[{canon}] = {reduced}")
        else:
            code.line(f"{changes}[{canon}] = {code.bind(isolate, 'isolate')}({reduced})")
        if not batch:
            self.emit(reduced)


class RollingUnit(_ValuePerKey[RollingOp]):
    """One field is aggregated; the others stay those of the first record (rule 46).

    What is emitted is also the state. Only where a user's function of the same chain gets it, and so might
    change it, the state is a copy (rule 45).
    """

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        op: Any = node.operator
        super().__init__(builder, node, op.kind)
        self._shared = builder.tree.reaches_user_code(node) and not builder.settings.batch
        self._before = _copy_of(self._table.read) if self._shared else self._table.read
        self._check = _checker(self.op, node)
        self._combine = combiner_of(self.op)

    def lines(self, record: str, index: int) -> None:
        """The value so far, and what it becomes with the record, into the changes."""
        code, op, shared = self.code, self.op, self._shared
        canon, so_far, changes = self.look_up(record, self._before)
        kept = f"{code.bind(isolate, 'isolate')}({{}})" if shared else "{}"
        rolled = code.fresh("rolled")
        with code.block(f"if {so_far} is {code.bind(MISSING, 'MISSING')}:"):
            code.line(f"{code.bind(self._check, 'check')}({record})")
            code.line(f"{rolled} = {record}")
            code.line(f"{changes}[{canon}] = {kept.format(rolled)}")
        if op.kind == "sum" and op.field == 1:
            # The word count: (key, number) needs no call at all.
            fast = f"type({so_far}) is tuple and len({so_far}) == 2 and type({record}) is tuple"
            if shared:
                fast += f" and type({so_far}[0]) is str and type({so_far}[1]) is int"
            with code.block(f"elif {fast}:"):
                code.line(
                    f"{rolled} = {changes}[{canon}] = ({so_far}[0], {so_far}[1] + {record}[1])"
                )
        with code.block("else:"):
            code.line(f"{rolled} = {code.bind(self._combine, 'combine')}({so_far}, {record})")
            code.line(f"{changes}[{canon}] = {kept.format(rolled)}")
        if not self.builder.settings.batch:
            self.emit(rolled)


def _checker(op: RollingOp, node: StreamNode) -> Callable[[Any], None]:
    """Looks at each key's first record: the field must be there, and be a number to be summed up."""
    read = reader_of(op.field)

    def check(value: Any) -> None:
        try:
            field = read(value)
        except (LookupError, AttributeError) as error:
            raise misfit(op, node.name, value, error) from error
        if op.kind == "sum":
            try:
                fits = not isinstance(field + field, str | bytes | bytearray | list | tuple)
            except TypeError:
                fits = False
            if not fits:
                raise misfit(op, node.name, value)

    return check
