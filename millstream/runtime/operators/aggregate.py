"""Rolling aggregations: reduce, sum, min, max, min_by, max_by (Flink's `StreamGroupedReduceOperator`).

The state is one value per key in a `Table`. Generated code looks at this epoch's changes first, then at the version
before it, and writes to the changes only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.api.functions import Function
from millstream.graph.operators import Key, ReduceOp, RollingOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.clock import NO_TIME
from millstream.runtime.base.recognize import keeps_nothing
from millstream.runtime.codegen.exchange import emit_canonical, emit_current_key
from millstream.runtime.codegen.fields import combiner_of, misfit, reader_of
from millstream.runtime.codegen.ownership import method_of
from millstream.runtime.state.keyed_state import KeyContext
from millstream.runtime.state.table import MISSING, isolate

if TYPE_CHECKING:
    from millstream.runtime.codegen.builder import ChainBuilder

__all__ = [
    "compile_reduce",
    "compile_rolling",
    "isolate",
]


def _emit_lookup(
    b: ChainBuilder,
    node: StreamNode,
    key: Key,
    v: str,
    state: str,
    read: Callable[[Any, Any], Any],
    current: KeyContext | None = None,
) -> tuple[str, str, str]:
    """Lines that find the value so far, with `read` for the version before this epoch; the names of the key,
    of the value so far, and of the dictionary of changes. If there is a context, the key becomes its current one."""
    code = b.code
    table = b.table(node, state)
    if current is None:
        canon = emit_canonical(b, node, key, v)
    else:
        canon = emit_current_key(b, node, key, v, code.bind(current, "keys"))
    b.at(node, v)
    so_far, missing = code.fresh("s"), code.bind(MISSING, "MISSING")
    code.line(f"{so_far} = {code.bind(table.changes.get, 'changed')}({canon}, {missing})")
    with code.block(f"if {so_far} is {missing}:"):
        code.line(f"{so_far} = {code.bind(read, 'before')}({canon}, {missing})")
    return canon, so_far, code.bind(table.changes, "changes")


def _copy_of(read: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Reads copies: whoever changes what it is given must not change the version before this epoch."""

    def copy(key: Any, missing: Any) -> Any:
        value = read(key, missing)
        return value if value is missing else isolate(value)

    return copy


def compile_reduce(b: ChainBuilder, node: StreamNode, op: ReduceOp, v: str, index: int) -> None:
    """The user's function folds each record into its key's value, which is emitted."""
    code = b.code
    before = _copy_of(b.table(node, "reduce").read)
    # Only a function that is opened can have asked for state of the key.
    rich = isinstance(op.function, Function) and type(op.function).open is not Function.open
    current = b.key_context(node) if rich else None
    canon, so_far, changes = _emit_lookup(b, node, op.key, v, "reduce", before, current)
    function = b.bind_function(node, op.function, "reduce", "reduce")
    out = code.fresh()
    with code.block(f"if {so_far} is {code.bind(MISSING, 'MISSING')}:"):
        code.line(f"{out} = {v}")
    with code.block("else:"):
        code.line(f"{out} = {function}({so_far}, {v})")
    kept = f"{code.bind(isolate, 'isolate')}({out})"
    if b.batch:
        # Nothing is emitted before the end, so only a function that keeps what it gives can change it.
        mine = keeps_nothing(method_of(op.function, "reduce"))
        code.line(f"{changes}[{canon}] = {out if mine else kept}")
        _emit_at_the_end(b, node, "reduce")
        return
    code.line(f"{changes}[{canon}] = {kept}")
    b.emit(node, out)


def _emit_at_the_end(b: ChainBuilder, node: StreamNode, state: str) -> None:
    """In a batch job a key has one result, when all its records are there (rule 47)."""
    changes = b.table(node, state).changes
    emit: list[Callable[[Any, int], None]] = []

    def end() -> None:
        for value in changes.values():
            emit[0](value, NO_TIME)

    before = b.code.location
    with b.entry("result_", "value, t", emit.append):
        b.at(node, "value", "result")
        b.emit(node, "value", own=True)
    b.code.location = before
    b.key_ends.append(end)


def compile_rolling(b: ChainBuilder, node: StreamNode, op: RollingOp, v: str, index: int) -> None:
    """One field is aggregated; the others stay those of the first record (rule 46).

    What is emitted is also the state. Only where a user's function of the same chain gets it, and so might
    change it, the state is a copy (rule 45).
    """
    code = b.code
    shared = b.reaches_user_code(node) and not b.batch
    read = b.table(node, op.kind).read
    before = _copy_of(read) if shared else read
    canon, so_far, changes = _emit_lookup(b, node, op.key, v, op.kind, before)
    kept = f"{code.bind(isolate, 'isolate')}({{}})" if shared else "{}"
    out = code.fresh()
    with code.block(f"if {so_far} is {code.bind(MISSING, 'MISSING')}:"):
        code.line(f"{code.bind(_checker(op, node), 'check')}({v})")
        code.line(f"{out} = {v}")
        code.line(f"{changes}[{canon}] = {kept.format(out)}")
    combine = code.bind(combiner_of(op), "combine")
    if op.kind == "sum" and op.field == 1:
        # The word count: (key, number) needs no call at all.
        fast = f"type({so_far}) is tuple and len({so_far}) == 2 and type({v}) is tuple"
        if shared:
            fast += f" and type({so_far}[0]) is str and type({so_far}[1]) is int"
        with code.block(f"elif {fast}:"):
            code.line(f"{out} = {changes}[{canon}] = ({so_far}[0], {so_far}[1] + {v}[1])")
    with code.block("else:"):
        code.line(f"{out} = {combine}({so_far}, {v})")
        code.line(f"{changes}[{canon}] = {kept.format(out)}")
    if b.batch:
        _emit_at_the_end(b, node, op.kind)
    else:
        b.emit(node, out)


def _checker(op: RollingOp, node: StreamNode) -> Callable[[Any], None]:
    """Looks at each key's first record: the field must be there, and be a number to be summed up."""
    read = reader_of(op.field)

    def check(value: Any) -> None:
        try:
            found = read(value)
        except (LookupError, AttributeError) as error:
            raise misfit(op, node.name, value, error) from error
        if op.kind == "sum":
            try:
                fits = not isinstance(found + found, str | bytes | bytearray | list | tuple)
            except TypeError:
                fits = False
            if not fits:
                raise misfit(op, node.name, value)

    return check
