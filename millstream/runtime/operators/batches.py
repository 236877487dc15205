"""Functions over many records at once: `map_batches`, `filter_batches`, `flat_map_batches`.

Generated code appends each record to a list. The function is called when the list is full, and with what there is
wherever records must not wait: at the end of a split or an epoch, before a subtask says that it is idle, before timers
of the clock fire. So a checkpoint never holds half a batch.

A watermark that comes while records wait does not end the batch. It is noted with its place and goes on between the
results of the records that it came between ([0055](../../../docs/decisions/0055-a-watermark-waits-with-its-batch.md)):

```
comes in     r1  r2  w1  r3  w2  r4      the batch is full: the function is called once
goes on      f(r1)  f(r2)  w1  f(r3)  w2  f(r4)
```

With an error policy, a batch whose call fails is called for again record by record: the bad ones are found, the others
lose nothing but time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import accumulate, chain, compress
from typing import Any

from millstream.api.error_policy import ErrorPolicy
from millstream.api.functions import Function, RuntimeContext
from millstream.common.constants import MAX_TIME
from millstream.errors import MillstreamError, UnsupportedOperation, UserFunctionError, told
from millstream.graph import operators as ops
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.in_operator import Step
from millstream.runtime.base.several import SEVERAL, check_several
from millstream.runtime.base.text import shorten
from millstream.runtime.base.user_lines import user_line, user_traceback
from millstream.runtime.codegen.bad_records import BadRecords, Cursor, Place
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.outlet import Outlet
from millstream.runtime.codegen.unit import OperatorUnit
from millstream.runtime.operators.batch_formats import (
    FORMATS,
    BatchShape,
    mask_of,
    records_of,
    shape_of,
)
from millstream.runtime.operators.one_by_one import comes_one_by_one, leads_to_letters
from millstream.runtime.state.copying import own

__all__ = ["batches_unit"]

Results = tuple[list[Any], list[int] | None]
"""What goes on, and for each record how many of them are its; None if it is one each."""


Mark = tuple[int, Step, int]
"""How many records came before a watermark, what it goes through, and the watermark. Or another step of time."""


class Batches:
    """The records that wait in one operator of one subtask, and the watermarks between them."""

    def __init__(self, unit: BatchesUnit, cursor: Cursor, *, tracked: bool, copies: bool) -> None:
        self.forward: Step = _nowhere
        # Lists that generated code appends to.
        self.records: list[Any] = []
        self.stamps: list[int] = []
        self.places: list[Place] = []
        self._tracked = tracked
        self._marks: list[Mark] = []
        # A watermark for each record is usual; more come if a filter stands between them and the batch.
        self._most_marks = max(unit.op.batch_size, 1024)
        self._first: Place = ("", 0)
        self._unit = unit
        self._cursor = cursor
        self._copies = copies
        self.send: Callable[..., None] = _nowhere

    def begin(self) -> None:
        """The first record of a batch comes."""
        self._first = self._cursor.place()

    def hold(self, watermark: int) -> None:
        """A watermark comes: it waits with the records that came before it."""
        self.after(self.forward, watermark)
        if watermark == MAX_TIME or len(self._marks) >= self._most_marks:
            self.flush()

    def after(self, step: Step, value: int) -> None:
        """Take a step once the records that wait have gone on."""
        if self.records:
            self._marks.append((len(self.records), step, value))
        else:
            step(value)

    def release(self, _: int = 0) -> None:
        """Let go of what waits."""
        self.flush()

    def flush(self) -> None:
        """Call the function with what there is, and hand on what comes of it."""
        records = self.records[:]
        if not records:
            return
        stamps, places, marks = self.stamps[:], self.places[:], self._marks
        self.records.clear()
        self.stamps.clear()
        self.places.clear()
        self._marks = []
        bad = self._unit.bad
        if bad is None:
            try:
                results, counts = self._unit.called(records)
            except Exception as error:
                raise self._explained(error, records) from error
        else:
            bad.seen += len(records)
            # The function may change what it is given before it fails.
            kept = list(map(own, records)) if self._copies else records
            try:
                results, counts = self._unit.called(records)
            except Exception as error:
                self._one_by_one(bad, error, kept, stamps, places, marks)
                return
        self._hand_on(results, counts, stamps, places, marks)

    def _hand_on(
        self,
        results: list[Any],
        counts: list[int] | None,
        stamps: list[int],
        places: list[Place],
        marks: list[Mark],
    ) -> None:
        """Results with the timestamps of their records, and watermarks where they came."""
        if counts is not None:
            ends = [0, *accumulate(counts)]
            marks = [(ends[place], step, value) for place, step, value in marks]
            stamps = _repeated(stamps, counts)
            places = _repeated(places, counts) if self._tracked else []
        done = 0
        for place, step, value in marks:
            if place > done:
                self._send(results, stamps, places, done, place)
                done = place
            step(value)
        self._send(results, stamps, places, done, len(results))

    def _send(
        self, results: list[Any], stamps: list[int], places: list[Place], start: int, end: int
    ) -> None:
        if start or end < len(results):
            results, stamps, places = results[start:end], stamps[start:end], places[start:end]
        if not self._tracked:
            self.send(results, stamps)
            return
        for result, stamp, place in zip(results, stamps, places, strict=True):
            self._cursor.pin(place)
            self.send([result], [stamp])
        self._cursor.pin(None)

    def _one_by_one(
        self,
        bad: BadRecords,
        error: Exception,
        records: list[Any],
        stamps: list[int],
        places: list[Place],
        marks: list[Mark],
    ) -> None:
        """Which records are bad? Each is tried alone, and goes on if it is not."""
        waiting = deque(marks)
        for number, record in enumerate(records):
            _take(waiting, number)
            place = places[number : number + 1]
            try:
                if len(records) == 1:
                    # It was alone.
                    raise error
                again = own(record) if self._copies else record
                results, counts = self._unit.called([again])
            except Exception as failure:
                self._cursor.pin(place[0] if place else None)
                letter = bad.take(failure, record)
                if self._unit.letters is not None:
                    self._unit.letters(letter, stamps[number])
                self._cursor.pin(None)
            else:
                self._hand_on(results, counts, stamps[number : number + 1], place, [])
        _take(waiting, len(records))

    def _explained(self, error: Exception, records: list[Any]) -> MillstreamError:
        """The error for a batch, which is about more than the record at hand."""
        name, count = self._unit.node.name, len(records)
        (source, first), last = self._first, self._cursor.place()
        position = "the operator does not read its input directly"
        if self._unit.direct:
            position = f"{source}, records {first} to {last[1]}"
            if last[0] != source:
                position = f"{source}, record {first}, to {last[0]}, record {last[1]}"
        ends = [shorten(records[0]), shorten(records[-1])]
        facts: dict[str, Any] = {
            "operator": name,
            "line": user_line(error.__traceback__),
            "batch": _many(count, "record"),
            "record": ends[0] if count == 1 else f"from {ends[0]} to {ends[1]}",
            "position": position,
        }
        if isinstance(error, MillstreamError):
            return type(error)(error.what, hint=error.hint, **{**facts, **error.evidence})
        return UserFunctionError(
            f"the function of '{name}' raised {told(error)}",
            **facts,
            traceback=user_traceback(error, error.__traceback__),
        )


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
        self.direct = comes_one_by_one(builder, node)
        self._tracked = self.direct and leads_to_letters(builder.tree, node)
        copies = not builder.settings.object_reuse
        # What does not fit its declared type, or cannot be copied, is the record's failure where that is not the job's.
        self._fits: list[Callable[[Any], Any]] = []
        if self.bad is not None and node.output_type is not None:
            self._fits.append(node.output_type.convert)
        if self.bad is not None and copies:
            self._fits.append(own)
        self.holder = self._batches = Batches(
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
        raise NotImplementedError

    def _asked(self, records: list[Any]) -> tuple[Any, BatchShape]:
        """What the function gives for a batch, and what the records were."""
        if self._columns is None:
            # A list of its own: it may change it.
            return self._call(records[:]), BatchShape()
        shape = shape_of(records)
        return self._call(self._columns(records, shape)), shape

    def _check(self, count: int, what: str, records: list[Any]) -> None:
        if count != len(records):
            raise UserFunctionError(
                f"{self._who} gave {_many(count, what)} for {_many(len(records), 'record')}",
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

    def called(self, records: list[Any]) -> Results:
        """Results as the function gave them, or as Python values if it gave arrays or columns."""
        results = records_of(*self._asked(records), self._who)
        self._check(len(results), "result", records)
        return self._fitted(results), None


class _FilterUnit(BatchesUnit):
    """A mask says which records go on."""

    hint = "give one boolean for each record, in their order"

    def called(self, records: list[Any]) -> Results:
        """The records themselves, whatever the function was given of them."""
        mask = mask_of(self._asked(records)[0], self._who)
        self._check(len(mask), "boolean", records)
        return list(compress(records, mask)), list(map(int, mask))


class _FlatMapUnit(BatchesUnit):
    """For each record any number of results."""

    hint = "give an iterable for each record, in their order, [] for one without results"

    def called(self, records: list[Any]) -> Results:
        """The results of all records one after the other."""
        result, shape = self._asked(records)
        if isinstance(result, dict) or hasattr(result, "columns"):
            raise UserFunctionError(
                f"{self._who} gave columns, and an iterable for each record is wanted",
                returned=type(result).__name__,
                hint=self.hint,
            )
        # The rows of an array are results of a record each, not tuples.
        rows = getattr(result, "ndim", 1) > 1
        each = list(result) if rows else records_of(result, shape, self._who)
        self._check(len(each), "iterable", records)
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


def _many(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _take(waiting: deque[Mark], count: int) -> None:
    """Take the steps of time that are due after so many records."""
    while waiting and waiting[0][0] <= count:
        _, step, value = waiting.popleft()
        step(value)


def _repeated(values: list[Any], counts: Iterable[int]) -> list[Any]:
    return [value for value, count in zip(values, counts, strict=True) for _ in range(count)]


def _nowhere(*_: Any) -> None:
    raise AssertionError("the chain has not been built")
