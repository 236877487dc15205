"""Functions over many records at once: `map_batches`, `filter_batches`, `flat_map_batches`.

Generated code appends each record to a list. The function is called when the list is full, and with what there is
wherever records must not wait: at the end of a split or an epoch, before a subtask says that it is idle, before timers
of the clock fire. So a checkpoint never holds half a batch.

What waits, and what goes on in which order, is the business of [`gathering.py`](gathering.py); here is what generated
code does for a record, and what the results of a function mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import chain, compress
from typing import Any

import pyarrow as pa

from millstream.api.error_policy import ErrorPolicy
from millstream.api.functions import Function, RuntimeContext
from millstream.errors import UnsupportedOperation, UserFunctionError
from millstream.graph import operators as ops
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.several import SEVERAL, check_several
from millstream.runtime.base.text import many, shorten
from millstream.runtime.codegen.bad_records import BadRecords
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.outlet import Outlet
from millstream.runtime.codegen.unit import OperatorUnit
from millstream.runtime.columns.batch import ColumnBatch
from millstream.runtime.columns.given import COLUMNS_AS
from millstream.runtime.columns.results import columns_of, flat_columns_of
from millstream.runtime.columns.shapes import VALUES, BatchShape, shape_of
from millstream.runtime.operators.batch_formats import FORMATS, mask_array, mask_of, records_of
from millstream.runtime.operators.gathering import Gathering, Results
from millstream.runtime.operators.one_by_one import comes_one_by_one, leads_to_letters
from millstream.runtime.state.copying import own

__all__ = ["batches_unit"]


class BatchesUnit(OperatorUnit[ops.BatchesOp]):
    """What the three have in common: records are gathered, and go on together.

    An error policy is the operator's own business: what fails is not the record at hand.
    """

    hint = ""

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node)
        policy: ErrorPolicy | None = node.error_policy
        self.letters: Outlet | None = None
        if policy is not None and policy.kind != "fail":
            self.bad = BadRecords(node, builder.cursor)
            self.letters = None if policy.tag is None else Outlet()
        function = self.op.function
        if isinstance(function, Function):
            self.opens(function)
            self._call = getattr(function, f"{self.op.kind}_batches")
        else:
            self._call = function
        self._columns = FORMATS.get(self.op.batch_format)
        self.stamped = False
        """True if the records have timestamps."""
        self.direct = comes_one_by_one(builder, node)
        self._tracked = self.direct and leads_to_letters(builder.tree, node)
        copies = not builder.settings.object_reuse
        # What does not fit its declared type, or cannot be copied, is the record's failure where that is not the job's.
        self._fits: list[Callable[[Any], Any]] = []
        if self.bad is not None and node.output_type is not None:
            self._fits.append(node.output_type.convert)
        if self.bad is not None and copies:
            self._fits.append(own)
        self.holder = self._batches = Gathering(
            self, builder.cursor, tracked=self._tracked, copies=copies
        )

    @cached_property
    def context(self) -> RuntimeContext:
        """What the function is opened with: a batch is of no key."""
        return self.context_with(_NoKeyedState(self.node.name))

    # -- lines ----------------------------------------------------------------------------------------------

    def lines(self, record: str, index: int) -> None:
        """The record waits; if enough do, the function is called."""
        code, batches = self.code, self._batches
        self.stamped = self.stamped or self.builder.stamped
        batch, stamps = code.bind(batches.records, "batch"), code.bind(batches.stamps, "stamps")
        with code.block(f"if not {batch}:"):
            code.line(f"{code.bind(batches.begin, 'begin')}()")
        code.line(f"{batch}.append({record})")
        code.line(f"{stamps}.append({self.builder.stamp()})")
        if self._tracked:
            places = code.bind(batches.places, "places")
            cursor = code.bind(self.builder.cursor, "cursor")
            code.line(f"{places}.append({cursor}.place())")
        with code.block(f"if len({batch}) >= {self.op.batch_size}:"):
            code.line(f"{code.bind(batches.flush, 'call')}()")

    def write_entries(self) -> None:
        """For the results of a batch, and for letters about what failed."""
        code, builder = self.code, self.builder
        with builder.entry("results", "results", self._attach) as results:
            stamps, result, stamp = builder.stamp(), code.fresh("result"), code.fresh("timestamp")
            self.at(result, "result")
            with (
                builder.each(f"for {result}, {stamp} in zip({results}, {stamps}):"),
                builder.stamped_by(stamp),
            ):
                self.emit(result)
        if self.letters is not None:
            self.write_side_entry("letter", self.letters, self.node.error_policy.tag.tag_id)

    def _attach(self, send: Callable[..., None]) -> None:
        self._batches.send = send

    # -- columns --------------------------------------------------------------------------------------------

    def takes_columns(self) -> bool:
        """True if the function is given columns; but letters need to know of each record where it was read."""
        return self._columns is not None and not self._tracked

    def gives_columns(self) -> bool:
        """True if what the function gives need not be looked at one by one."""
        return self.takes_columns() and not self._fits

    def take_columns(self, batch: ColumnBatch) -> bool:
        """The rows wait, until enough do."""
        return self._batches.take_columns(batch)

    # -- time -----------------------------------------------------------------------------------------------

    def advance(self, watermark: int) -> None:
        """The watermark goes on, or waits with the records that came before it."""
        self._batches.hold(watermark)

    def settle(self, watermark: int) -> None:
        """Nothing waits for what is of another split or another epoch."""
        self._batches.flush()

    # -- the function ---------------------------------------------------------------------------------------

    def called(self, records: list[Any]) -> Results:
        """What the function makes of some records."""
        if self._columns is None:
            # A list of its own: it may change it.
            result, shape = self._call(records[:]), VALUES
        else:
            shape = shape_of(records)
            result = self._call(self._columns(records, shape))
        return self._results(result, shape, len(records), records)

    def called_with(self, table: pa.Table, shape: BatchShape) -> Results:
        """What the function makes of rows that are columns."""
        result = self._call(COLUMNS_AS[self.op.batch_format](table, shape))
        return self._results(result, shape, table.num_rows, table)

    def _results(self, result: Any, shape: BatchShape, count: int, given: Any) -> Results:
        """What the function has given for so many records: `given`, a list or a table."""
        raise NotImplementedError

    def _check(self, found: int, what: str, count: int) -> None:
        if found != count:
            raise UserFunctionError(
                f"{self._who} gave {many(found, what)} for {many(count, 'record')}",
                hint=self.hint,
            )

    def _fitted(self, results: list[Any]) -> list[Any]:
        for fit in self._fits:
            results = list(map(fit, results))
        return results

    @property
    def _who(self) -> str:
        return f"the function of '{self.node.name}'"


class _MapUnit(BatchesUnit):
    """One result for each record."""

    one_for_one = True
    hint = "give one result for each record, in their order; for any number use flat_map_batches"

    def _results(self, result: Any, shape: BatchShape, count: int, given: Any) -> Results:
        """Results as the function gave them, or as Python values if it gave arrays or columns that nobody takes."""
        columns = None if self.columns is None else columns_of(result, shape)
        if columns is not None:
            self._check(len(columns), "result", count)
            return columns, None
        results = records_of(result, shape, self._who)
        self._check(len(results), "result", count)
        return self._fitted(results), None


class _FilterUnit(BatchesUnit):
    """A mask says which records go on."""

    hint = "give one boolean for each record, in their order"

    def _results(self, result: Any, shape: BatchShape, count: int, given: Any) -> Results:
        """The records themselves, or the rows, whatever the function was given of them."""
        if isinstance(given, list):
            mask = mask_of(result, self._who)
            self._check(len(mask), "boolean", count)
            return list(compress(given, mask)), list(map(int, mask))
        flags = mask_array(result, self._who)
        self._check(len(flags), "boolean", count)
        kept = given.filter(pa.array(flags)).combine_chunks().to_batches()
        data = kept[0] if kept else pa.RecordBatch.from_pylist([], given.schema)
        return ColumnBatch(data, shape, None), flags


class _FlatMapUnit(BatchesUnit):
    """For each record any number of results."""

    hint = "give an iterable for each record, in their order, [] for one without results"

    def _results(self, result: Any, shape: BatchShape, count: int, given: Any) -> Results:
        """The results of all records one after the other."""
        flat = None if self.columns is None else flat_columns_of(result)
        if flat is not None:
            columns, counts = flat
            self._check(len(counts), "iterable", count)
            return columns, counts
        if isinstance(result, dict) or hasattr(result, "columns"):
            raise UserFunctionError(
                f"{self._who} gave columns, and an iterable for each record is wanted",
                returned=type(result).__name__,
                hint=self.hint,
            )
        # The rows of an array are results of a record each, not tuples.
        rows = getattr(result, "ndim", 1) > 1
        each = list(result) if rows else records_of(result, shape, self._who)
        self._check(len(each), "iterable", count)
        of_each = [self._of_one(results, shape) for results in each]
        return self._fitted(list(chain.from_iterable(of_each))), list(map(len, of_each))

    def _of_one(self, results: Any, shape: BatchShape) -> list[Any]:
        if type(results) not in SEVERAL:
            check_several(results)
            if isinstance(results, set | frozenset):
                return list(results)
            if not isinstance(results, Iterable):
                raise UserFunctionError(
                    f"{self._who} gave one {type(results).__name__} for a record, and an iterable is wanted",
                    returned=shorten(results),
                    hint=self.hint,
                )
        return records_of(results, shape, f"{self._who} for one record")


_UNITS: dict[str, type[BatchesUnit]] = {
    "map": _MapUnit,
    "filter": _FilterUnit,
    "flat_map": _FlatMapUnit,
}


def batches_unit(builder: ChainBuilder, node: StreamNode) -> BatchesUnit:
    """The unit for what the results of the function mean."""
    operator = node.operator
    assert isinstance(operator, ops.BatchesOp)
    return _UNITS[operator.kind](builder, node)


class _NoKeyedState:
    """In the place of keyed states: a batch has records of many keys."""

    def __init__(self, name: str) -> None:
        self._name = name

    def get(self, descriptor: Any, kind: str) -> Any:
        """Refused: raises `UnsupportedOperation`."""
        raise UnsupportedOperation(
            f"'{self._name}' takes records of any key in a batch, so it cannot have keyed state",
            operator=self._name,
            state=getattr(descriptor, "name", None),
            hint="use map, flat_map or process behind key_by; for what belongs to no key, CheckpointedFunction",
        )
