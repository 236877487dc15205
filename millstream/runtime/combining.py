"""What of a batch job's records can be combined before they are sent (MapReduce's combiner).

Combining changes how a function's calls are nested: instead of f(f(a, b), c) it may be f(a, f(b, c)). For the built-in
aggregations that is the same. Of a `reduce` function nobody knows: `lambda a, b: (a[0], a[1] + 1)` counts a key's records
only if it is called for one record after the other. So only functions that are seen to be harmless are combined, by their
bytecode: those that add up fields, as that of every word count.
"""

from __future__ import annotations

import dis
from types import FunctionType
from typing import Any

from millstream.graph.level_plan import Edge
from millstream.graph.operators import ReduceOp, RollingOp
from millstream.graph.partitioning import Strategy
from millstream.graph.stream_graph import StreamNode

__all__ = ["adds_up", "combining"]


def combining(edge: Edge, head: StreamNode) -> dict[str, Any]:
    """How the senders of an edge combine records for the operator behind it, as fields of the edge.

    Only where the operator itself gives nothing but the last result of a key, by a function without a life of its own.
    """
    operator = head.operator
    if edge.partitioning.strategy is not Strategy.HASH or head.error_policy is not None:
        return {}
    if isinstance(operator, ReduceOp) and adds_up(operator.function):
        return {"combiner": operator.function}
    if isinstance(operator, RollingOp):
        from millstream.runtime.field_reduce import FieldReduce

        reduce = FieldReduce(operator.kind, operator.field, head.name).reduce
        pairs = operator.kind == "sum" and operator.field == 1
        return {"combiner": reduce, "combines_pairs": pairs}
    return {}


def adds_up(function: Any) -> bool:
    """True if a reduce function makes a tuple, each field of which is the first's, the second's or the sum of both; or
    gives the sum of both.

    >>> adds_up(lambda a, b: (a[0], a[1] + b[1]))
    True
    >>> adds_up(lambda a, b: a + b)
    True
    >>> adds_up(lambda a, b: (a[0], a[1] + 1))
    False
    >>> adds_up(lambda a, b: (a[1], a[0]))
    False
    """
    if type(function) is not FunctionType or function.__defaults__ or function.__closure__:
        return False
    code = function.__code__
    if code.co_argcount != 2 or code.co_kwonlyargcount or code.co_flags & _OTHER_KINDS:
        return False
    result = _result(function, code.co_varnames[:2])
    return result == "both" or (
        isinstance(result, tuple)
        and all(_field(part) == place for place, part in enumerate(result))
    )


# Generators, coroutines, and those that take any number of arguments.
_OTHER_KINDS = 0x04 | 0x08 | 0x20 | 0x80 | 0x200


class _Unknown(Exception):
    """A step that is none of those."""


def _result(function: FunctionType, names: tuple[str, ...]) -> Any:
    """What a function gives: "both" for the sum of its arguments; a tuple of fields. None if it is anything else."""
    stack: list[Any] = []
    try:
        for step in dis.get_instructions(function):
            match step.opname:
                case "RESUME" | "NOP" | "CACHE":
                    pass
                case "LOAD_FAST" | "LOAD_FAST_BORROW":
                    stack.append(_argument(step.argval, names))
                case "LOAD_FAST_LOAD_FAST" | "LOAD_FAST_BORROW_LOAD_FAST_BORROW":
                    stack.extend(_argument(name, names) for name in step.argval)
                case "LOAD_CONST" | "LOAD_SMALL_INT" if type(step.argval) is int:
                    stack.append(("constant", step.argval))
                case "BINARY_SUBSCR":
                    _subscript(stack)
                case "BINARY_OP" if step.argrepr == "[]":
                    _subscript(stack)
                case "BINARY_OP" if step.argrepr == "+":
                    second, first = stack.pop(), stack.pop()
                    stack.append(_sum(first, second))
                case "BUILD_TUPLE" if step.argval == len(stack):
                    stack = [tuple(stack)]
                case "RETURN_VALUE":
                    return stack.pop() if len(stack) == 1 else None
                case _:
                    return None
    except (_Unknown, IndexError):
        pass
    return None


def _argument(name: str, names: tuple[str, ...]) -> str:
    if name not in names:
        raise _Unknown
    return "first" if name == names[0] else "second"


def _subscript(stack: list[Any]) -> None:
    place, whole = stack.pop(), stack.pop()
    if whole not in ("first", "second") or not isinstance(place, tuple) or place[0] != "constant":
        raise _Unknown
    stack.append((whole, place[1]))


def _sum(first: Any, second: Any) -> Any:
    if (first, second) == ("first", "second"):
        return "both"
    if _is_field(first, "first") and _is_field(second, "second") and first[1] == second[1]:
        return "both", first[1]
    raise _Unknown


def _is_field(part: Any, whole: str) -> bool:
    return isinstance(part, tuple) and len(part) == 2 and part[0] == whole


def _field(part: Any) -> Any:
    """Which field of the arguments a part of the result is."""
    if any(_is_field(part, whole) for whole in ("first", "second", "both")):
        return part[1]
    return None
