"""All split-based sources of an unbounded job as one Spark data source.

Spark asks it, on the driver, how far the next epoch goes, and writes the answer to its offset log before anything is
read; the partitions it then plans are the ranges of splits. Reading a partition is level 0 itself: the records are
read, run through their chain and come out as buffers, in one pass of one Python worker.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, ClassVar, TypeVar

import cloudpickle
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from millstream.errors import MillstreamError, SourceError, encode
from millstream.runtime.job import JobSpec
from millstream.runtime.rows import SCHEMA_DDL
from millstream.runtime.sources import Offset, SourceCoordinator, SourceSpec, SubtaskRanges
from millstream.spark.worker import load, source_level

__all__ = ["data_source"]

F = TypeVar("F", bound=Callable[..., Any])


def _guarded(method: F) -> F:
    @wraps(method)
    def guarded(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except MillstreamError as error:
            raise RuntimeError(f"{error}\n{encode(error)}") from error
        except Exception as error:
            wrapped = SourceError(f"planning an epoch failed: {type(error).__name__}: {error}")
            raise RuntimeError(f"{error}\n{encode(wrapped)}") from error

    return guarded  # type: ignore[return-value]


class RangePartition(InputPartition):
    """One subtask's reading, as bytes so that Spark's own pickler has nothing to find out."""

    def __init__(self, work: SubtaskRanges) -> None:
        self.work: bytes = cloudpickle.dumps(work)


class SplitReader(DataSourceStreamReader):
    """The coordinator on the driver, level 0 in the workers."""

    def __init__(
        self,
        run_id: str,
        spec: bytes,
        sources: bytes,
        interval: float,
        records: int | None,
    ) -> None:
        self._run_id = run_id
        self._spec = spec
        self._sources = sources
        self._interval = interval
        self._records = records
        self._made: SourceCoordinator | None = None

    @property
    def _coordinator(self) -> SourceCoordinator:
        if self._made is None:
            # The job's import path must be in place before the sources are unpacked.
            load(self._run_id, self._spec)
            specs: Sequence[SourceSpec] = pickle.loads(self._sources)
            self._made = SourceCoordinator(specs, self._interval, fixed=self._records)
        return self._made

    @_guarded
    def initialOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802
        """No split is known yet."""
        return self._coordinator.initial()

    @_guarded
    def latestOffset(self, start: Offset, limit: Any) -> Offset:  # type: ignore[override]  # noqa: N802
        """How far the next epoch goes."""
        return self._coordinator.next(start)

    @_guarded
    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:  # type: ignore[override]
        """The reading of an epoch; also called with logged offsets when an epoch is replayed."""
        return [RangePartition(work) for work in self._coordinator.ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """Level 0, in a worker."""
        assert isinstance(partition, RangePartition)
        load(self._run_id, self._spec)
        return source_level(self._run_id, self._spec, pickle.loads(partition.work))

    @_guarded
    def commit(self, end: Offset) -> None:  # type: ignore[override]
        """Spark will not ask for anything before `end` again."""
        self._coordinator.commit(end)

    def stop(self) -> None:
        """The query is over."""
        if self._made is not None:
            self._made.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}


class _SplitSource(DataSource):
    arguments: ClassVar[tuple[Any, ...]] = ()

    def schema(self) -> str:
        return SCHEMA_DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return SplitReader(*self.arguments)


def data_source(
    spec: JobSpec,
    shipped: bytes,
    sources: Sequence[SourceSpec],
    interval: float,
    records: int | None,
) -> type[DataSource]:
    """A data source class for one job; its name is its own."""
    name = f"millstream_{spec.run_id}"
    arguments = (spec.run_id, shipped, bytes(cloudpickle.dumps(list(sources))), interval, records)
    return type(
        "MillstreamSource",
        (_SplitSource,),
        {"arguments": arguments, "name": classmethod(lambda cls: name)},
    )
