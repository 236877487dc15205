"""Operators under test, one element at a time (Flink's `OneInputStreamOperatorTestHarness` and its siblings).

A harness runs a piece of a program in this process: the same compiled chains, state, timers and checkpoints as a job
has, at any parallelism, and with a clock that only the test moves.

>>> from millstream.datastream import KeyedProcessFunction
>>> class Remind(KeyedProcessFunction):
...     def process_element(self, value, ctx):
...         ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)
...
...     def on_timer(self, timestamp, ctx):
...         yield f"{ctx.get_current_key()} at {timestamp}"
>>> with OperatorHarness(lambda words: words.key_by(lambda w: w).process(Remind())) as harness:
...     harness.process_element("tea", 100)
...     harness.process_watermark(109)
...     before = harness.extract_output(), harness.num_event_time_timers()
...     harness.process_watermark(110)
...     after = harness.extract_output(), harness.num_event_time_timers()
>>> before, after
(([], 1), (['tea at 110'], 0))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, TypeAlias

from millstream.api.functions import ProcessFunction
from millstream.api.output_tag import OutputTag
from millstream.api.source import Watermark
from millstream.common import options
from millstream.common.configuration import Configuration
from millstream.common.constants import NO_TIME
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream.data_stream import DataStream
from millstream.datastream.keyed_stream import KeyedStream
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.errors import InvalidArgument, UnsupportedOperation
from millstream.graph.operators import CollectOp
from millstream.runtime.time.timers import checked_time
from millstream.testing.engine import Engine
from millstream.testing.inputs import ACTIVE, ELEMENT, IDLE, WATERMARK, HarnessInput, Step
from millstream.testing.snapshots import Snapshot, folder_owned_by, tables

__all__ = ["OperatorHarness"]

Stamped: TypeAlias = tuple[Any, int | None]

_TIMERS = ("#event-timers", "#processing-timers")


class OperatorHarness:
    """Runs what `pipeline` makes of a stream, or of two.

    Every call is complete when it returns: everything it sets off has been processed, and is part of a checkpoint. A
    call that raises, because a function of the pipeline does, has not happened. Functions run as copies, as they do
    in a job's workers: what they keep in attributes cannot be seen from outside.
    """

    def __init__(
        self,
        pipeline: Callable[..., DataStream],
        *,
        parallelism: int = 1,
        max_parallelism: int = 128,
        state_backend: str = "hashmap",
        side_outputs: Iterable[OutputTag] = (),
        processing_time: int = 0,
        configuration: Configuration | None = None,
        _snapshot: Snapshot | None = None,
    ) -> None:
        self._max_parallelism = max_parallelism
        self._state_backend = state_backend
        self._folder = folder_owned_by(self, "harness")
        config = Configuration(configuration)
        config.set_string(options.TARGET.key, "in-process")
        config.set_string(options.STATE_BACKEND.key, state_backend)
        config.set_string(options.STATE_DIRECTORY.key, f"{self._folder}/local")
        if _snapshot is not None:
            config.set_string(options.RECOVERY_PATH.key, _snapshot.path)
        env = StreamExecutionEnvironment(config)
        env.set_parallelism(parallelism).set_max_parallelism(max_parallelism)

        names = ["input"] if _inputs_of(pipeline) == 1 else ["input 1", "input 2"]
        self._inputs = [HarnessInput(name) for name in names]
        result = pipeline(*(source.elements(env) for source in self._inputs))
        _check_result(result)
        self._output: list[Stamped | Watermark] = []
        self._watermark = NO_TIME
        vertex = _collect(result, "output", self._take)
        self._sides: dict[str, list[Stamped]] = {}
        for tag in side_outputs:
            taken = self._sides[tag.tag_id] = []
            _collect(result.get_side_output(tag), f"side output {tag.tag_id}", _taker(taken))
        # Nothing reads it: an epoch in which it has a step, and no other input, only lets time pass.
        self._ticks = HarnessInput("clock")
        ticks = env.from_source(self._ticks, WatermarkStrategy.no_watermarks(), "clock")
        ticks.uid("harness clock")._sink("Sink: clock", CollectOp(_nowhere), like_input=True)

        job = env._take_job("operator harness")
        inputs = [*self._inputs, self._ticks]
        self._engine = Engine(job, inputs, f"{self._folder}/job", processing_time)
        self._vertex = vertex
        try:
            # Opens the functions; of a restored harness, shows that its state fits.
            self._tick()
        except BaseException:
            self._engine.close(quietly=True)
            raise
        if _snapshot is not None:
            # It was known before.
            self._output = [
                element for element in self._output if not isinstance(element, Watermark)
            ]

    @classmethod
    def restore(
        cls,
        pipeline: Callable[..., DataStream],
        snapshot: Snapshot,
        *,
        parallelism: int = 1,
        max_parallelism: int | None = None,
        state_backend: str | None = None,
        side_outputs: Iterable[OutputTag] = (),
        processing_time: int | None = None,
        configuration: Configuration | None = None,
    ) -> Self:
        """A harness that goes on where another took `snapshot`: with its state, timers and watermarks.

        What is left out is as it was. The parallelism may be another, and so may the pipeline, as far as a job could
        go on from such a savepoint. Timers of the clock that are overdue fire at once.
        """
        return cls(
            pipeline,
            parallelism=parallelism,
            max_parallelism=max_parallelism or snapshot.max_parallelism,
            state_backend=state_backend or snapshot.state_backend,
            side_outputs=side_outputs,
            processing_time=(
                snapshot.processing_time if processing_time is None else processing_time
            ),
            configuration=configuration,
            _snapshot=snapshot,
        )

    # -- what happens to the inputs -------------------------------------------------------------------------

    def process_element(self, value: Any, timestamp: int | None = None) -> None:
        """An element of the only input; without a timestamp it has none."""
        self._step(self._only("process_element"), _element(value, timestamp))

    def process_element1(self, value: Any, timestamp: int | None = None) -> None:
        """An element of the first input."""
        self._step(self._inputs[0], _element(value, timestamp))

    def process_element2(self, value: Any, timestamp: int | None = None) -> None:
        """An element of the second input."""
        self._step(self._second("process_element2"), _element(value, timestamp))

    def process_elements(self, elements: Iterable[Stamped]) -> None:
        """Many pairs of a value and its timestamp, all at once: quicker than one by one."""
        steps = [_element(value, timestamp) for value, timestamp in elements]
        self._step(self._only("process_elements"), *steps)

    def process_watermark(self, timestamp: int | Watermark) -> None:
        """A watermark of the only input; one that is not larger than the last changes nothing."""
        self._step(self._only("process_watermark"), _watermark(timestamp))

    def process_watermark1(self, timestamp: int | Watermark) -> None:
        """A watermark of the first input."""
        self._step(self._inputs[0], _watermark(timestamp))

    def process_watermark2(self, timestamp: int | Watermark) -> None:
        """A watermark of the second input."""
        self._step(self._second("process_watermark2"), _watermark(timestamp))

    def mark_idle(self) -> None:
        """Nobody is to wait for the only input, until something happens to it."""
        self._step(self._only("mark_idle"), Step(IDLE))

    def mark_idle1(self) -> None:
        """Nobody is to wait for the first input, until something happens to it."""
        self._step(self._inputs[0], Step(IDLE))

    def mark_idle2(self) -> None:
        """Nobody is to wait for the second input, until something happens to it."""
        self._step(self._second("mark_idle2"), Step(IDLE))

    def mark_active(self) -> None:
        """The only input is to be waited for again."""
        self._step(self._only("mark_active"), Step(ACTIVE))

    def mark_active1(self) -> None:
        """The first input is to be waited for again."""
        self._step(self._inputs[0], Step(ACTIVE))

    def mark_active2(self) -> None:
        """The second input is to be waited for again."""
        self._step(self._second("mark_active2"), Step(ACTIVE))

    def set_processing_time(self, milliseconds: int) -> None:
        """Move the clock, which begins at 0; timers that are due by then fire."""
        time = checked_time(milliseconds, "set_processing_time")
        before = self._engine.time
        if time < before:
            msg = "the clock of a harness does not go back"
            raise InvalidArgument(msg, now=before, got=time)
        self._engine.time = time
        try:
            self._tick()
        except BaseException:
            self._engine.time = before
            raise

    def get_processing_time(self) -> int:
        """What the clock shows."""
        return self._engine.time

    def end_input(self) -> None:
        """Nothing more comes: watermarks go to the maximum, event timers and windows fire."""
        self._end(*self._inputs)

    def end_input1(self) -> None:
        """Nothing more comes from the first input."""
        self._end(self._inputs[0])

    def end_input2(self) -> None:
        """Nothing more comes from the second input."""
        self._end(self._second("end_input2"))

    # -- what came out --------------------------------------------------------------------------------------

    def extract_output(self) -> list[Any]:
        """The values that have come out, in order, since the beginning or the last `clear_output`."""
        return [value for value, _ in self.extract_output_with_timestamps()]

    def extract_output_with_timestamps(self) -> list[Stamped]:
        """The values that have come out, each with its timestamp, or None where there is none."""
        return [element for element in self._output if not isinstance(element, Watermark)]

    def extract_stream(self) -> list[Stamped | Watermark]:
        """The values that have come out, with their timestamps, and the watermarks between them."""
        return list(self._output)

    def get_side_output(self, tag: OutputTag) -> list[Any]:
        """The values that were sent to a tag, which the harness has to be told of: `side_outputs=[tag]`."""
        return [value for value, _ in self.get_side_output_with_timestamps(tag)]

    def get_side_output_with_timestamps(self, tag: OutputTag) -> list[Stamped]:
        """The values that were sent to a tag, each with its timestamp, or None where there is none."""
        if tag.tag_id not in self._sides:
            msg = f"the harness does not collect the side output '{tag.tag_id}'"
            hint = "name it when the harness is made: OperatorHarness(pipeline, side_outputs=[tag])"
            raise InvalidArgument(msg, known=", ".join(self._sides) or "none", hint=hint)
        return list(self._sides[tag.tag_id])

    def clear_output(self) -> None:
        """Forget what has come out so far."""
        self._output.clear()
        for taken in self._sides.values():
            taken.clear()

    def get_current_watermark(self) -> int:
        """The last watermark that has come out, -2**63 before the first."""
        return self._watermark

    # -- what is kept ---------------------------------------------------------------------------------------

    def num_event_time_timers(self) -> int:
        """How many timers wait for the watermark; windows may have some of their own, or do without."""
        return self._count(lambda state: state == _TIMERS[0])

    def num_processing_time_timers(self) -> int:
        """How many timers wait for the clock; windows may have some of their own, or do without."""
        return self._count(lambda state: state == _TIMERS[1])

    def num_keyed_state_entries(self, name: str | None = None) -> int:
        """How many keys have a value, over all keyed states or in the one of that name. A key of which one state has
        a value in each of two windows counts twice."""
        return self._count(lambda state: state not in _TIMERS and name in (None, state))

    def _count(self, wanted: Callable[[str], bool]) -> int:
        return sum(
            sum(1 for _ in table.keys())  # noqa: SIM118 - a table is no dictionary
            for table in tables(self._engine.storage)
            if wanted(table.name.rpartition("/")[2])
        )

    def snapshot(self) -> Snapshot:
        """Everything that is kept, for `OperatorHarness.restore`; the harness can be used further."""
        self._check_open()
        return Snapshot(
            self._engine.storage,
            processing_time=self._engine.time,
            max_parallelism=self._max_parallelism,
            state_backend=self._state_backend,
        )

    # -- its own life ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the functions. What has come out can still be looked at."""
        self._engine.close(quietly=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # What failed first is what the test should hear of.
        self._engine.close(quietly=error is not None)

    # -- inside ---------------------------------------------------------------------------------------------

    def _only(self, call: str) -> HarnessInput:
        if len(self._inputs) != 1:
            msg = f"{call} is for a pipeline of one input, and this one has two"
            raise InvalidArgument(msg, hint=f"say which: {call}1 or {call}2")
        return self._inputs[0]

    def _second(self, call: str) -> HarnessInput:
        if len(self._inputs) != 2:
            msg = f"{call} is for a pipeline of two inputs, and this one has one"
            raise InvalidArgument(msg, hint="a pipeline of two inputs is a function of two streams")
        return self._inputs[1]

    def _check_open(self) -> None:
        if self._engine.closed or self._engine.ended:
            state = "is closed" if self._engine.closed else "has ended its input"
            msg = f"the harness {state}: nothing can happen to it any more"
            raise UnsupportedOperation(msg)

    def _step(self, source: HarnessInput, *steps: Step) -> None:
        self._check_open()
        if source.ended:
            raise UnsupportedOperation(f"'{source.name}' has ended: nothing can follow")
        source.steps.extend(steps)
        self._advance()

    def _tick(self) -> None:
        self._check_open()
        self._ticks.steps.append(Step(ACTIVE))
        self._advance()

    def _end(self, *inputs: HarnessInput) -> None:
        self._check_open()
        news = [source for source in inputs if not source.ended]
        if len(news) == sum(not source.ended for source in self._inputs):
            news.append(self._ticks)
        for source in news:
            source.ended = True
        try:
            self._tick()
        except BaseException:
            for source in news:
                source.ended = False
            raise

    def _advance(self) -> None:
        self._engine.advance()
        self._note_watermark(self._engine.watermark_of(self._vertex))

    def _take(self, records: list[Any]) -> None:
        for value, timestamp, watermark in records:
            self._note_watermark(watermark)
            self._output.append((value, timestamp))

    def _note_watermark(self, watermark: int) -> None:
        if watermark > self._watermark:
            self._watermark = watermark
            self._output.append(Watermark(watermark))


class _Note(ProcessFunction):
    """Every record with its timestamp and the watermark that it has come after."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        return [(value, ctx.timestamp(), ctx.timer_service().current_watermark())]


def _collect(stream: DataStream, name: str, consumer: Callable[[list[Any]], None]) -> int:
    """Hand a stream to the harness; the vertex whose watermark is the stream's."""
    notes = stream.process(_Note()).set_parallelism(1).uid(f"harness {name}").start_new_chain()
    notes._sink(f"Sink: {name}", CollectOp(consumer), like_input=True)
    return notes._transformation.id


def _taker(taken: list[Stamped]) -> Callable[[list[Any]], None]:
    def take(records: list[Any]) -> None:
        taken.extend((value, timestamp) for value, timestamp, _ in records)

    return take


def _nowhere(records: list[Any]) -> None:
    return


def _element(value: Any, timestamp: int | None) -> Step:
    at = NO_TIME if timestamp is None else checked_time(timestamp, "process_element")
    return Step(ELEMENT, value, at)


def _watermark(timestamp: int | Watermark) -> Step:
    at = timestamp.timestamp if isinstance(timestamp, Watermark) else timestamp
    return Step(WATERMARK, checked_time(at, "process_watermark"))


def _inputs_of(pipeline: Callable[..., Any]) -> int:
    if not callable(pipeline):
        msg = "a harness needs a function that makes a stream of one or two streams"
        raise InvalidArgument(msg, got=type(pipeline).__name__)
    needed = [
        parameter
        for parameter in inspect.signature(pipeline).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) not in (1, 2):
        msg = "the pipeline of a harness takes one stream or two"
        raise InvalidArgument(msg, parameters=len(needed))
    return len(needed)


def _check_result(result: Any) -> None:
    if isinstance(result, KeyedStream) or not isinstance(result, DataStream):
        msg = "the pipeline of a harness has to return the stream of its last operator"
        raise InvalidArgument(msg, got=type(result).__name__)
