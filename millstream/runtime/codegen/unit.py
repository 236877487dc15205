"""`OperatorUnit`: one operator of a chain at run time, in one subtask (Flink's `StreamOperator`).

A unit is made once, with everything the operator has: its state, timers, functions, writers. Then it writes lines, as
often as the chain hands records to it, and from then on only what is not about a single record goes through it:

```
initialize, open       before the first record
begin_epoch            an attempt of an epoch begins
    the generated code runs, with no unit in its way
    advance, tick      a watermark, or the clock, has moved on
    poll, settle       work under way: a turn for it, the wait for all of it
    end_key            in a batch job: the key at hand has no more records
prepare_commit         the epoch ends: what the driver has to commit
snapshot               what functions hold becomes operator state
close                  after the last record, or the attempt has failed
abort                  the attempt has failed; its functions are closed already
```

Each operator has a class of its own in [`operators`](../operators/registry.py). The task, the chain and its time know
these methods and no operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Generic, TypeVar

from millstream.api.checkpointed import CheckpointedFunction
from millstream.api.functions import Function, RuntimeContext
from millstream.api.metrics import MetricGroup
from millstream.api.output_tag import OutputTag
from millstream.api.sink import WriterContext
from millstream.checkpoint.statefile import table_name
from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.graph.operators import Operator
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.contracts import FollowsTime, HoldsTime, ReadsTime
from millstream.runtime.base.several import SEVERAL, check_several, may_return
from millstream.runtime.codegen.bad_records import BadRecords, is_guarded
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.column_outlet import ColumnOutlet
from millstream.runtime.codegen.guard import write_guarded
from millstream.runtime.codegen.outlet import Outlet
from millstream.runtime.codegen.user_metrics import UserMetrics
from millstream.runtime.state.checkpointed import InitializationContext, SnapshotContext
from millstream.runtime.state.journal import Journal
from millstream.runtime.state.keyed_state import KeyContext, KeyedStates
from millstream.runtime.state.operator_state import OperatorStates
from millstream.runtime.state.table import Table
from millstream.runtime.time.timers import InternalTimers
from millstream.runtime.time.watermarks import WatermarkStage
from millstream.runtime.wire.reports import UserMetric

__all__ = ["OperatorUnit", "TimedUnit", "that_do"]

Op = TypeVar("Op", bound=Operator)


class OperatorUnit(Generic[Op]):
    """One operator of a chain, in one subtask."""

    stage: WatermarkStage | None = None
    """Where watermarks begin; what comes from above ends there."""

    holder: HoldsTime | None = None
    """What keeps watermarks back; what is below gets them from there."""

    one_for_one = False
    """The operator gives one record for each that it takes, if none fails."""

    columns: ColumnOutlet | None = None
    """Where columns go on as columns; None if nobody takes them."""

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        self.builder = builder
        self.code = builder.code
        self.store = builder.store
        self.node = node
        op: Any = node.operator
        self.op: Op = op
        self.functions: list[Function] = []
        self.keys: KeyContext | None = None
        self.bad: BadRecords | None = None
        # What undoes the changes of a record that failed.
        self.journal: Journal | None = None
        if is_guarded(node):
            self.bad = BadRecords(node, builder.cursor)
            self.journal = builder.store.journals[node.uid] = Journal()
        # The metrics of its functions, once one has asked for them.
        self._metrics: UserMetrics | None = None

    @property
    def gives_one(self) -> bool:
        """True if the operator gives one record for each that it takes."""
        return self.one_for_one and self.bad is None

    # -- lines ----------------------------------------------------------------------------------------------

    def write(self, record: str, index: int) -> None:
        """Write the lines for a record of input number `index`, which is in the variable `record`."""
        self.at(record)
        if self.journal is None or self.bad is None:
            self.lines(record, index)
            self.lines_after(record)
        else:
            policy = self.node.error_policy
            write_guarded(
                self.builder,
                self.node,
                policy,
                self.bad,
                self.journal,
                record,
                lambda: self.lines(record, index),
                lambda: self.lines_after(record),
            )

    def lines(self, record: str, index: int) -> None:
        """The operator's own lines."""
        raise NotImplementedError

    def lines_after(self, record: str) -> None:
        """Lines for what follows once the record's results have been handed on; most operators have none."""

    def write_entries(self) -> None:
        """Write the functions of the generated code that the operator calls itself; most have none."""

    def at(self, variable: str, role: str = "run", declared_at: Any = None) -> None:
        """Lines from here on are this operator's, whose input is in `variable`."""
        self.builder.at(self.node, variable, role, declared_at)

    def emit(self, variable: str, tag: str | None = None, *, own: bool = False) -> None:
        """Lines that hand a result on to everything that reads it; `own` says that nobody else knows it."""
        self.builder.emit(self.node, variable, tag, own=own)

    def emit_result(self, result: str) -> None:
        """Lines for a result that may be tagged for a side output (rule 53)."""
        code = self.code
        tagged = code.bind(OutputTag, "OutputTag")
        with code.block(
            f"if type({result}) is tuple and len({result}) == 2 and type({result}[0]) is {tagged}:"
        ):
            self._emit_tagged(result)
        with code.block("else:"):
            self.emit(result)

    def _emit_tagged(self, result: str) -> None:
        code, tags = self.code, self.builder.tree.tags_of(self.node)
        if not tags:
            code.line("pass  # nobody reads a side output")
            return
        tag, side = code.fresh("tag"), code.fresh("side")
        code.line(f"{tag} = {result}[0].tag_id")
        code.line(f"{side} = {result}[1]")
        for tag_id in tags:
            with code.block(f"if {tag} == {tag_id!r}:"):
                self.emit(side, tag_id)

    def emit_results(self, call: str, method: str) -> None:
        """Lines for the results of a process function's method: None or an iterable."""
        code = self.code
        results, result = code.fresh("results"), code.fresh("result")
        code.line(f"{results} = {call}")
        with code.block(f"if {results} is not None:"):
            self.check_results(results, method)
            with self.builder.each(f"for {result} in {results}:"):
                self.emit_result(result)

    def check_results(self, results: str, method: str) -> None:
        """A line that refuses a single record in the place of several, where the function may give that."""
        function = self.op.user_function
        if may_return(getattr(function, method) if isinstance(function, Function) else function):
            known, check = (
                self.code.bind(SEVERAL, "several"),
                self.code.bind(check_several, "check"),
            )
            self.code.line(f"if type({results}) not in {known}: {check}({results})")

    def write_result_entry(self, outlet: Outlet) -> None:
        """The function that an operator calls for each result."""
        with self.builder.entry("result", "result", outlet.attach) as result:
            self.at(result, "result")
            self.emit_result(result)

    def write_side_entry(self, hint: str, outlet: Outlet, tag: str) -> None:
        """The function that an operator calls for each record of a side output."""
        with self.builder.entry(hint, "record", outlet.attach) as record:
            self.at(record, hint)
            self.emit(record, tag)

    def bind_function(self, function: Any, method: str, hint: str) -> str:
        """Bind a user's function, given as an object with `method` or as a plain callable."""
        return self.builder.bind_function(self.node, function, method, hint)

    # -- columns --------------------------------------------------------------------------------------------

    def takes_columns(self) -> bool:
        """True if the operator can be handed columns, in the place of the records that its lines are for."""
        return False

    def gives_columns(self) -> bool:
        """True if the operator can hand columns on, if somebody takes them."""
        return False

    def take_columns(self, batch: Any) -> bool:
        """Process rows as its lines would process their records. False if it has done nothing, because these have to
        come as records: whatever is unusual about them, the lines know how to deal with it, or whom to blame."""
        raise NotImplementedError

    # -- what it has ----------------------------------------------------------------------------------------

    def opens(self, function: Function) -> None:
        """Have a function opened before the first record and closed after the last."""
        if all(function is not known for known in self.functions):
            self.functions.append(function)

    @cached_property
    def keyed_states(self) -> KeyedStates:
        """The keyed states of the user's functions."""
        return KeyedStates(self.store, self.node.uid, self.node.name, self.keys)

    @cached_property
    def operator_states(self) -> OperatorStates:
        """The states of the operator that belong to no key."""
        return OperatorStates(
            self.store.operator_state, self.node.uid, self.store.register, self.journal
        )

    def table(self, name: str) -> Table:
        """A keyed state of the operator itself, which no user's function sees, saved and restored as all keyed state.

        Reads look into `changes` first, then call `read` for the version before this epoch; writes go to `changes`.
        """
        uid = self.node.uid
        self.store.register(uid, name, {"kind": "value", "type": None, "ttl": False})
        self.store.own.add(table_name(uid, name))
        return self.store.table(table_name(uid, name))

    @cached_property
    def context(self) -> RuntimeContext:
        """What functions are opened with."""
        return self.context_with(self.keyed_states)

    def context_with(self, keyed: Any) -> RuntimeContext:
        """What functions are opened with, where `keyed` gives them their keyed states."""
        node, settings = self.node, self.builder.settings
        return RuntimeContext(
            node.name,
            self.builder.subtask,
            node.parallelism,
            node.max_parallelism,
            job_parameters=dict(settings.job_parameters),
            cached_files=dict(settings.cached_files),
            keyed=keyed,
            metrics=self.metrics_group,
        )

    def context_of(self, function: Function) -> RuntimeContext:
        """What one function is opened with."""
        return self.context

    def metrics_group(self) -> MetricGroup:
        """The metrics of all its functions."""
        if self._metrics is None:
            self._metrics = UserMetrics(self.node.name)
        return self._metrics.group

    # -- the life of the functions --------------------------------------------------------------------------

    @property
    def checkpointed(self) -> list[CheckpointedFunction]:
        """Functions that put what they hold into operator state."""
        return [
            function for function in self.functions if isinstance(function, CheckpointedFunction)
        ]

    def initialize(self, *, restored: bool) -> None:
        """Before `open`: functions take what they hold out of operator state."""
        for function in self.checkpointed:
            function.initialize_state(
                InitializationContext(restored, self.operator_states, self.context)
            )

    def open(self) -> None:
        """Before the first record."""
        for function in self.functions:
            function.open(self.context_of(function))

    def snapshot(self, epoch: int) -> None:
        """Functions put what they hold into operator state."""
        for function in self.checkpointed:
            function.snapshot_state(SnapshotContext(epoch))

    def close(self) -> None:
        """After the last record."""
        for function in self.functions:
            function.close()

    # -- epochs ---------------------------------------------------------------------------------------------

    def begin_epoch(self, context: WriterContext) -> None:
        """An attempt of an epoch begins."""

    def prepare_commit(self) -> bytes | None:
        """The epoch ends: what the driver has to commit, or None."""

    def abort(self) -> None:
        """The attempt has failed, wherever it was; the functions are closed already. Does not raise: what failed first
        is what the user should hear."""

    def adopt(self, states: Mapping[str, Any]) -> None:
        """Go on with what a former program has kept otherwise, as the manifest says of the operator's states."""

    def take_late(self) -> int:
        """The records that were dropped because they were late, since the last call."""
        return 0

    def waiting(self) -> int:
        """How many timers and windows wait for the clock."""
        return 0

    def take_metrics(self) -> list[UserMetric]:
        """What the metrics of its functions came to since the last call."""
        return [] if self._metrics is None else self._metrics.take()

    # -- time -----------------------------------------------------------------------------------------------

    def set_watermark(self, watermark: int) -> None:
        """The watermark is so far; nothing is due because of it."""

    def advance(self, watermark: int) -> None:
        """Fire what is due at `watermark`, which the operator's has moved on to."""

    def tick(self, now: int) -> None:
        """Fire what is due at `now`, which the clock has moved on to."""

    def next_tick(self) -> int | None:
        """When to call `tick`; None for not at all."""
        return None

    def poll(self, watermark: int) -> None:
        """A turn for work that is under way."""

    def settle(self, watermark: int) -> None:
        """Wait for all work that is under way: what comes next is of another split or another epoch."""

    def end_key(self) -> None:
        """In a batch job: the key at hand has no more records (rule 60)."""


