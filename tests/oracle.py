"""A slow interpreter of one chain, to hold the generated code against.

It takes what a chain is made of, and walks the tree of operators for each record, by plain calls: an operator's own
method says what it does, `_emit` hands each result to everything that reads it. State is dictionaries, windows keep all
their records, every reader gets a deep copy. It knows nothing of the code that is generated and of how operators run.
"""

from __future__ import annotations

import copy
import functools
import pickle
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from millstream.api.error_policy import DeadLetter
from millstream.api.functions import (
    AggregateFunction,
    Function,
    KeySelector,
    Partitioner,
    RuntimeContext,
    SinkFunction,
)
from millstream.api.output_tag import OutputTag
from millstream.api.session_windows import EventTimeSessionWindows
from millstream.api.sink import WriterContext
from millstream.api.windows import TimeWindow
from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.common.types import Row, format_row, format_value
from millstream.errors import told
from millstream.graph import operators as ops
from millstream.graph.job_graph import JobVertex
from millstream.graph.level_plan import Edge
from millstream.graph.partitioning import Strategy
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.text import shorten
from millstream.runtime.wire.keys import canonical, key_group, subtask_of

Sent = tuple[int, Any, int]
"""What goes along an edge: the number of the target, the record, the timestamp."""

WATERMARK = "watermark"
"""In the place of a record: what goes along the edge is a watermark."""


class Oracle:
    """One subtask's chain. After the last record, `sent`, `told` and `written` say what has come out of it."""

    def __init__(
        self,
        vertex: JobVertex,
        edges: list[Edge],
        *,
        subtask: int = 0,
        batch: bool = False,
        epoch: int = 0,
    ) -> None:
        self.vertex = vertex
        self.edges = edges
        self.subtask = subtask
        self.batch = batch
        self.sent: dict[int, list[Sent]] = {edge.id: [] for edge in edges}
        # By edge: whose turn it is.
        self._turn: dict[int, int] = {edge.id: subtask + epoch for edge in edges}
        # By operator: what goes to the driver.
        self.told: dict[int, list[Any]] = {}
        # By edge, for a batch job: the records that are combined before they are sent, by key.
        self._combined: dict[int, dict[Any, Any]] = {edge.id: {} for edge in edges}
        self._nodes = {node.id: _Node(self, node) for node in vertex.nodes}
        self._ending = False

    # -- what comes in --------------------------------------------------------------------------------------

    def record(
        self,
        value: Any,
        timestamp: int = NO_TIME,
        index: int = 0,
        place: tuple[str, int] = ("", 0),
    ) -> None:
        """A record of input number `index`; `place` is where it was read."""
        self.place = place
        self._nodes[self.vertex.head.id].take(copy.deepcopy(value), timestamp, index)

    def watermark(self, watermark: int) -> None:
        """The watermark of the head's inputs has moved on."""
        self._pass(self._nodes[self.vertex.head.id], watermark)

    def source_watermark(self, watermark: int) -> None:
        """A watermark that the source has put between its records."""
        self._nodes[self.vertex.head.id].watermark_made(watermark)

    def periodic(self) -> None:
        """Generators of watermarks are asked."""
        for node in self._nodes.values():
            node.periodic()

    def end_key(self) -> None:
        """In a batch job: the key at hand has no more records, and is forgotten."""
        for node in self._nodes.values():
            node.end_key()

    def end(self) -> None:
        """Nothing more comes."""
        self._ending = True
        self.periodic()
        self.watermark(MAX_TIME)
        for node in self._nodes.values():
            if node.strategy is not None:
                node.watermark_made(MAX_TIME)
        for edge in self.edges:
            for record in self._combined[edge.id].values():
                self._send(edge, record, NO_TIME)

    # -- what goes on ---------------------------------------------------------------------------------------

    def emit(self, node: StreamNode, value: Any, timestamp: int, tag: str | None) -> None:
        """Hand a result to everything that reads it."""
        for inner in self.vertex.inner:
            if (inner.source, inner.tag_id) == (node.id, tag):
                self._nodes[inner.target].take(copy.deepcopy(value), timestamp, 0)
        for edge in self.edges:
            if (edge.source_node, edge.tag_id) == (node.id, tag):
                self._combine_or_send(edge, copy.deepcopy(value), timestamp)

    def declared_type(self, node: StreamNode, tag: str | None) -> Any:
        """What results of an output are made to fit."""
        if tag is None:
            return node.output_type
        readers = [(e.source, e.tag_id, e.tag_type) for e in self.vertex.inner]
        readers += [(e.source_node, e.tag_id, e.tag_type) for e in self.edges]
        types = [
            tag_type
            for source, tag_id, tag_type in readers
            if (source, tag_id) == (node.id, tag) and tag_type is not None
        ]
        return types[-1] if types else None

    def _combine_or_send(self, edge: Edge, value: Any, timestamp: int) -> None:
        if edge.combiner is None:
            self._send(edge, value, timestamp)
            return
        held = self._combined[edge.id]
        key = canonical(key_of(edge.partitioning.key, value))
        held[key] = edge.combiner(held[key], value) if key in held else value

    def _send(self, edge: Edge, value: Any, timestamp: int) -> None:
        targets = edge.targets_of(self.subtask)
        count = edge.target_parallelism
        match edge.partitioning.strategy:
            case Strategy.FORWARD:
                chosen = [self.subtask % count]
            case Strategy.GLOBAL:
                chosen = [0]
            case Strategy.BROADCAST:
                chosen = list(range(count))
            case Strategy.REBALANCE | Strategy.RESCALE:
                chosen = [targets[self._turn[edge.id] % len(targets)]]
                self._turn[edge.id] += 1
            case Strategy.SHUFFLE:
                # Any of them.
                chosen = [-1]
            case Strategy.HASH:
                key = key_of(edge.partitioning.key, value)
                group = key_group(canonical(key), edge.target_max_parallelism)
                chosen = [subtask_of(group, count, edge.target_max_parallelism)]
                value = (key, value) if edge.carries_key else value
            case Strategy.CUSTOM:
                partitioner = edge.partitioning.partitioner
                if isinstance(partitioner, Partitioner):
                    partitioner = partitioner.partition
                chosen = [partitioner(key_of(edge.partitioning.key, value), count)]
        if not edge.stamped:
            timestamp = NO_TIME
        self.sent[edge.id].extend((target, value, timestamp) for target in chosen)

    # -- time -----------------------------------------------------------------------------------------------

    def _pass(self, node: _Node, watermark: int) -> None:
        """A watermark reaches an operator, and goes on from there, unless the operator makes its own."""
        if node.strategy is not None:
            if watermark == MAX_TIME:
                node.periodic()
                node.watermark_made(MAX_TIME)
            return
        node.advance(watermark)
        self.pass_on(node.node, watermark)

    def pass_on(self, node: StreamNode, watermark: int) -> None:
        """A watermark leaves an operator. At the end of a job others learn of it otherwise."""
        for edge in self.edges:
            if edge.source_node == node.id and edge.watermarked and not self._ending:
                for target in edge.targets_of(self.subtask):
                    self.sent[edge.id].append((target, WATERMARK, watermark))
        readers = dict.fromkeys(e.target for e in self.vertex.inner if e.source == node.id)
        for target in readers:
            self._pass(self._nodes[target], watermark)


