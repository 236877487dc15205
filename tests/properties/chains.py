"""Random chains: what they are made of, how a user would write them, and how one is run as a task runs it.

Records have a text, a number, a time and a list, which can be changed: a tuple, a list or a row of these.
"""

from __future__ import annotations

import pickle
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from millstream.api.error_policy import DeadLetter, ErrorPolicy
from millstream.api.sink import WriterContext
from millstream.common import Types
from millstream.common.constants import NO_TIME
from millstream.common.types import Row
from millstream.datastream import (
    OutputTag,
)
from millstream.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.graph.operators import BatchesOp, CollectOp, WindowOp
from millstream.graph.partitioning import Strategy
from millstream.graph.time import uses_timers
from millstream.runtime.task.slot import close_run, slot_for
from millstream.runtime.wire.codec import WATERMARK as MARK
from millstream.runtime.wire.codec import decode
from millstream.runtime.wire.keys import canonical
from tests.oracle import WATERMARK, Oracle, key_of
from tests.properties.chain_functions import (
    HEARD,
    SIDE,
    STRATEGIES,
    TYPED,
    Again,
    AnySource,
    BatchesOf,
    Before,
    Both,
    BothSeen,
    Change,
    ChangeSides,
    Chosen,
    CountKeys,
    FailFilter,
    FailFlat,
    FailKeyed,
    FailMap,
    FailProcess,
    FailReduce,
    FailTotal,
    First,
    Flat,
    Gather,
    Grow,
    Hear,
    HearSink,
    Keep,
    KeepBatches,
    KeepFilter,
    KeyedMeet,
    Meet,
    Modulo,
    Odd,
    PerWindow,
    Same,
    Seen,
    Split,
    Times,
    Total,
    Wake,
    add_up,
    as_list,
    by_number,
    change,
    fixed,
    in_batches,
    is_even,
    longer,
    plain,
    several,
    text_and_number,
    twice,
)
from tests.support import environment

LATE = OutputTag("late")
BAD = OutputTag("bad")

KINDS: dict[str, Callable[..., Any]] = {
    "tuple": lambda *fields: fields,
    "list": lambda *fields: list(fields),
    "row": lambda *fields: Row(*fields),
}


KEYS: dict[str, Callable[[Any], Any]] = {
    "field": lambda s: s.key_by(0),
    "inlined": lambda s: s.key_by(lambda v: v[0]),
    "called": lambda s: s.key_by(longer),
    "pair": lambda s: s.key_by(text_and_number),
    "number": lambda s: s.key_by(1),
    "typed": lambda s: s.key_by(1, Types.DOUBLE()),
    "typed text": lambda s: s.key_by(lambda v: v[0], Types.STRING()),
    "carried": lambda s: s.key_by(Chosen()),
}

EDGES: dict[str, Callable[[Any], Any]] = {
    "rebalance": lambda s: s.rebalance(),
    "rescale": lambda s: s.rescale(),
    "shuffle": lambda s: s.shuffle(),
    "broadcast": lambda s: s.broadcast(),
    "global": lambda s: s.global_(),
    "custom": lambda s: s.partition_custom(by_number, 1),
    "partitioner": lambda s: s.partition_custom(Modulo(), lambda v: v[1]),
}


FOLDS: dict[str, Callable[[Any], Any]] = {
    "count": lambda s: s.map(lambda v: (v[0], 1)).key_by(0).sum(1),
    "numbers": lambda s: s.map(lambda v: (v[0], v[1])).key_by(lambda v: v[0]).sum(1),
    "sum": lambda s: s.key_by(0).sum(1),
    "largest": lambda s: s.key_by(0).max_by(1),
    "reduce": lambda s: s.key_by(0).reduce(lambda a, b: (a[0], a[1] + b[1])),
}


@dataclass(frozen=True)
class End:
    """Where records leave the chain."""

    kind: str
    detail: str = ""
    parallelism: int = 1


@dataclass(frozen=True)
class Op:
    """An operator, and what reads its outputs: each an output and what comes behind it."""

    kind: str
    policy: str = "fail"
    readers: tuple[tuple[str, Op | End], ...] = ()


@dataclass(frozen=True)
class Head:
    """Where a chain begins."""

    kind: str
    key: str = "field"
    strategy: str = "none"


TYPE = Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG(), Types.LIST(Types.INT())])
FIXED = Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG(), Types.STRING()])
SMALL = Types.TUPLE([Types.STRING(), Types.BYTE(), Types.LONG(), Types.LIST(Types.INT())])

