"""Aggregates that are named and not written: what `aggregate_of` of a windowed stream takes.

>>> sum_of(1), count()
(sum_of(1), count())
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FieldAggregate", "count", "max_of", "mean_of", "min_of", "sum_of"]


@dataclass(frozen=True, repr=False)
class FieldAggregate:
    """One result of a window: a kind, and the field that it is about, by position or name."""

    kind: str
    field: int | str | None = None

    def __repr__(self) -> str:
        return f"{self.kind}({'' if self.field is None else repr(self.field)})"


def count() -> FieldAggregate:
    """How many records there are."""
    return FieldAggregate("count")


def sum_of(field: int | str) -> FieldAggregate:
    """The sum of a field. None is left out; if there is nothing else, the sum is None.

    >>> sum_of("price")
    sum_of('price')
    """
    return FieldAggregate("sum_of", field)


def min_of(field: int | str) -> FieldAggregate:
    """The smallest value of a field. None is left out; a NaN makes the result NaN, as it does in a sum."""
    return FieldAggregate("min_of", field)


def max_of(field: int | str) -> FieldAggregate:
    """The largest value of a field. None is left out; a NaN makes the result NaN, as it does in a sum."""
    return FieldAggregate("max_of", field)


def mean_of(field: int | str) -> FieldAggregate:
    """The mean of a field. None is left out; if there is nothing else, the mean is None."""
    return FieldAggregate("mean_of", field)
