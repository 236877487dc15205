"""What of a batch job's records can be combined before they are sent (MapReduce's combiner).

Two things must hold. The combined record must have the key of those it is made of: the sum of odd numbers may be even,
so with `lambda n: n % 2` for a key nothing may be added up on the way. And nesting must not matter, for combining makes
f(a, f(b, c)) of f(f(a, b), c). For the built-in aggregations it does not. Of a `reduce` function nobody knows:
`lambda a, b: (a[0], a[1] + 1)` counts a key's records only if it is called for one after the other. So only functions
are used whose bytecode is seen to add up fields, as that of every word count.
"""

from __future__ import annotations

import dis
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType
from typing import Any

from millstream.graph.level_plan import Edge
from millstream.graph.operators import ReduceOp, RollingOp
from millstream.graph.partitioning import Strategy
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.inline import subscript_of

__all__ = ["combining", "kept_fields"]


def combining(edge: Edge, head: StreamNode) -> dict[str, Any]:
    """How the senders of an edge combine records for the operator behind it, as fields of the edge.

    Only where the operator itself gives nothing but the last result of a key.
    """
    operator, key = head.operator, edge.partitioning.key
    if edge.partitioning.strategy is not Strategy.HASH or key is None or head.error_policy:
        return {}
    field = subscript_of(key.selector) if key.field is None else key.field
    if isinstance(operator, ReduceOp) and field in kept_fields(operator.function):
        return {"combiner": operator.function}
    if isinstance(operator, RollingOp) and _keeps_key(operator, field):
        from millstream.runtime.field_reduce import FieldReduce

        reduce = FieldReduce(operator.kind, operator.field, head.name).reduce
        pairs = operator.kind == "sum" and operator.field == 1
        return {"combiner": reduce, "combines_pairs": pairs}
    return {}


def _keeps_key(operator: RollingOp, field: int | str | None) -> bool:
    if operator.kind in ("min_by", "max_by"):
        return True
    # A name and a position may mean the same field.
    return type(field) is type(operator.field) and field != operator.field


def kept_fields(function: Any) -> set[int]:
    """The fields that a reduce function leaves as they are, if all it does beside that is to add up others.

    >>> kept_fields(lambda a, b: (a[0], a[1] + b[1]))
    {0}
    >>> kept_fields(lambda a, b: (a[0], a[1] + 1))
    set()
    >>> kept_fields(lambda a, b: (a[1], a[0]))
    set()
    """
    if type(function) is not FunctionType or function.__defaults__ or function.__closure__:
        return set()
    code = function.__code__
    if code.co_argcount != 2 or code.co_kwonlyargcount or code.co_flags & _OTHER_KINDS:
        return set()
    kept: set[int] = set()
    for place, part in enumerate(_result(function, code.co_varnames[:2])):
        if part == ("first", place) or part == ("second", place):
            kept.add(place)
        elif part != ("both", place):
            return set()
    return kept


# Generators, coroutines, and those that take any number of arguments.
_OTHER_KINDS = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_ARGUMENTS = ("first", "second")


def _result(function: FunctionType, names: tuple[str, ...]) -> tuple[Any, ...]:
    """The parts of the tuple that a function gives, each a pair of whose field it is and its place; nothing if it does
    anything else than to take fields, add two, and make a tuple of them."""
    stack: list[Any] = []
    for step in dis.get_instructions(function):
        name, value = step.opname, step.argval
        if name in ("RESUME", "NOP", "CACHE"):
            continue
        if name in ("LOAD_FAST", "LOAD_FAST_BORROW") and value in names:
            stack.append(_ARGUMENTS[names.index(value)])
        elif name == "LOAD_FAST_LOAD_FAST" and {*value} <= {*names}:
            stack.extend(_ARGUMENTS[names.index(one)] for one in value)
        elif name in ("LOAD_CONST", "LOAD_SMALL_INT") and type(value) is int:
            stack.append(value)
        elif name == "BINARY_SUBSCR" or (name == "BINARY_OP" and step.argrepr == "[]"):
            place, whole = stack.pop(), stack.pop()
            if type(place) is not int or whole not in _ARGUMENTS:
                break
            stack.append((whole, place))
        elif name == "BINARY_OP" and step.argrepr == "+":
            second, first = stack.pop(), stack.pop()
            if type(first) is not tuple or type(second) is not tuple:
                break
            if {first[0], second[0]} != {*_ARGUMENTS} or first[1] != second[1]:
                break
            stack.append(("both", first[1]))
        elif name == "BUILD_TUPLE" and value == len(stack):
            stack = [stack]
        elif name == "RETURN_VALUE" and type(stack[0]) is list:
            return tuple(stack[0])
        else:
            break
    return ()