# Operators with one input, which follow each other in a chain.
PURE: dict[str, Callable[[Any], Any]] = {
    "plain": lambda s: s.map(plain),
    "same": lambda s: s.map(lambda v: v),
    "grow": lambda s: s.map(Grow()),
    "typed": lambda s: s.map(plain, TYPE),
    "typed list": lambda s: s.map(as_list, TYPE),
    "fixed": lambda s: s.map(fixed, FIXED),
    "pair": lambda s: s.map(lambda v: (v, 1)).map(lambda p: p[0]),
    "project": lambda s: s.project(0, 1, 2, 3),
    "several": lambda s: s.flat_map(several),
    "even": lambda s: s.filter(lambda v: v[1] % 2 == 0),
    "odd": lambda s: s.filter(Odd()),
    "split": lambda s: s.process(Split()),
    "map batches": lambda s: s.map_batches(in_batches(plain), 3),
    "map objects": lambda s: s.map_batches(BatchesOf(plain), 2, output_type=TYPE),
    "filter batches": lambda s: s.filter_batches(in_batches(is_even), 4),
    "flat map batches": lambda s: s.flat_map_batches(in_batches(several), 5),
    "again timed": lambda s: s.assign_timestamps_and_watermarks(STRATEGIES["bounded"]),
    "marks": lambda s: s.assign_timestamps_and_watermarks(STRATEGIES["generator"]),
}
SPOILING: dict[str, Callable[[Any], Any]] = {
    "change": lambda s: s.map(plain).map(change),
    "change object": lambda s: s.map(Change()),
    "change batches": lambda s: s.map_batches(in_batches(change), 3),
    "keep batches": lambda s: s.filter_batches(KeepBatches(), 2),
    "keep": lambda s: s.map(Keep()),
    "keep filter": lambda s: s.filter(KeepFilter()),
    "again": lambda s: s.flat_map(Again()),
    "twice": lambda s: s.flat_map(twice),
    "change sides": lambda s: s.process(ChangeSides()),
}
FAILING: dict[str, Callable[[Any], Any]] = {
    "fail map": lambda s: s.map(FailMap()),
    "fail flat map": lambda s: s.flat_map(FailFlat()),
    "fail filter": lambda s: s.filter(FailFilter()),
    "fail process": lambda s: s.process(FailProcess()),
    "fail map batches": lambda s: s.map_batches(in_batches(FailMap().map), 3),
    "fail filter batches": lambda s: s.filter_batches(in_batches(FailFilter().filter), 2),
    "fail flat map batches": lambda s: s.flat_map_batches(in_batches(FailFlat().flat_map), 3),
    "fail type batches": lambda s: s.map_batches(
        in_batches(lambda v: (v[0], v[1] * 60, v[2], [])), 4, output_type=SMALL
    ),
    "fail type": lambda s: s.map(lambda v: (v[0], v[1] * 60, v[2], []), SMALL),
}

# Operators that a chain begins with.
KEYED: dict[str, Callable[[Any], Any]] = {
    "reduce": lambda s: s.reduce(add_up),
    "sum": lambda s: s.sum(1),
    "min": lambda s: s.min(1),
    "max": lambda s: s.max(2),
    "min by": lambda s: s.min_by(1),
    "max by": lambda s: s.max_by(2),
    "count keys": lambda s: s.process(CountKeys()),
    "wake": lambda s: s.process(Wake()),
    "seen": lambda s: s.map(Seen()),
    "first": lambda s: s.filter(First()),
    "before": lambda s: s.flat_map(Before()),
    "typed seen": lambda s: s.map(Seen(), TYPE),
}
KEYED_SPOILING: dict[str, Callable[[Any], Any]] = {"gather": lambda s: s.reduce(Gather())}
KEYED_FAILING: dict[str, Callable[[Any], Any]] = {
    "fail keyed": lambda s: s.process(FailKeyed()),
    "fail reduce": lambda s: s.reduce(FailReduce()),
    "fail window": lambda s: s.window(TumblingEventTimeWindows.of(10)).aggregate(FailTotal()),
}


def _late(windows: Any) -> Any:
    return windows.allowed_lateness(6).side_output_late_data(LATE)


