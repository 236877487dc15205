"""Functions that take many records at once: for `map_batches`, `filter_batches` and `flat_map_batches`.

Contracts only; `millstream.runtime.operators.batches` runs them. PyFlink's DataStream API has none of these.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from millstream.api.functions import Function

__all__ = ["BATCH_FORMATS", "FilterBatchesFunction", "FlatMapBatchesFunction", "MapBatchesFunction"]

BATCH_FORMATS = ("list", "numpy", "pandas", "arrow")
"""What a function may be given of a batch."""


class MapBatchesFunction(Function):
    """One result for each record of a batch.

    >>> class Scores(MapBatchesFunction):
    ...     def open(self, runtime_context):
    ...         self.weights = [0.5, 2.0]  # here: load the model
    ...
    ...     def map_batches(self, batch):
    ...         return [a * self.weights[0] + b * self.weights[1] for a, b in batch]
    >>> scores = Scores()
    >>> scores.open(None)
    >>> scores.map_batches([(2, 1), (4, 0)])
    [3.0, 2.0]
    """

    @abstractmethod
    def map_batches(self, batch: Any) -> Any:
        """As many results as the batch has records, in their order: a list, an array, or columns."""


class FilterBatchesFunction(Function):
    """Says of each record of a batch whether it goes on."""

    @abstractmethod
    def filter_batches(self, batch: Any) -> Any:
        """A mask: one boolean for each record."""


class FlatMapBatchesFunction(Function):
    """Any number of results for each record of a batch."""

    @abstractmethod
    def flat_map_batches(self, batch: Any) -> Any:
        """For each record an iterable of its results, in the order of the records."""