class TimedUnit(OperatorUnit[Op]):
    """An operator that time means something to: it looks at the watermark, or does something when it moves on."""

    def __init__(self, builder: ChainBuilder, node: StreamNode) -> None:
        super().__init__(builder, node)
        self.timers: InternalTimers | None = None
        self._follower: FollowsTime | None = None
        self._readers: list[ReadsTime] = []

    def reads_time(self, reader: ReadsTime) -> None:
        """Have the `watermark` of a reader be that of the operator."""
        self._readers.append(reader)

    def follows_time(self, follower: FollowsTime) -> None:
        """What is due when the watermark moves on is its business."""
        self._follower = follower

    def has_timers(self, keys: KeyContext) -> InternalTimers:
        """The operator has timers, of the current key of `keys`."""
        self._follower = self.timers = InternalTimers(keys, self.table)
        return self.timers

    def set_watermark(self, watermark: int) -> None:
        """What looks at the watermark sees this one."""
        for reader in self._readers:
            reader.watermark = watermark
        if self._follower is not None:
            self._follower.watermark = watermark

    def advance(self, watermark: int) -> None:
        """What is due fires."""
        for reader in self._readers:
            reader.watermark = watermark
        if self._follower is not None:
            self._follower.advance(watermark)

    def tick(self, now: int) -> None:
        """The timers of the clock that are due fire."""
        if self.timers is not None:
            self.timers.tick(now)

    def next_tick(self) -> int | None:
        """When the next timer of the clock is due."""
        return None if self.timers is None else self.timers.next_tick()

    def waiting(self) -> int:
        """How many timers and windows of the clock are not due."""
        return 0 if self.timers is None else self.timers.waiting()

    def end_key(self) -> None:
        """All of time passes, and begins again with the next key."""
        if self.timers is not None:
            self.timers.finish_key()
        elif self._follower is not None:
            self._follower.advance(MAX_TIME)
            self._follower.watermark = NO_TIME


def that_do(units: Iterable[OperatorUnit[Any]], step: str) -> list[OperatorUnit[Any]]:
    """The units whose class does something at a step; most do nothing at most of them."""
    return [unit for unit in units if getattr(type(unit), step) is not getattr(OperatorUnit, step)]
