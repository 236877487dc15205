"""What a harness feeds its operators with: one source for each input, and one that only lets time pass.

An input's steps are records of an ordinary source with one split. Its watermark generator turns the steps that are no
elements into watermarks and idleness, at their exact place between the elements, so that everything behind it is what
a job would have there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from millstream.api.functions import FlatMapFunction
from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator, SplitPosition
from millstream.common.constants import NO_TIME
from millstream.common.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from millstream.datastream.data_stream import DataStream
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["ACTIVE", "ELEMENT", "IDLE", "WATERMARK", "HarnessInput", "Step"]

ELEMENT, WATERMARK, IDLE, ACTIVE = "element", "watermark", "idle", "active"

_SPLIT = "steps"


class Step(NamedTuple):
    """One thing that happens to an input."""

    kind: str
    value: Any = None
    timestamp: int = NO_TIME


class HarnessInput(Source):
    """The steps of one input. They stay in this process: the driver hands them to the tasks."""

    def __init__(self, name: str) -> None:
        self.name = name
        # The position of the first step that is kept.
        self.first = 0
        self.steps: list[Step] = []
        self.ended = False

    def __reduce__(self) -> tuple[Any, ...]:
        # A task gets its steps with its work.
        return HarnessInput, (self.name,)

    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        return _Steps(self)

    def create_reader(self) -> SourceReader:
        return _NoReader()

    def max_parallelism(self) -> int | None:
        return 1

    def elements(self, env: StreamExecutionEnvironment) -> DataStream:
        """The input as the operators under test see it."""
        strategy = WatermarkStrategy.for_generator(_Marks).with_timestamp_assigner(_Timestamps())
        steps = env.from_source(self, strategy, self.name).uid(f"harness {self.name}")
        elements = steps.flat_map(_Elements()).set_parallelism(1).uid(f"harness {self.name} values")
        # Not in one chain with what follows: idleness there is then a matter of the harness's clock.
        return elements.rebalance()


class _Steps(SplitEnumerator):
    def __init__(self, source: HarnessInput) -> None:
        self._input = source

    def restored(self, positions: dict[str, int]) -> None:
        self._input.first, self._input.ended = SplitPosition.of(positions.get(_SPLIT, 0))

    def discover(self) -> Sequence[str]:
        return [_SPLIT]

    def available(self, split: str, position: int) -> int:
        return self._input.first + len(self._input.steps)

    def finished(self, split: str, position: int) -> bool:
        return self._input.ended and position == self.available(split, position)

    def fetch(self, split: str, start: int, end: int) -> list[Any]:
        first = self._input.first
        return self._input.steps[start - first : end - first]

    def commit(self, split: str, position: int) -> None:
        del self._input.steps[: position - self._input.first]
        self._input.first = position


class _NoReader(SourceReader):
    def read(self, split: str, start: int, end: int) -> Iterable[Any]:
        raise AssertionError("the steps of a harness come with the work")


class _Timestamps(TimestampAssigner):
    def extract_timestamp(self, value: Step, record_timestamp: int) -> int:
        return value.timestamp


class _Marks(WatermarkGenerator):
    def __init__(self) -> None:
        self.last = NO_TIME

    def on_event(self, event: Step, event_timestamp: int, output: WatermarkOutput) -> None:
        # Any step but the one that says otherwise ends idleness, as a record of a source does.
        if event.kind == WATERMARK and event.value > self.last:
            self.last = event.value
            output.emit_watermark(event.value)
        elif event.kind == IDLE:
            output.mark_idle()


class _Elements(FlatMapFunction):
    def flat_map(self, value: Step) -> Iterable[Any]:
        return [value.value] if value.kind == ELEMENT else []
