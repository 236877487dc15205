"""Where a record has to be copied, so that it stays what it was when it was emitted (rule 64).

Whoever takes a record, an operator or a buffer, must be the only one who can change it. Two others might:

- the function that emitted it, if it has kept it. A function that is seen to keep nothing needs no copy
  ([`recognize.py`](../base/recognize.py)); neither does a value of a declared type that cannot be changed;
- those who take the same record beside it. Of several operators that may change or keep it, each gets its own copy.

For all other records generated code asks whether they can be changed at all, and copies those that can:

```
if type(record) is tuple and len(record) == 2:
    first, second = record
    if (type(first) is not str and type(first) not in IMMUTABLE_1) or ...:
        record = copied_1(record)
elif type(record) is tuple:
    ...
elif type(record) is not str and type(record) is not int:
    record = copied_1(record)
```

That takes 10 to 60 ns. With `pipeline.object-reuse` nothing is asked and nothing copied.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from millstream.api.functions import Function
from millstream.common.typeinfo_basic import BasicTypeInfo, SqlTimeTypeInfo
from millstream.common.typeinfo_composite import TupleTypeInfo
from millstream.common.watermark_strategy import TimestampColumn, WatermarkStrategy
from millstream.graph import operators as ops
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.recognize import keeps_nothing, pair_of
from millstream.runtime.codegen.code import Code
from millstream.runtime.codegen.tree import ChainTree
from millstream.runtime.state.copying import own
from millstream.runtime.state.table import ATOMIC

__all__ = ["Kept", "emit_own", "is_fixed_type", "kept_by", "may_touch", "method_of"]


class Kept(Enum):
    """What may still know a record that was emitted."""

    NOTHING = 0
    OTHER_RESULTS = 1
    """Nothing but other results of the same call: one list may hold an object twice."""
    ANYTHING = 2


def method_of(function: Any, method: str) -> Any:
    """What is called of a function, given as an object with `method` or as a plain callable."""
    return getattr(function, method) if isinstance(function, Function) else function


def kept_by(op: ops.Operator) -> Kept:
    """What may still know a record that the operator has emitted."""
    match op:
        case ops.SourceOp() | ops.AssignOp():
            # What a source may keep has been copied when it was read.
            free = _is_free(op.strategy)
        case ops.FrameSourceOp() | ops.ProjectOp() | ops.RollingOp():
            free = True
        case ops.MapOp():
            free = keeps_nothing(method_of(op.function, "map"))
        case ops.FilterOp():
            free = keeps_nothing(method_of(op.function, "filter"))
        case ops.ReduceOp():
            free = keeps_nothing(method_of(op.function, "reduce"))
        case ops.FlatMapOp():
            if keeps_nothing(method_of(op.function, "flat_map")):
                return Kept.OTHER_RESULTS
            free = False
        case _:
            free = False
    return Kept.NOTHING if free else Kept.ANYTHING


def _is_free(strategy: WatermarkStrategy | None) -> bool:
    """True if what makes timestamps and watermarks keeps no record."""
    if strategy is None:
        return True
    assigner = strategy.timestamp_assigner
    return strategy.generator_supplier is None and (
        assigner is None
        or type(assigner) is TimestampColumn
        or keeps_nothing(assigner.extract_timestamp)
    )


def may_touch(tree: ChainTree, child: StreamNode) -> bool:
    """True if an operator of the chain may change or keep a record, itself or by those behind it."""
    op = child.operator
    if isinstance(op, ops.PrintOp | ops.CollectOp | ops.FeedbackOp):
        return False
    passes_on = (
        isinstance(op, ops.ProjectOp)
        or (isinstance(op, ops.MapOp) and pair_of(op.function, "v") is not None)
        or (isinstance(op, ops.AssignOp) and _is_free(op.strategy))
    )
    return not passes_on or any(may_touch(tree, reader) for reader in tree.readers_of(child))


def is_fixed_type(declared: Any) -> bool:
    """True if values of a declared type cannot be changed, once they have been converted."""
    if isinstance(declared, TupleTypeInfo):
        return all(is_fixed_type(field) for field in declared.get_field_types())
    return isinstance(declared, BasicTypeInfo | SqlTimeTypeInfo)


def emit_own(code: Code, variable: str) -> None:
    """Lines that put a copy in the place of a record that can be changed."""
    copy, atomic = code.bind(own, "copied"), code.bind(ATOMIC, "IMMUTABLE")
    first, second = code.fresh("first"), code.fresh("second")
    with code.block(f"if type({variable}) is tuple and len({variable}) == 2:"):
        # By far the most frequent. A comparison takes half of what a look into a set does.
        code.line(f"{first}, {second} = {variable}")
        with code.block(
            f"if (type({first}) is not str and type({first}) not in {atomic}) or "
            f"(type({second}) is not int and type({second}) not in {atomic}):"
        ):
            code.line(f"{variable} = {copy}({variable})")
    with (
        code.block(f"elif type({variable}) is tuple:"),
        code.block(f"for {first} in {variable}:"),
        code.block(f"if type({first}) not in {atomic}:"),
    ):
        code.line(f"{variable} = {copy}({variable})")
        code.line("break")
    with code.block(f"elif type({variable}) is not str and type({variable}) is not int:"):
        code.line(f"{variable} = {copy}({variable})")