WINDOWS: dict[str, Callable[[Any], Any]] = {
    "tumbling": lambda s: _late(s.window(TumblingEventTimeWindows.of(10))).aggregate(Total()),
    "tumbling reduce": lambda s: s.window(TumblingEventTimeWindows.of(10, 3)).reduce(add_up),
    "tumbling late": lambda s: (
        s.window(TumblingEventTimeWindows.of(8)).side_output_late_data(LATE).reduce(add_up)
    ),
    "tumbling process": lambda s: s.window(TumblingEventTimeWindows.of(10)).aggregate(
        Total(), PerWindow()
    ),
    "sliding": lambda s: s.window(SlidingEventTimeWindows.of(12, 4)).aggregate(Total()),
    "sliding cut": lambda s: _late(s.window(SlidingEventTimeWindows.of(11, 4, 1))).aggregate(
        Total()
    ),
    "sliding gap": lambda s: (
        s.window(SlidingEventTimeWindows.of(3, 7)).side_output_late_data(LATE).aggregate(Total())
    ),
    "sliding reduce": lambda s: s.window(SlidingEventTimeWindows.of(12, 4)).reduce(add_up),
    "session": lambda s: s.window(EventTimeSessionWindows.with_gap(5)).aggregate(Total()),
    "session late": lambda s: _late(s.window(EventTimeSessionWindows.with_gap(5))).reduce(add_up),
}
TWO_KEYED: dict[str, Callable[[Any], Any]] = {
    "keyed meet": lambda s: s.process(KeyedMeet()),
    "both seen": lambda s: s.map(BothSeen()),
}
TWO_INPUTS: dict[str, Callable[[Any], Any]] = {
    "both": lambda s: s.map(Both()),
    "flat": lambda s: s.flat_map(Flat()),
    "meet": lambda s: s.process(Meet()),
}
SIDES = {
    "split": ("side", "typed"),
    "change sides": ("side",),
    "fail process": ("side",),
    "meet": ("side",),
    "keyed meet": ("side",),
    "count keys": ("side",),
    "wake": ("side",),
    "fail keyed": ("side",),
    "tumbling process": ("side",),
    "tumbling": ("late",),
    "tumbling late": ("late",),
    "sliding cut": ("late",),
    "sliding gap": ("late",),
    "session late": ("late",),
}
"""The side outputs of operators, by kind; those with letters have `bad` besides."""

TAGS = {"side": SIDE, "typed": TYPED, "late": LATE, "bad": BAD}
POLICIES = {
    "fail": ErrorPolicy.fail(),
    "skip": ErrorPolicy.skip(),
    "letters": ErrorPolicy.dead_letter(BAD),
}


@dataclass(frozen=True)
class Program:
    """A chain, and the settings that it runs with."""

    head: Head
    tree: Op
    parallelism: int = 1
    subtask: int = 0
    batch: bool = False
    reuse: bool = False
    timed: bool = False
    buffer: int = 8192


# -- building ----------------------------------------------------------------------------------------------------


class Builder:
    """Writes the program, as a user would."""

    def __init__(self, program: Program) -> None:
        self.program = program
        options = {"millstream__buffer__records": program.buffer}
        if program.batch:
            options["execution__runtime_mode"] = "BATCH"
        if program.reuse:
            options["pipeline__object_reuse"] = "true"
        self.env = environment(program.parallelism, **options)
        self._sinks = 0
        head = self._head()
        self.number = head._transformation.id
        self._read(head, program.tree)

    def _source(self, *, stamped: bool = False, strategy: str = "none") -> Any:
        return self.env.from_source(AnySource(stamped), STRATEGIES[strategy], "any")

    def _input(self) -> Any:
        """What comes to a chain that begins behind an exchange."""
        stream = self._source()
        if self.program.timed:
            stream = stream.assign_timestamps_and_watermarks(STRATEGIES["monotonous"])
        return stream

    def _head(self) -> Any:
        program, head, kind = self.program, self.program.head, self.program.tree.kind
        match head.kind:
            case "source":
                return self._source(strategy=head.strategy)
            case "stamped source":
                return self._source(stamped=True, strategy=head.strategy)
            case "keyed":
                every = KEYED | KEYED_SPOILING | KEYED_FAILING | WINDOWS
                stream = every[kind](KEYS[head.key](self._input()))
            case "two":
                stream = TWO_INPUTS[kind](self._input().connect(self._input()))
            case "two keyed":
                keys = KEYS[head.key]
                both = keys(self._input()).connect(keys(self._input()))
                stream = TWO_KEYED[kind](both)
            case _:
                stream = (PURE | SPOILING | FAILING)[kind](
                    self._input().union(self._input()).rebalance()
                )
        return stream.on_error(POLICIES[program.tree.policy])

    def _read(self, stream: Any, op: Op) -> None:
        for output, reader in op.readers:
            read = stream if output == "main" else stream.get_side_output(TAGS[output])
            if isinstance(reader, End):
                self._end(read, reader)
            else:
                made = (PURE | SPOILING | FAILING)[reader.kind](read)
                if not reader.kind.endswith(("timed", "marks")):
                    made.on_error(POLICIES[reader.policy])
                self._read(made, reader)

    def _end(self, stream: Any, end: End) -> None:
        self._sinks += 1
        match end.kind:
            case "print":
                stream.print(f"sink {self._sinks}")
            case "collect":
                stream._sink("Sink: Collect", CollectOp(None), like_input=True)
            case "sink function":
                stream.add_sink(Hear(self._sinks))
            case "sink":
                stream.sink_to(HearSink(self._sinks))
            case "forward":
                stream.process(Times()).disable_chaining().print()
            case "key":
                keyed = KEYS[end.detail](stream).map(Same())
                keyed.set_parallelism(end.parallelism).print()
            case "fold":
                FOLDS[end.detail](stream).set_parallelism(end.parallelism).print()
            case _:
                sent = EDGES[end.detail](stream).process(Times())
                sent.set_parallelism(end.parallelism).print()


