"""`DeclaredAggregates`: the aggregate function that `sum_of`, `count` and the others stand for, written out for them.

An accumulator is a flat tuple: one place for each aggregate, two for a mean. Adding a record is one call, whatever the
number of aggregates:

```
def add(record, accumulator):
    (
        a0,
        a1,
    ) = accumulator
    v0 = record[1] if type(record) is tuple else read_v0(record)
    if v0 is not None:
        a0 = number(v0) if a0 is None else a0 + v0
    a1 += 1
    return (
        a0,
        a1,
    )
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from millstream.api.aggregates import FieldAggregate
from millstream.api.functions import AggregateFunction
from millstream.api.window_functions import WindowFunction
from millstream.common.typeinfo import Types
from millstream.errors import InvalidArgument, TypeMismatchError, told
from millstream.runtime.base.text import shorten
from millstream.runtime.codegen.fields import reader_of
from millstream.runtime.operators.field_reduce import checked_field

__all__ = ["DeclaredAggregates", "KeyAndResults", "checked_aggregates"]

# By kind: what a place begins with, the lines for a value {v}, those for another accumulator's {b}, the result.
_SUM = "if {v} is not None: {a} = number({v}) if {a} is None else {a} + {v}"
_LEAST = "if {v} is not None and ({a} is None or {v} < {a} or {v} != {v}): {a} = {v}"
_MOST = "if {v} is not None and ({a} is None or {v} > {a} or {v} != {v}): {a} = {v}"
_KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], str]] = {
    "count": (("0",), ("{a} += 1",), ("{a} += {b}",), "{a}"),
    "sum_of": (("None",), (_SUM,), (_SUM.replace("{v}", "{b}"),), "{a}"),
    "min_of": (("None",), (_LEAST,), (_LEAST.replace("{v}", "{b}"),), "{a}"),
    "max_of": (("None",), (_MOST,), (_MOST.replace("{v}", "{b}"),), "{a}"),
    "mean_of": (
        ("None", "0"),
        (_SUM, "if {v} is not None: {n} += 1"),
        (_SUM.replace("{v}", "{b}"), "{n} += {m}"),
        "None if {a} is None else {a} / {n}",
    ),
}


class DeclaredAggregates(AggregateFunction[Any, Any, Any]):
    """Several aggregates over one pass.

    >>> from millstream.api.aggregates import count, max_of, mean_of, sum_of
    >>> function = DeclaredAggregates((sum_of(1), count(), max_of(1), mean_of(1)), "Window")
    >>> accumulator = function.create_accumulator()
    >>> for record in [("a", 1), ("a", None), ("a", 4)]:
    ...     accumulator = function.add(record, accumulator)
    >>> function.get_result(accumulator)
    (5, 3, 4, 2.5)
    """

    def __init__(self, aggregates: Sequence[FieldAggregate], name: str) -> None:
        self.aggregates = tuple(aggregates)
        self._name = name
        source, scope = _written(self.aggregates, self._misfit)
        exec(source, scope)
        self._start = scope["start"]
        self.add = scope["add"]  # type: ignore[method-assign]
        self.merge = scope["merge"]  # type: ignore[method-assign]
        self.get_result = scope["result"]  # type: ignore[method-assign]

    def create_accumulator(self) -> Any:
        return self._start

    def add(self, value: Any, accumulator: Any) -> Any:
        """Made anew for each object."""
        raise NotImplementedError

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Made anew for each object."""
        raise NotImplementedError

    def get_result(self, accumulator: Any) -> Any:
        """Made anew for each object."""
        raise NotImplementedError

    def _misfit(self, record: Any, error: Exception) -> Exception:
        return self.misfit(error, record=shorten(record))

    def misfit(self, error: Exception, **facts: Any) -> Exception:
        """The error for values that do not go together."""
        return TypeMismatchError(
            f"the aggregates of '{self._name}' cannot take a record: {told(error)}",
            operator=self._name,
            aggregates=", ".join(map(repr, self.aggregates)),
            **facts,
            hint="name fields that every record has, with numbers or None in them",
        )

    def __repr__(self) -> str:
        return ", ".join(map(repr, self.aggregates))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # What was written is written anew, so that it need not travel.
        return DeclaredAggregates, (self.aggregates, self._name)


