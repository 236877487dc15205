"""Event time in one chain: what a watermark goes through on its way from the head to the edges.

A watermark walks the tree of operators as records do, but through plain calls: each operator fires what is due, then
the watermark goes on to what reads it (rule 7), and behind every edge it becomes a mark in the buffers. A
`WatermarkStage` ends that walk and begins another of its own (rule 5), and so does an operator that gathers records:
there a watermark waits with the records that came before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from millstream.checkpoint.manifest import GeneratorState
from millstream.common.constants import MAX_TIME, NO_TIME
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.in_operator import Step, in_operator
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.codegen.unit import OperatorUnit, that_do
from millstream.runtime.time.valve import NOBODY, InputEdge, Valve
from millstream.runtime.time.watermarks import WatermarkStage
from millstream.runtime.wire.codec import ACTIVE, END_OF_INPUT, IDLE, WATERMARK, Mark
from millstream.runtime.wire.output import EdgeWriter

__all__ = [
    "OF_THE_JOB",
    "OF_THE_SOURCE",
    "ChainTime",
]

# Values of an end-of-input mark: it ends the whole job, or its source, and not just its split.
OF_THE_JOB = 1
OF_THE_SOURCE = 2


class ChainTime:
    """The time of one compiled chain."""

    def __init__(
        self,
        builder: ChainBuilder,
        units: Mapping[int, OperatorUnit[Any]],
        inputs: Sequence[InputEdge],
        input_count: int,
    ) -> None:
        self._tree = builder.tree
        self._units = units
        self._writers = builder.writers
        self.stages: dict[str, WatermarkStage] = {
            unit.node.uid: unit.stage for unit in units.values() if unit.stage is not None
        }
        self._asks: list[Step] = []
        if builder.settings.ask_generators:
            self._asks = [self._asking(unit) for unit in units.values() if unit.stage is not None]
        self._timed = that_do(units.values(), "set_watermark")
        self._ticking = that_do(units.values(), "next_tick")
        self._ticks = [in_operator(unit.node, unit.tick) for unit in self._ticking]
        # From the head down: those below have to wait for what those above give them.
        self._polls = [in_operator(u.node, u.poll) for u in that_do(units.values(), "poll")]
        self._settles = [in_operator(u.node, u.settle) for u in that_do(units.values(), "settle")]
        self._releases = [
            in_operator(unit.node, unit.holder.release)
            for unit in units.values()
            if unit.holder is not None
        ]
        self._edges = {edge.id: edge for edge in inputs}
        self._marked: list[EdgeWriter] = [
            builder.writers[edge.id] for edge in builder.tree.out_edges if edge.watermarked
        ]
        self._input_count = input_count
        self.valve: Valve | None = Valve(input_count) if inputs else None
        # Of an edge from a Spark frame: its marks of the epoch, and whether records came.
        self._frame_marks: dict[tuple[int, int], int] = {}
        self._frames = [edge for edge in inputs if edge.frame]
        self._heard: set[int] = set()
        self._subtask = 0
        # Until all is read that comes before the buffers of the epoch.
        self._opening = False
        self._restored = False
        self.watermark = NO_TIME
        self.idle = False
        self._ending = False
        # By the uid of a stage, the edges that hear of its watermarks.
        self._told_by: dict[str, list[EdgeWriter]] = {}
        for unit in units.values():
            if unit.stage is not None:
                steps, status = self._below(unit.node)
                unit.stage.forward = _through(steps)
                unit.stage.forward_idle = self._through_status(status)
                self._told_by[unit.node.uid] = status
            if unit.holder is not None:
                unit.holder.forward = _through(self._below(unit.node)[0])
        head = units[builder.vertex.head.id]
        self.head_stage = head.stage
        """Where a source's own watermarks go in."""
        self._steps: list[Step] = []
        self._status: list[EdgeWriter] = []
        if head.stage is not None:
            self._steps = [head.stage.upstream]
        else:
            steps, self._status = self._below(head.node)
            self._steps = [*self._own_steps(head), *([] if head.holder is not None else steps)]

    def _asking(self, unit: OperatorUnit[Any]) -> Step:
        """Asks a stage for its watermark, once it has got the records that wait above it."""
        stage = unit.stage
        assert stage is not None
        ask: Step = lambda _: stage.periodic()  # noqa: E731
        for above in self._tree.above(unit.node):
            holder = self._units[above.id].holder
            if holder is not None:
                ask = partial(holder.after, ask)
        return ask

    def _own_steps(self, unit: OperatorUnit[Any]) -> list[Step]:
        return [in_operator(unit.node, own.advance) for own in that_do([unit], "advance")]

    def _below(self, node: StreamNode) -> tuple[list[Step], list[EdgeWriter]]:
        """What a watermark that a node hands on goes through, and the edges that learn of idleness."""
        steps: list[Step] = []
        status: list[EdgeWriter] = []
        tree = self._tree
        # A list and no recursion: a chain may be longer than Python's stack. With each node, whether the walk comes to
        # it, or ends above it where watermarks are held.
        pending = [(node, True)]
        while pending:
            at, walks = pending.pop()
            if at is not node:
                unit = self._units[at.id]
                if walks:
                    steps.extend(
                        self._own_steps(unit) if unit.stage is None else [unit.stage.upstream]
                    )
                if unit.stage is not None:
                    continue
                walks = walks and unit.holder is None
            for edge in tree.edges_of(at):
                if edge.watermarked:
                    writer = self._writers[edge.id]
                    if walks:
                        steps.append(self._marker(writer))
                    status.append(writer)
            pending.extend((reader, walks) for reader in reversed(tree.readers_of(at)))
        return steps, status

    def _marker(self, writer: EdgeWriter) -> Step:
        def mark(watermark: int) -> None:
            if not self._ending:
                writer.mark(WATERMARK, watermark)

        return mark

    # -- progress -------------------------------------------------------------------------------------------

    def begin(self, *, first: bool) -> None:
        """Everything is read that comes before the buffers of the epoch: so has to come further down what follows from
        it. In the `first` epoch of a run others hear again how far this subtask is: either side may have been laid out
        anew."""
        self._opening = False
        valve = self.valve
        if valve is None:
            return
        # An idle input has promised all it can: what it says last goes before it, in the buffers.
        settled = valve.watermark == self.watermark
        if first:
            for uid, stage in self.stages.items():
                self._say_again(self._told_by[uid], stage.emitted, stage.idle)
            self.idle = valve.idle and settled
            self._say_again(self._status, self.watermark, self.idle)
        elif self.idle != valve.idle and (settled or self.idle):
            self.idle = valve.idle
            for writer in self._status:
                writer.announce(Mark(0, IDLE if self.idle else ACTIVE))
        self._follow(valve)

    def go_on(self) -> None:
        """Another round of an epoch begins, where the one before it ended."""
        self._opening = self.valve is not None

    def _say_again(self, writers: list[EdgeWriter], watermark: int, idle: bool) -> None:
        marks: list[Mark] = []
        if self._restored:
            marks.append(Mark(0, ACTIVE))
        if watermark != NO_TIME:
            marks.append(Mark(0, WATERMARK, watermark))
        if idle:
            marks.append(Mark(0, IDLE))
        if marks:
            for writer in writers:
                writer.announce(*marks)

    def advance(self, watermark: int) -> None:
        """The head's watermark has moved on."""
        self.watermark = watermark
        for step in self._steps:
            step(watermark)

    def received(self, edge_id: int, channel: int, kind: int, value: int) -> None:
        """A mark came in."""
        edge, valve = self._edges.get(edge_id), self.valve
        if edge is None or valve is None:
            return
        if edge.frame and kind == WATERMARK:
            if value == MAX_TIME:
                return
            self._frame_marks[edge_id, channel] = value
            return
        if kind == WATERMARK and value == NO_TIME:
            valve.announce(edge.index, edge_id, channel)
        elif kind == WATERMARK:
            valve.advance(edge.index, edge_id, channel, value)
        elif kind == IDLE:
            valve.sleep(edge.index, edge_id, channel)
        elif kind == ACTIVE:
            valve.wake(edge.index, edge_id, channel)
        elif kind == END_OF_INPUT and value == OF_THE_SOURCE:
            valve.end(edge.index, edge_id, channel)
        elif kind == END_OF_INPUT and value != OF_THE_JOB:
            valve.remove(edge.index, edge_id, channel)
        if not self._opening:
            self._follow(valve)

    def heard(self, edge_id: int) -> None:
        """Records came along an edge."""
        if self._frames:
            self._heard.add(edge_id)

    def _follow(self, valve: Valve) -> None:
        if self.idle and not valve.idle:
            self._tell(False)
        if valve.watermark > self.watermark:
            self.advance(valve.watermark)
        if valve.idle and not self.idle:
            self._tell(True)

    def _tell(self, idle: bool) -> None:
        self.idle = idle
        self._through_status(self._status)(idle)

    def _through_status(self, writers: list[EdgeWriter]) -> Callable[[bool], None]:
        def forward(idle: bool) -> None:
            # Nobody waits for who is idle, so nothing may come after that.
            self._release()
            for writer in writers:
                writer.mark(IDLE if idle else ACTIVE)

        return forward

    def _release(self) -> None:
        """Operators that gather records let go of them."""
        for release in self._releases:
            release(self.watermark)

    def frames_done(self) -> None:
        """All rows of the epoch are there. The partitions of a Spark frame come and go with the epochs, so together
        they are one channel, as far as the least of those that brought rows. A subtask that has none of them, of an
        exchange that does not reach all subtasks, does not wait for one (rule 66)."""
        valve = self.valve
        if not self._frames or valve is None:
            return
        by_edge: dict[int, int] = {}
        for (edge_id, _), watermark in self._frame_marks.items():
            by_edge[edge_id] = min(watermark, by_edge.get(edge_id, MAX_TIME))
        self._frame_marks.clear()
        for edge_id, watermark in by_edge.items():
            index = self._edges[edge_id].index
            valve.announce(index, edge_id, 0)
            valve.advance(index, edge_id, 0, watermark)
        for edge in self._frames:
            if not valve.waits_for_rows(edge):
                continue
            if edge.id in self._heard:
                valve.wake(edge.index, edge.id, NOBODY)
            elif len(edge.senders[self._subtask]) < edge.source_parallelism:
                valve.sleep(edge.index, edge.id, NOBODY)
        self._follow(valve)

    def periodic(self) -> None:
        """Ask the generators; let go on what is under way."""
        for poll in self._polls:
            poll(self.watermark)
        for ask in self._asks:
            ask(self.watermark)

    def settle(self) -> None:
        """Wait for what is under way: what comes next is of another split or another epoch."""
        for settle in self._settles:
            settle(self.watermark)

    def probe(self) -> int | None:
        """Look whether streams have become idle; when to look again."""
        times = [at for stage in self.stages.values() if (at := stage.probe()) is not None]
        return min(times, default=None)

    def tick(self, now: int) -> None:
        """Fire the timers of the clock, for what has come."""
        self._release()
        for tick in self._ticks:
            tick(now)

    def next_tick(self) -> int | None:
        """When a timer of the clock is due."""
        times = [at for unit in self._ticking if (at := unit.next_tick()) is not None]
        return min(times, default=None)

    def end(self) -> None:
        """Nothing more comes (rule 4). Other vertices learn it from the mark that ends the job, when they have saved
        how far they were: a job that is drained may go on from there."""
        self._ending = True
        for stage in self.stages.values():
            stage.periodic()
        self.advance(MAX_TIME)
        for stage in self.stages.values():
            stage.emit_watermark(MAX_TIME)

    # -- splits, at level 0 ---------------------------------------------------------------------------------

    def begin_split(
        self, states: dict[str, GeneratorState], *, new: bool, records: bool, quiet_ms: int
    ) -> None:
        """A split's range begins; its generators go on where they were."""
        # What others must know before any other split's records of this epoch, or those would overtake these.
        first: dict[int, list[Mark]] = {}
        if new:
            first = {w.edge: [Mark(0, WATERMARK, NO_TIME)] for w in self._marked}
        for uid, stage in self.stages.items():
            stage.load(states.get(uid))
            told: list[Mark] = []
            if new and stage.emitted != NO_TIME:
                told.append(Mark(0, WATERMARK, stage.emitted))
            if stage.idle and records:
                stage.idle = False
                told.append(Mark(0, ACTIVE))
            elif stage.idle and new:
                told.append(Mark(0, IDLE))
            if told:
                for writer in self._told_by[uid]:
                    first.setdefault(writer.edge, []).extend(told)
        for edge, marks in first.items():
            self._writers[edge].announce(*marks)
        for stage in self.stages.values():
            stage.fallen_silent(quiet_ms)
        self._set_watermarks()

    def source_over(self) -> None:
        """The source has ended, and no split of this subtask with it."""
        for writer in self._marked:
            writer.mark(END_OF_INPUT, OF_THE_SOURCE)

    def end_split(self, *, finished: bool, over: bool) -> dict[str, GeneratorState]:
        """A split's range is read."""
        self.settle()
        self.periodic()
        if finished:
            for stage in self.stages.values():
                stage.periodic()
        # What those watermarks have set off.
        self._release()
        if finished:
            for writer in self._marked:
                writer.mark(END_OF_INPUT, OF_THE_SOURCE if over else 0)
        return {uid: stage.save() for uid, stage in self.stages.items()}

    # -- state, further down --------------------------------------------------------------------------------

    def save(self, subtask: int) -> dict[str, Any]:
        """Everything that the next epoch goes on from, as plain values."""
        assert self.valve is not None
        return {
            "subtask": subtask,
            "parallelism": self._tree.vertex.parallelism,
            "valve": self.valve.save({edge.id: edge.name for edge in self._edges.values()}),
            "stages": {
                uid: (s.max, s.emitted, s.idle, s.save().generator, s.quiet_since)
                for uid, s in self.stages.items()
            },
        }

    def load(self, saved_parts: list[dict[str, Any]], subtask: int) -> None:
        """Go on as `save` found it: of this subtask, or, if the job had another layout, of all of them."""
        if self.valve is None:
            return
        self._subtask = subtask
        self._opening = True
        self.valve = valve = Valve(self._input_count)
        for edge in self._edges.values():
            valve.expect(edge, subtask)
        edges = {edge.name: edge for edge in self._edges.values()}
        parallelism = self._tree.vertex.parallelism
        own = [
            part
            for part in saved_parts
            if (part["subtask"], part["parallelism"]) == (subtask, parallelism)
        ]
        fitting = (
            own if own and len({part["parallelism"] for part in saved_parts}) == 1 else saved_parts
        )
        fitting = [part for part in fitting if len(part["valve"][1]) == self._input_count]
        if len(fitting) == 1 and own:
            valve.load(fitting[0]["valve"], edges, subtask)
        elif fitting:
            valve.merge([part["valve"] for part in fitting], edges, subtask)
        self._restored = bool(fitting)
        for uid, stage in self.stages.items():
            saved = [part["stages"][uid] for part in fitting if uid in part["stages"]]
            if saved:
                least = min(saved, key=lambda part: part[:2])
                stage.load(GeneratorState(*least[:4]))
                stage.quiet_since = least[4]
            else:
                stage.load(None)
                stage.quiet_since = None
        self.watermark, self.idle = valve.watermark, valve.idle
        self._frame_marks.clear()
        self._heard.clear()
        self._set_watermarks()

    def _set_watermarks(self) -> None:
        """Each operator's watermark is the head's, or that of the stage above it."""
        for unit in self._timed:
            stage = self._stage_above(unit.node)
            unit.set_watermark(self.watermark if stage is None else stage.emitted)

    def _stage_above(self, node: StreamNode) -> WatermarkStage | None:
        """Whose watermarks an operator gets; None if they come from outside of the chain."""
        for above in self._tree.above(node):
            if (stage := self._units[above.id].stage) is not None:
                return stage
        return None


def _through(steps: list[Step]) -> Step:
    def forward(watermark: int) -> None:
        for step in steps:
            step(watermark)

    return forward
