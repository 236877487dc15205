"""Records of a Python collection (what Flink's `fromCollection` reads, a `FromElementsSource`)."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import cloudpickle

from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.errors import RecordNotSerializable, SourceError
from millstream.runtime.base.text import shorten

__all__ = ["CollectionSource"]

_ONLY = "collection"


class CollectionSource(Source):
    """The records of a collection, in its order, by one subtask.

    The records are pickled here and now: later changes to them are not seen, and the source
    travels as bytes that are never pickled again.

    >>> source = CollectionSource(["a", "b", "c"])
    >>> reader = source.create_reader()
    >>> reader.open()
    >>> reader.read("collection", 1, 3)
    ['b', 'c']
    """

    def __init__(self, records: Iterable[Any]) -> None:
        copied = list(records)
        self._count = len(copied)
        self._pickled = _pickle_all(copied)

    def __len__(self) -> int:
        return self._count

    def boundedness(self) -> Boundedness:
        """Bounded, as every collection is."""
        return Boundedness.BOUNDED

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        """One split, however many subtasks there are."""
        return _CollectionSplit(self._count)

    def create_reader(self) -> SourceReader:
        """A reader that unpickles the records once."""
        return _CollectionReader(self._pickled)

    def max_parallelism(self) -> int:
        """One: there is a single split."""
        return 1


class _CollectionSplit(SplitEnumerator):
    def __init__(self, count: int) -> None:
        self._count = count

    def discover(self) -> Sequence[str]:
        return [_ONLY]

    def available(self, split: str, position: int) -> int:
        if position > self._count:
            raise _too_short(self._count, position)
        return self._count

    def finished(self, split: str, position: int) -> bool:
        return position == self._count


class _CollectionReader(SourceReader):
    def __init__(self, pickled: bytes) -> None:
        self._pickled = pickled
        self._records: list[Any] | None = None

    def read(self, split: str, start: int, end: int) -> list[Any]:
        if self._records is None:
            self._records = pickle.loads(self._pickled)
        if end > len(self._records):
            raise _too_short(len(self._records), end)
        return self._records[start:end]

    def close(self) -> None:
        self._records = None


def _too_short(count: int, position: int) -> SourceError:
    return SourceError(
        "the collection is shorter than what was read from it before",
        records=count,
        position=position,
        hint="a job goes on from its state with the same collection; or start it anew",
    )


def _pickle_all(records: list[Any]) -> bytes:
    try:
        pickled: bytes = cloudpickle.dumps(records)
    except Exception as error:
        index = next((i for i, record in enumerate(records) if not _can_pickle(record)), None)
        raise RecordNotSerializable(
            f"a record of the collection cannot be pickled: {error}",
            index=index,
            record=None if index is None else shorten(records[index]),
            hint="keep locks, files, sockets and generators out of records",
        ) from error
    return pickled


def _can_pickle(record: Any) -> bool:
    try:
        cloudpickle.dumps(record)
    except Exception:  # whatever it is, this is the record that raises it
        return False
    return True