class KeyAndResults(WindowFunction[Any, Any, Any, Any]):
    """What windows of keys give: the key, and the results behind it."""

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        """The key and the results of each window in one tuple."""
        return [(key, *results) for results in inputs]


def checked_aggregates(given: tuple[Any, ...], declared: Any) -> tuple[FieldAggregate, ...]:
    """Aggregates, if they can be of records of the declared type."""
    if not given:
        raise InvalidArgument(
            "aggregate_of needs aggregates", hint="for example sum_of(1), count()"
        )
    types = getattr(declared, "get_field_types", lambda: None)()
    names = getattr(declared, "get_field_names", lambda: None)()
    for aggregate in given:
        if not isinstance(aggregate, FieldAggregate):
            hint = "name them: sum_of(1), count(), min_of, max_of, mean_of; a function goes to aggregate()"
            raise InvalidArgument("aggregate_of takes aggregates", got=repr(aggregate), hint=hint)
        if aggregate.kind == "count":
            continue
        field = checked_field(aggregate.kind, aggregate.field, declared)
        if types is None or aggregate.kind not in ("sum_of", "mean_of"):
            continue
        place = names.index(field) if isinstance(field, str) and names is not None else field
        if isinstance(place, int) and place >= len(types):
            raise InvalidArgument(f"{aggregate}: there is no such field", type=str(declared))
        if isinstance(place, int) and types[place] == Types.STRING():
            raise InvalidArgument(f"{aggregate}: the field is declared as a text")
    return given


def _number(value: Any) -> Any:
    if isinstance(value, str | bytes | bytearray | list | tuple):
        msg = f"a {type(value).__name__} is no number"
        raise TypeError(msg)
    return value


def _written(
    aggregates: tuple[FieldAggregate, ...], misfit: Callable[[Any, Exception], Exception]
) -> tuple[str, dict[str, Any]]:
    """The source of the three functions, and what they refer to."""
    scope: dict[str, Any] = {"number": _number, "misfit": misfit}
    fields = list(dict.fromkeys(a.field for a in aggregates if a.field is not None))
    reads = []
    for number, field in enumerate(fields):
        scope[f"read_v{number}"] = reader_of(field)
        quick = f"record[{field}] if type(record) is tuple else " if type(field) is int else ""
        reads.append(f"v{number} = {quick}read_v{number}(record)")
    starts: list[str] = []
    adds: list[str] = []
    merges: list[str] = []
    results: list[str] = []
    for aggregate in aggregates:
        start, add, merge, result = _KINDS[aggregate.kind]
        place = len(starts)
        names = {"a": f"a{place}", "n": f"a{place + 1}", "b": f"b{place}", "m": f"b{place + 1}"}
        if aggregate.field is not None:
            names["v"] = f"v{fields.index(aggregate.field)}"
        starts += start
        adds += [line.format_map(names) for line in add]
        merges += [line.format_map(names) for line in merge]
        results.append(result.format_map(names))
    every = "".join(f"a{place}, " for place in range(len(starts)))
    others = every.replace("a", "b")
    lines = [
        f"start = ({', '.join(starts)},)",
        "def add(record, accumulator):",
        f"    {every}= accumulator",
        "    try:",
        *(f"        {line}" for line in (*reads, *adds)),
        "    except (TypeError, LookupError, AttributeError) as error:",
        "        raise misfit(record, error) from error",
        f"    return ({every})",
        "def merge(one, other):",
        f"    {every}= one",
        f"    {others}= other",
        *(f"    {line}" for line in merges),
        f"    return ({every})",
        "def result(accumulator):",
        f"    {every}= accumulator",
        f"    return ({', '.join(results)},)",
    ]
    return "\n".join(lines), scope
