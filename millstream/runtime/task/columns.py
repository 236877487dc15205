"""Batches of a source on their way into its chain: cut where records would be, as columns where the chain takes them.

Generators of watermarks are asked after every 1024 rows (rule 1), whatever the length of the batches. Rows that the
chain does not take as columns go through its loop, as if the source had given them as records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import length_hint
from typing import Any, Protocol

import pyarrow as pa

from millstream.errors import SourceError
from millstream.runtime.base.failpoints import reached
from millstream.runtime.columns.batch import ColumnBatch
from millstream.runtime.columns.records import as_records
from millstream.runtime.task.chain import Chain
from millstream.runtime.task.failure import explain, explain_source

__all__ = ["CHUNK", "ColumnInput", "batches_of"]

CHUNK = 1024
"""Records of one split or buffer that are handed to a chain at a time. In between lists are checked for being full, and
periodic generators are asked (rule 1 names the number)."""


def batches_of(given: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """What a reader gives as columns, if it is that."""
    for batch in given:
        if not isinstance(batch, pa.RecordBatch):
            raise SourceError(
                f"the source's read_columns gave one {type(batch).__name__}",
                hint="let it give Arrow's RecordBatches; of a table those are table.to_batches()",
            )
        yield batch


class SendsRows(Protocol):
    """What is asked of the task."""

    def full_rows(self, chain: Chain) -> Iterator[pa.RecordBatch]:
        """Send the buffers that are full."""


class ColumnInput:
    """The batches of one range of a split, or of one partition of a frame."""

    def __init__(
        self, task: SendsRows, chain: Chain, position: str, source: str, start: int = 0
    ) -> None:
        self._task = task
        self._chain = chain
        self._position = position
        self._source = source
        self._start = start
        self.done = 0
        """How many rows have been read."""
        # Rows since the generators were asked.
        self._since = 0

    def take(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Process a batch."""
        rows, count, begin = ColumnBatch.of_rows(batch), batch.num_rows, 0
        while begin < count:
            stop = min(count, begin + CHUNK - self._since)
            if rows is None or not self._taken(rows.slice(begin, stop)):
                self._loop(self._records(batch.slice(begin, stop - begin)))
            self.done += stop - begin
            self._since += stop - begin
            begin = stop
            if self._since == CHUNK:
                yield from self.cut()

    def cut(self) -> Iterator[pa.RecordBatch]:
        """A run of rows ends: generators are asked, full buffers sent."""
        if not self._since:
            return
        self._since = 0
        try:
            self._chain.time.periodic()
        except Exception as error:
            raise explain(error, self._chain, self.done - 1, self._position) from error
        reached("mid batch")
        yield from self._task.full_rows(self._chain)

    def _taken(self, rows: ColumnBatch) -> bool:
        chain, count = self._chain, len(rows)
        assert chain.columns is not None
        chain.cursor.at_columns(self._source, self._start + self.done, count)
        try:
            return chain.columns(rows)
        except Exception as error:
            index = chain.cursor.position - self._start
            raise explain(error, chain, index, self._position) from error

    def _records(self, part: pa.RecordBatch) -> list[Any]:
        try:
            return list(as_records(part, part.num_columns))
        # Values that Python has not: a moment beyond its years, a text that is none.
        except Exception as error:
            where = self._position.replace("{index}", str(self.done))
            raise explain_source(error, self._chain.vertex.head, where) from error

    def _loop(self, records: list[Any]) -> None:
        chain, probe = self._chain, iter(records)
        chain.cursor.at(self._source, self._start + self.done, records, probe)
        try:
            chain.inputs[0](probe)
        except Exception as error:
            index = self.done + len(records) - length_hint(probe) - 1
            raise explain(error, chain, index, self._position) from error