# -- running -----------------------------------------------------------------------------------------------------

Step = tuple[str, Any]
"""("records", (input, records with timestamps)) or ("watermark", timestamp)."""


class Runs:
    """One program, to be run by the generated code and by the oracle."""

    def __init__(self, program: Program) -> None:
        self.program = program
        builder = Builder(program)
        job = builder.env._take_job("chain")
        self.spec = job.spec(tempfile.gettempdir())
        plan = job.plan
        vertex = next(v for v in plan.vertices if builder.number in {n.id for n in v.nodes})
        self.level, self.vertex = next(
            (number, one)
            for number, level in enumerate(self.spec.levels)
            for one in level.vertices
            if one.id == vertex.id
        )
        own, self.edges = self.vertex.load()
        self.keys = own.head.operator.keys
        # Which key of several fires first is nobody's promise.
        self.ordered = not any(
            isinstance(node.operator, WindowOp) or uses_timers(node.operator) for node in own.nodes
        )
        self.batches = any(isinstance(node.operator, BatchesOp) for node in own.nodes)

    def _ordered_by_key(self, steps: Iterable[Step]) -> list[list[tuple[int, Any, int]]]:
        """In a batch job with keys: each key's records, in the order of time."""
        by_key: dict[Any, list[tuple[int, Any, int]]] = {}
        for what, argument in steps:
            if what == "records":
                index, records = argument
                for record, timestamp in records:
                    key = canonical(key_of(self.keys[index], record))
                    by_key.setdefault(key, []).append((index, record, timestamp))
        for found in by_key.values():
            found.sort(key=lambda one: one[2])
        return list(by_key.values())

    # -- the generated code ------------------------------------------------------------------------------------

    def real(self, steps: list[Step]) -> dict[str, Any]:
        """What comes out of the chain that a task makes."""
        HEARD.clear()
        program, subtask = self.program, self.program.subtask
        slot = slot_for(self.spec, self.level, -1, subtask)
        try:
            self.chain = chain = slot.chain(self.vertex)
            chain.store.open(None)
            chain.leave_keys()
            chain.time.load([], subtask)
            for unit in chain.units:
                unit.initialize(restored=False)
            for unit in chain.units:
                unit.open()
            for writer in chain.writers.values():
                writer.begin(0)
            for unit in chain.units:
                unit.begin_epoch(WriterContext(subtask, program.parallelism, 0, "attempt"))
            if program.batch and self.keys:
                for found in self._ordered_by_key(steps):
                    for index, record, timestamp in found:
                        self._feed(index, [(record, timestamp)], 0)
                    for end in chain.key_ends:
                        end()
                    for table in chain.store.tables.values():
                        table.reset()
                    chain.leave_keys()
            else:
                for place, (what, argument) in enumerate(steps):
                    if what == "records":
                        index, records = argument
                        self._feed(index, records, place * 100)
                    elif program.head.kind == "stamped source":
                        chain.time.head_stage.emit_watermark(argument)
                    else:
                        chain.time.advance(argument)
            chain.time.settle()
            chain.time.end()
            for writer in chain.writers.values():
                writer.flush_all()
            return self._result(*self._rows(slot.rows))
        finally:
            close_run(self.spec.run_id)

    def _feed(self, index: int, records: list[tuple[Any, int]], first: int) -> None:
        chain, settings = self.chain, self.chain.settings
        values = pickle.loads(pickle.dumps([record for record, _ in records]))
        if index in settings.carried:
            values = [(key_of(self.keys[index], value), value) for value in values]
        probe = iter(values)
        chain.cursor.at("input", first, values, probe)
        if not settings.stamped:
            chain.inputs[index](probe)
        elif self.program.timed or self.program.head.kind == "stamped source":
            chain.inputs[index](zip(probe, [stamp for _, stamp in records], strict=True))
        else:
            chain.inputs[index](zip(probe, repeat(NO_TIME)))
        chain.time.periodic()
        for writer in chain.writers.values():
            writer.flush_full()

    def _rows(self, rows: Any) -> tuple[dict[int, list[Any]], dict[int, list[Any]]]:
        sent: dict[int, list[Any]] = {edge.id: [] for edge in self.edges}
        told: dict[int, list[Any]] = {}
        for row in rows.take().to_pylist():
            buffer = decode(row["payload"])
            stamps = buffer.timestamps or [NO_TIME] * len(buffer.records)
            if row["edge"] < 0:
                told.setdefault(-2 - row["edge"], []).extend(buffer.records)
                continue
            marks = list(buffer.marks)
            target = row["target"]
            out = sent[row["edge"]]
            for place in range(len(buffer.records) + 1):
                while marks and marks[0].place == place:
                    mark = marks.pop(0)
                    if mark.kind == MARK:
                        out.append((target, WATERMARK, mark.value))
                if place < len(buffer.records):
                    out.append((target, buffer.records[place], stamps[place]))
        return sent, told

    # -- the oracle ----------------------------------------------------------------------------------------------

    def oracle(self, steps: list[Step]) -> dict[str, Any]:
        """What should come out of it."""
        HEARD.clear()
        program = self.program
        vertex, edges = self.vertex.load()
        oracle = Oracle(vertex, edges, subtask=program.subtask, batch=program.batch)
        stamped = self.vertex.stamped and (program.timed or program.head.kind == "stamped source")
        if program.batch and self.keys:
            for found in self._ordered_by_key(steps):
                for index, record, timestamp in found:
                    oracle.record(record, timestamp if stamped else NO_TIME, index, ("input", 0))
                oracle.end_key()
        else:
            for place, (what, argument) in enumerate(steps):
                if what == "records":
                    index, records = argument
                    for number, (record, timestamp) in enumerate(records):
                        at = timestamp if stamped else NO_TIME
                        oracle.record(record, at, index, ("input", place * 100 + number))
                    oracle.periodic()
                elif program.head.kind == "stamped source":
                    oracle.source_watermark(argument)
                else:
                    oracle.watermark(argument)
        oracle.end()
        return self._result(oracle.sent, oracle.told)

    def _shown(self, value: Any) -> str:
        """A record as a text; of a letter what does not depend on how the operator was called."""
        if isinstance(value, DeadLetter):
            # Where a batch of results of windows or timers was read is not known.
            place = (0, 0) if self.batches and not self.ordered else value[1:3]
            value = (value[0], *place, value[3], pickle.loads(value.data), value.error)
        return value if value is WATERMARK else repr(value)

    # -- what can be compared ----------------------------------------------------------------------------------------

    def _result(self, sent: dict[int, list[Any]], told: dict[int, list[Any]]) -> dict[str, Any]:
        """What has come out, as far as anybody is promised something about its order."""
        result: dict[str, Any] = {}
        for edge in self.edges:
            strategy = edge.partitioning.strategy
            records = [(target, self._shown(value), at) for target, value, at in sent[edge.id]]
            name = f"{strategy.value} edge {edge.id}"
            if strategy is Strategy.SHUFFLE:
                assert {target for target, _, _ in records} <= {-1, *range(edge.target_parallelism)}
                marks = [one for one in records if one[1] == WATERMARK]
                result[f"{name} marks"] = Counter(marks)
                result[name] = Counter(one[1:] for one in records if one[1] != WATERMARK)
            elif not self.ordered and strategy in (Strategy.REBALANCE, Strategy.RESCALE):
                result[f"{name} targets"] = Counter(target for target, _, _ in records)
                result[name] = Counter(one[1:] for one in records if one[1] != WATERMARK)
            elif not self.ordered or (self.program.batch and strategy is Strategy.HASH):
                result[name] = Counter(records)
            else:
                by_target: dict[int, list[Any]] = {}
                for target, *rest in records:
                    by_target.setdefault(target, []).append(tuple(rest))
                result[name] = by_target
        order: Callable[[Any], Any] = list if self.ordered else Counter
        for node, records in told.items():
            result[f"to the driver from {node}"] = order(map(self._shown, records))
        if self.batches:
            # Between two sinks the order is nobody's promise: only one of them may stand behind a batch.
            HEARD.sort(key=lambda heard: str(heard[0]))
        result["sinks"] = order(HEARD)
        return result