class _Node:
    """One operator: what it does with a record, and what it keeps."""

    def __init__(self, oracle: Oracle, node: StreamNode) -> None:
        self.oracle = oracle
        self.node = node
        self.op: Any = node.operator
        self.strategy = getattr(self.op, "strategy", None)
        # The state, by key; and the key at hand, in its canonical form and as it is.
        self.state: dict[Any, Any] = {}
        self.key: tuple[Any, Any] = (None, None)
        self.watermark = NO_TIME
        self.timestamp = NO_TIME
        self.largest = NO_TIME
        self.generator = None
        if self.strategy is not None and self.strategy.generator_supplier is not None:
            self.generator = self.strategy.generator_supplier()
        # The results of a record whose failure is not the job's, until it is known that it does not fail.
        self.held: list[tuple[Any, int, str | None]] | None = None
        for function in (self.op.user_function, getattr(self.op, "incremental", None)):
            if isinstance(function, Function):
                function.open(self._runtime_context())
        self.writer: Any = None
        if isinstance(self.op, ops.SinkOp):
            context = WriterContext(oracle.subtask, node.parallelism, 0, "", "", node.uid)
            self.writer = self.op.sink.create_writer(context)

    # -- records --------------------------------------------------------------------------------------------

    def take(self, value: Any, timestamp: int, index: int) -> None:
        """A record comes in. With an error policy nothing of it remains if it fails."""
        policy = self.node.error_policy
        if policy is None or policy.kind == "fail":
            self._process(value, timestamp, index)
            return
        as_it_came, state = copy.deepcopy(value), copy.deepcopy(self.state)
        self.held = []
        try:
            self._process(value, timestamp, index)
        except Exception as error:
            self.held, self.state = None, state
            if policy.tag is not None:
                letter = self._letter(error, as_it_came)
                self.oracle.emit(self.node, letter, timestamp, policy.tag.tag_id)
            return
        held, self.held = self.held, None
        for result, at, tag in held:
            self.oracle.emit(self.node, result, at, tag)

    def _letter(self, error: Exception, record: Any) -> DeadLetter:
        source, position = self.oracle.place
        text = "".join(traceback.format_exception(error))
        return DeadLetter(
            self.node.name,
            source,
            position,
            shorten(record),
            pickle.dumps(record),
            told(error),
            text,
        )

    def _emit(self, value: Any, timestamp: int, tag: str | None = None) -> None:
        """A result: it is made to fit its declared type, and goes on as it is now."""
        declared = self.oracle.declared_type(self.node, tag)
        if declared is not None:
            value = declared.convert(value)
        if self.held is None:
            self.oracle.emit(self.node, value, timestamp, tag)
        else:
            self.held.append((copy.deepcopy(value), timestamp, tag))

    def _emit_results(self, results: Iterable[Any] | None, timestamp: int) -> None:
        """Results of a process function, of which each may be for a side output."""
        for result in results or ():
            if type(result) is tuple and len(result) == 2 and isinstance(result[0], OutputTag):
                self._emit(result[1], timestamp, result[0].tag_id)
            else:
                self._emit(result, timestamp)

    def _process(self, value: Any, timestamp: int, index: int) -> None:
        op = self.op
        self.timestamp = timestamp
        if index < len(op.keys):
            key = key_of(op.keys[index], value)
            self.key = canonical(key), key
        match op:
            case ops.SourceOp() | ops.FrameSourceOp() | ops.AssignOp():
                self._stamp(value, timestamp)
            case ops.MapOp():
                self._emit(call(op.function, "map")(value), timestamp)
            case ops.FlatMapOp():
                for result in call(op.function, "flat_map")(value):
                    self._emit(result, timestamp)
            case ops.FilterOp():
                if call(op.function, "filter")(value):
                    self._emit(value, timestamp)
            case ops.BatchesOp():
                # A batch of one record.
                function = call(op.function, f"{op.kind}_batches")
                [result] = function([copy.deepcopy(value)])
                if op.kind == "map":
                    self._emit(result, timestamp)
                elif op.kind == "flat_map":
                    for each in result:
                        self._emit(each, timestamp)
                elif result:
                    self._emit(value, timestamp)
            case ops.ProjectOp():
                fields = [value[field] for field in op.fields]
                self._emit(Row(*fields) if isinstance(value, Row) else tuple(fields), timestamp)
            case ops.CoMapOp():
                result = getattr(op.function, f"map{index + 1}")(value)
                if result is not None:
                    self._emit(result, timestamp)
            case ops.CoFlatMapOp():
                for result in getattr(op.function, f"flat_map{index + 1}")(value) or ():
                    self._emit(result, timestamp)
            case ops.ProcessOp() | ops.KeyedProcessOp():
                self._emit_results(op.function.process_element(value, self._context()), timestamp)
            case ops.CoProcessOp() | ops.KeyedCoProcessOp():
                method = getattr(op.function, f"process_element{index + 1}")
                self._emit_results(method(value, self._context()), timestamp)
            case ops.ReduceOp():
                self._fold(call(op.function, "reduce"), value, timestamp)
            case ops.RollingOp():
                self._fold(functools.partial(roll, op.kind, op.field), value, timestamp)
            case ops.WindowOp():
                self._add_to_windows(value, timestamp)
            case ops.SinkFunctionOp():
                context = SinkFunction.Context()
                context._timestamp = None if timestamp == NO_TIME else timestamp
                call(op.function, "invoke")(value, context)
            case ops.SinkOp():
                self.writer.write(value)
            case ops.PrintOp():
                number = f"{self.oracle.subtask + 1}" if self.node.parallelism > 1 else ""
                prefix = ":".join(part for part in (op.identifier or "", number) if part)
                text = format_row(value) if isinstance(value, Row) else format_value(value)
                self._tell(f"{prefix}> {text}" if prefix else text)
            case ops.CollectOp():
                self._tell(value)
            case _:
                raise NotImplementedError(type(op).__name__)

    def _tell(self, value: Any) -> None:
        self.oracle.told.setdefault(self.node.id, []).append(value)

    def _fold(self, function: Callable[[Any, Any], Any], value: Any, timestamp: int) -> None:
        """Each key has one value; in a batch job only the last one is given out."""
        key = self.key[0]
        if key in self.state:
            value = function(copy.deepcopy(self.state[key]), value)
        self.state[key] = copy.deepcopy(value)
        if not self.oracle.batch:
            self._emit(value, timestamp)

    # -- what functions may ask -----------------------------------------------------------------------------

    def _runtime_context(self) -> RuntimeContext:
        node = self.node
        return RuntimeContext(
            node.name,
            self.oracle.subtask,
            node.parallelism,
            node.max_parallelism,
            keyed=SimpleNamespace(get=lambda descriptor, kind: _Value(self, descriptor.name)),
        )

    def _context(self) -> Any:
        return SimpleNamespace(
            timestamp=lambda: None if self.timestamp == NO_TIME else self.timestamp,
            get_current_key=lambda: self.key[1],
            timer_service=lambda: SimpleNamespace(
                current_watermark=lambda: self.watermark,
                register_event_time_timer=lambda at: self._timers().update({at: self.key[1]}),
            ),
        )

    def _timers(self) -> dict[int, Any]:
        """The timers of the key at hand, with the key itself."""
        timers: dict[int, Any] = self.state.setdefault("timers", {}).setdefault(self.key[0], {})
        return timers

    # -- timestamps and watermarks --------------------------------------------------------------------------

    def _stamp(self, value: Any, timestamp: int) -> None:
        if self.strategy is None:
            self._emit(value, timestamp)
            return
        if self.strategy.timestamp_assigner is not None:
            assigner = self.strategy.timestamp_assigner
            timestamp = assigner.extract_timestamp(copy.deepcopy(value), timestamp)
        self.largest = max(self.largest, timestamp)
        self._emit(value, timestamp)
        if self.generator is not None and not self.oracle.batch:
            output = SimpleNamespace(emit_watermark=self.watermark_made)
            self.generator.on_event(value, timestamp, output)

    def periodic(self) -> None:
        """The strategy may make a watermark."""
        if self.strategy is None or self.strategy.kind not in ("monotonous", "bounded"):
            return
        if self.largest != NO_TIME and not self.oracle.batch:
            self.watermark_made(self.largest - self.strategy.delay_ms - 1)

    def watermark_made(self, watermark: int) -> None:
        """Watermarks only grow."""
        if watermark > self.watermark:
            self.watermark = watermark
            self.oracle.pass_on(self.node, watermark)

    def advance(self, watermark: int) -> None:
        """The watermark has moved on: timers and windows that are due fire."""
        before, self.watermark = self.watermark, watermark
        if isinstance(self.op, ops.WindowOp):
            self._fire_windows(before)
        while due := self._due_timers():
            at, canon, key = due[0]
            del self.state["timers"][canon][at]
            self.key, self.timestamp = (canon, key), at
            self._emit_results(self.op.function.on_timer(at, self._context()), at)

    def _due_timers(self) -> list[tuple[int, Any, Any]]:
        return sorted(
            (at, canon, key)
            for canon, timers in self.state.get("timers", {}).items()
            for at, key in timers.items()
            if at <= self.watermark
        )

    def end_key(self) -> None:
        """In a batch job: all of time passes for the key, and what was kept for it is forgotten."""
        if isinstance(self.op, ops.ReduceOp | ops.RollingOp):
            for value in self.state.values():
                self._emit(value, NO_TIME)
        elif self.op.keys:
            self.advance(MAX_TIME)
            self.watermark = NO_TIME
        self.state = {}

    # -- windows: each keeps all its records, by (key, start, end) -------------------------------------------

    def _add_to_windows(self, value: Any, timestamp: int) -> None:
        canon, key = self.key
        if isinstance(self.op.assigner, EventTimeSessionWindows):
            windows = [self._session_of(canon, timestamp)]
        else:
            windows = list(_windows_of(self.op.assigner, timestamp))
        live = [(start, end) for start, end in windows if not self._over(end)]
        # A record that is in no window is late only if its own time is over, as in Flink.
        late = not live and timestamp + self.op.lateness <= self.watermark
        if late and self.op.late_tag is not None:
            self._emit(value, timestamp, self.op.late_tag)
        for start, end in live:
            records = self.state.setdefault((canon, start, end), (key, []))[1]
            records.append(copy.deepcopy(value))
            # The record itself fails if its function does.
            self._folded(canon, start, end)
            if end - 1 <= self.watermark:
                self._fire(canon, start, end)

    def _over(self, end: int) -> bool:
        """True if a window takes no more records."""
        return self.watermark == MAX_TIME or end - 1 + self.op.lateness <= self.watermark

    def _session_of(self, canon: Any, timestamp: int) -> tuple[int, int]:
        """The session of a record: its own, together with all sessions of the key that touch it."""
        start, end = timestamp, timestamp + self.op.assigner.gap
        records: list[Any] = []
        for other in [one for one in self.state if one[0] == canon]:
            if other[1] <= timestamp + self.op.assigner.gap and timestamp <= other[2]:
                records += self.state.pop(other)[1]
                start, end = min(start, other[1]), max(end, other[2])
        if records:
            self.state[canon, start, end] = (self.key[1], records)
        return start, end

    def _fire_windows(self, before: int) -> None:
        for canon, start, end in sorted(self.state, key=lambda one: one[2]):
            if before < end - 1 <= self.watermark:
                self._fire(canon, start, end)
        self.state = {one: kept for one, kept in self.state.items() if not self._over(one[2])}

    def _folded(self, canon: Any, start: int, end: int) -> Any:
        """What the function makes of a window's records, one after the other."""
        function = self.op.incremental
        _, records = copy.deepcopy(self.state[canon, start, end])
        if not isinstance(function, AggregateFunction):
            return functools.reduce(call(function, "reduce"), records)
        accumulator = function.create_accumulator()
        for record in records:
            accumulator = function.add(record, accumulator)
        return function.get_result(accumulator)

    def _fire(self, canon: Any, start: int, end: int) -> None:
        key, _ = self.state[canon, start, end]
        result = self._folded(canon, start, end)
        if self.op.function is None:
            self._emit_results([result], end - 1)
        else:
            context = SimpleNamespace(window=lambda: TimeWindow(start, end))
            self._emit_results(self.op.function.process(key, context, [result]), end - 1)


