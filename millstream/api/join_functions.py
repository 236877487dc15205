"""The functions that make results of records that belong together (Flink's `JoinFunction`, `CoGroupFunction` and kin).

`JoinFunction`, `FlatJoinFunction` and `CoGroupFunction` are for joins by window, `ProcessJoinFunction` is for interval
joins. PyFlink has none of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, TypeVar

from millstream.api.functions import Function

__all__ = ["CoGroupFunction", "FlatJoinFunction", "JoinFunction", "ProcessJoinFunction"]

IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")


class JoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Makes one result of each pair of records with equal keys in one window.

    >>> class Price(JoinFunction):
    ...     def join(self, first, second):
    ...         return first[0], first[1] * second[1]
    >>> Price().join(("tea", 3), ("tea", 2))
    ('tea', 6)
    """

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> OUT:
        """The result of a pair."""


class FlatJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Makes any number of results of each pair of records with equal keys in one window.

    >>> class Cheaper(FlatJoinFunction):
    ...     def join(self, first, second):
    ...         if first[1] < second[1]:
    ...             yield first
    >>> list(Cheaper().join(("tea", 3), ("tea", 2))), list(Cheaper().join(("tea", 1), ("tea", 2)))
    ([], [('tea', 1)])
    """

    @abstractmethod
    def join(self, first: IN1, second: IN2) -> Iterable[OUT] | None:
        """The results of a pair; None means none."""


class CoGroupFunction(Function, Generic[IN1, IN2, OUT]):
    """Makes results of all records of both streams with one key in one window.

    One of the lists may be empty, which is how outer joins are written.

    >>> class LeftOuter(CoGroupFunction):
    ...     def co_group(self, first, second):
    ...         for one in first:
    ...             for other in second or [None]:
    ...                 yield one, other
    >>> list(LeftOuter().co_group(["a", "b"], []))
    [('a', None), ('b', None)]
    """

    @abstractmethod
    def co_group(self, first: list[IN1], second: list[IN2]) -> Iterable[OUT] | None:
        """The results of a key's window; None means none."""


class ProcessJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Makes any number of results of each pair of an interval join.

    >>> class Delay(ProcessJoinFunction):
    ...     def process_element(self, left, right, ctx):
    ...         yield left, right, ctx.get_right_timestamp() - ctx.get_left_timestamp()
    >>> from unittest.mock import Mock
    >>> ctx = Mock(get_left_timestamp=lambda: 100, get_right_timestamp=lambda: 130)
    >>> list(Delay().process_element("order", "parcel", ctx))
    [('order', 'parcel', 30)]
    """

    class Context(ABC):
        """What `process_element` may ask."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """The timestamp of the left record."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """The timestamp of the right record."""

        @abstractmethod
        def timestamp(self) -> int:
            """The timestamp of the pair and its results: the larger of the two."""

        def get_timestamp(self) -> int:
            """`timestamp()`, under Flink's name."""
            return self.timestamp()

    @abstractmethod
    def process_element(
        self, left: IN1, right: IN2, ctx: ProcessJoinFunction.Context
    ) -> Iterable[OUT] | None:
        """The results of a pair; ``(OutputTag, value)`` goes to a side output, None means none."""
