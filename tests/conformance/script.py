"""What cases about time are written with: scripted streams, and functions that show what a window or a timer saw.

A scripted stream is a collection of entries. Its watermark strategy emits what the `watermark` entries say at their
exact places; afterwards only the records are left. The clock is moved by the source, at the first level, so a case that
moves it has one entry in an epoch: whoever is further down finds it moved.

Everything here is shipped to tasks by name, not by value: the clock is one for all of a process.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any

from millstream.common.time import parse_duration
from millstream.common.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkStrategy,
)
from millstream.datastream import (
    AggregateFunction,
    DataStream,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.window import ProcessAllWindowFunction, ProcessWindowFunction, TimeWindow

MIN, MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Entry:
    """One line of a script."""

    kind: str
    value: Any = None
    timestamp: int | None = None


def at(timestamp: int, value: Any) -> Entry:
    """A record, where a script is computed."""
    return Entry("record", value, timestamp)


def watermark(time: int) -> Entry:
    """A watermark, where a script is computed."""
    return Entry("watermark", time)


# -- reading ---------------------------------------------------------------------------------------


def parse(lines: list[str], scope: dict[str, Any]) -> list[Any]:
    """The entries of a script; if there is nothing about time in it, plain values."""
    found: list[Any] = []
    for line in lines:
        stamped = re.fullmatch(r"(.*\S)\s+@(\S+)", line)
        word, _, rest = line.partition(" ")
        if stamped:
            timestamp = None if stamped[2] == "none" else eval(stamped[2], scope)
            found += [Entry("record", v, timestamp) for v in eval(f"[{stamped[1]},]", scope)]
        elif word == "watermark":
            found.append(Entry("watermark", eval(rest, scope)))
        elif word == "clock":
            found.append(Entry("clock", parse_duration(rest.strip().lstrip("+"))))
        elif line in ("idle", "wait"):
            found.append(Entry(line))
        else:
            found += eval(f"[{line},]", scope)
    if any(isinstance(one, Entry) for one in found):
        found = [one if isinstance(one, Entry) else Entry("record", one) for one in found]
        if any(one.kind == "clock" for one in found):
            # What is due after the last step has an epoch to fire in before the input ends.
            found.append(Entry("nothing"))
    return found


# -- running ---------------------------------------------------------------------------------------

_time = 0


def now() -> int:
    """The clock of cases, from 0."""
    return _time


def set_clock(time: int) -> None:
    """Move it."""
    global _time
    _time = time


class _Times(TimestampAssigner):
    def extract_timestamp(self, value: Entry, record_timestamp: int) -> int:
        return MIN if value.timestamp is None else value.timestamp


class _Marks(WatermarkGenerator):
    def __init__(self) -> None:
        self.idle = False

    def on_event(self, event: Entry, event_timestamp: int, output: Any) -> None:
        # Entries that are no records of the case do not end its idleness, though they are records here.
        self.idle = event.kind in ("idle", "wait", "nothing", "clock") and (
            self.idle or event.kind == "idle"
        )
        if event.kind == "watermark":
            output.emit_watermark(event.value)
        if self.idle:
            output.mark_idle()
        else:
            output.mark_active()


class _Records(FlatMapFunction):
    def flat_map(self, value: Entry) -> Any:
        if value.kind == "clock":
            set_clock(now() + value.value)
        return [value.value] if value.kind == "record" else []


def source(env: StreamExecutionEnvironment, values: list[Any]) -> DataStream:
    """The stream of an `input` block."""
    stream = env.from_collection(values)
    if not values or not isinstance(values[0], Entry):
        return stream
    strategy = WatermarkStrategy.for_generator(_Marks).with_timestamp_assigner(_Times())
    timed = stream.assign_timestamps_and_watermarks(strategy).set_parallelism(1)
    return timed.flat_map(_Records()).set_parallelism(1)


class _Stamp(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, ctx.timestamp()


def stamped(stream: DataStream) -> DataStream:
    """Every record with its timestamp beside it."""
    own = getattr(stream._transformation, "parallelism", None)
    result = stream.process(_Stamp())
    return result if own is None else result.set_parallelism(own)


# -- for the programs of cases ---------------------------------------------------------------------


class Field(TimestampAssigner):
    """Timestamps are in a field of the record."""

    def __init__(self, index: int) -> None:
        self.index = index

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[self.index]


class Seen(ProcessFunction):
    """Every record with the watermark it finds."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, ctx.timer_service().current_watermark()


class SetTimers(KeyedProcessFunction):
    """The second field of a record is a timer to set. Timers show (key, time, watermark)."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), timestamp, ctx.timer_service().current_watermark()


LOG: list[str] = []
"""What functions have said by `log`, for cases with one subtask."""


def log(text: str) -> None:
    """Note that something was called."""
    LOG.append(text)


class FailOnce(MapFunction):
    """Fails at the first record of this value, once; by then so much time has gone by."""

    def __init__(self, value: Any, milliseconds: int = 0) -> None:
        self.value, self.milliseconds = value, milliseconds
        self.number = next(_numbers)

    def map(self, value: Any) -> Any:
        if value == self.value and self.number not in _failed:
            _failed.add(self.number)
            set_clock(now() + self.milliseconds)
            raise ValueError("once")
        return value


_numbers = itertools.count()
_failed: set[int] = set()


class Contents(ProcessWindowFunction):
    """Shows a window: (key, start, end, second fields), or without start and end if it has none."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        window = context.window()
        bounds = (window.start, window.end) if isinstance(window, TimeWindow) else ()
        yield key, *bounds, [v[1] for v in elements]


class AllContents(ProcessAllWindowFunction):
    """Shows a window of the whole stream: (start, end, records)."""

    def process(self, context: Any, elements: Any) -> Any:
        window = context.window()
        bounds = (window.start, window.end) if isinstance(window, TimeWindow) else ()
        yield *bounds, list(elements)


class Sum(AggregateFunction):
    """Adds up second fields; the accumulator is a text, so that it cannot be taken for a record."""

    def create_accumulator(self) -> str:
        return "0"

    def add(self, value: Any, accumulator: str) -> str:
        return str(int(accumulator) + value[1])

    def get_result(self, accumulator: str) -> int:
        return int(accumulator)

    def merge(self, acc_a: str, acc_b: str) -> str:
        return str(int(acc_a) + int(acc_b))


def add(a: Any, b: Any) -> Any:
    """A reduce function: adds up second fields."""
    return a[0], a[1] + b[1]


FOR_PROGRAMS = {
    "MIN": MIN,
    "MAX": MAX,
    "at": at,
    "watermark": watermark,
    "now": now,
    "stamped": stamped,
    "Field": Field,
    "Seen": Seen,
    "SetTimers": SetTimers,
    "FailOnce": FailOnce,
    "LOG": LOG,
    "log": log,
    "Contents": Contents,
    "AllContents": AllContents,
    "Sum": Sum,
    "add": add,
}