class _Value:
    """A value for each key."""

    def __init__(self, node: _Node, name: str) -> None:
        self._node = node
        self._name = name

    def value(self) -> Any:
        """That of the key at hand."""
        return self._node.state.get((self._name, self._node.key[0]))

    def update(self, value: Any) -> None:
        """Another one for the key at hand."""
        self._node.state[self._name, self._node.key[0]] = value


def call(function: Any, method: str) -> Callable[..., Any]:
    """What is called of a function, which may be an object or a plain callable."""
    return getattr(function, method) if isinstance(function, Function) else function


def key_of(key: ops.Key, value: Any) -> Any:
    """The key of a record."""
    if isinstance(key.field, int):
        found = value[key.field]
    elif key.field is not None:
        found = value[key.field] if isinstance(value, dict) else getattr(value, key.field)
    elif isinstance(key.selector, KeySelector):
        found = key.selector.get_key(value)
    else:
        found = key.selector(value)
    return found if key.key_type is None else key.key_type.convert(found)


def roll(kind: str, field: int, so_far: Any, value: Any) -> Any:
    """One more record of a rolling aggregation: one field is aggregated, the others stay those of the first."""
    old, new = so_far[field], value[field]
    match kind:
        case "sum":
            return _with(so_far, field, old + new)
        case "min":
            return _with(so_far, field, min(old, new))
        case "max":
            return _with(so_far, field, max(old, new))
        case "min_by":
            return value if new < old else so_far
        case _:
            return value if new > old else so_far


def _with(record: Any, field: int, value: Any) -> Any:
    fields = list(record)
    fields[field] = value
    return Row(*fields) if isinstance(record, Row) else type(record)(fields)


def _windows_of(assigner: Any, timestamp: int) -> Iterator[tuple[int, int]]:
    """All windows [start, end) with the timestamp in them."""
    slide = getattr(assigner, "slide", assigner.size)
    last = timestamp - (timestamp - assigner.offset) % slide
    for start in range(last, timestamp - assigner.size, -slide):
        yield start, start + assigner.size
