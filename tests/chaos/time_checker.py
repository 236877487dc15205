"""The checker job for time: timers, windows, sessions, late records, all from one split with punctuated watermarks.

```
ids ──> times ──┬──> timers        event time: set, deleted, set again by timers                    ┐
                ├──> confirm       processing time: every id is confirmed, by the clock or the end  │
                ├──> tumbling      reduce, allowed lateness                                         ├──> out/
                ├──> sliding       aggregate, allowed lateness                                      │
                ├──> firings       process, state per window that counts firings                    │
                ├──> grown         sessions with early firings                                      │
                └──> session ──> second window over the sessions                                    ┘
                       └─ of each window operator: late records ──> late/
```

With one split whose records bring the watermarks nothing depends on where epochs begin and end (rule 63), so
`tests.chaos.time_oracle` knows every line: each firing, what was in the window, and its timestamp.
"""

from __future__ import annotations

from pathlib import Path

from millstream.api.state import ListStateDescriptor, ValueStateDescriptor
from millstream.common import Types, WatermarkStrategy
from millstream.common.time import Time
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkGenerator
from millstream.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
)
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    EventTimeSessionWindows,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowFunction,
)
from tests.chaos import checker, time_input
from tests.properties import time_reference as ref

SPLIT = "0"
END_OF_TIME = 2**63 - 1


class Times(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return time_input.time_of(value)


class Marks(WatermarkGenerator):
    """Its state is part of every checkpoint: one that went back would let records be in time that are late."""

    def __init__(self):
        self.largest = -1

    def on_event(self, event, event_timestamp, output):
        self.largest = max(self.largest, event_timestamp)
        if time_input.marked(event):
            output.emit_watermark(self.largest - time_input.BOUND)


class EventTimers(KeyedProcessFunction):
    """Timers in event time; results tell how many the key has seen, and the watermark."""

    def open(self, runtime_context):
        self._fired = runtime_context.get_state(ValueStateDescriptor("fired", Types.LONG()))

    def process_element(self, value, ctx):
        timers = ctx.timer_service()
        timers.register_event_time_timer(ctx.timestamp() + time_input.TIMER_AHEAD)
        if value[1] % 3 == 0:
            timers.delete_event_time_timer(ctx.timestamp() + time_input.TIMER_DELETED)

    def on_timer(self, timestamp, ctx):
        again = time_input.timer_again(timestamp)
        if again is not None:
            ctx.timer_service().register_event_time_timer(again)
        fired = (self._fired.value() or 0) + 1
        self._fired.update(fired)
        yield ctx.get_current_key(), timestamp, fired, ctx.timer_service().current_watermark()


class Confirm(KeyedProcessFunction):
    """Every record of a key is confirmed once, in order: soon, by a timer of the clock; at the latest when the input
    ends, because such timers are dropped then (rule 15). A key has at most one such timer."""

    def open(self, runtime_context):
        self._waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", Types.LONG()))
        self._timer = runtime_context.get_state(ValueStateDescriptor("timer", Types.LONG()))
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        timers = ctx.timer_service()
        self._waiting.add(value[1])
        timers.register_event_time_timer(END_OF_TIME)
        if self._timer.value() is None:
            at = timers.current_processing_time() + 1 + value[1] % 20
            timers.register_processing_time_timer(at)
            self._timer.update(at)

    def on_timer(self, timestamp, ctx):
        by = "end" if timestamp == END_OF_TIME else "clock"
        if by == "clock" and timestamp != self._timer.value():
            yield f"stray {ctx.get_current_key()} {timestamp} {self._timer.value()}"
            return
        count = self._count.value() or 0
        for number in self._waiting.get():
            count += 1
            yield f"confirmed {ctx.get_current_key()} {number} {count} {by}"
        self._count.update(count)
        self._waiting.clear()
        self._timer.clear()


class Total(AggregateFunction):
    def create_accumulator(self):
        return None, 0, 0

    def add(self, value, accumulator):
        return value[0], accumulator[1] + value[1], accumulator[2] + 1

    def get_result(self, accumulator):
        return (*accumulator, None)

    def merge(self, acc_a, acc_b):
        return acc_a[0] or acc_b[0], acc_a[1] + acc_b[1], acc_a[2] + acc_b[2]


class Show(WindowFunction):
    def apply(self, key, window, inputs):
        return [ref.windowed(key, (window.start, window.end), list(inputs), None)]


class ShowFirings(ProcessWindowFunction):
    FIRINGS = ValueStateDescriptor("firings", Types.LONG())

    def process(self, key, context, elements):
        state = context.window_state().get_state(self.FIRINGS)
        firing = (state.value() or 0) + 1
        state.update(firing)
        window = context.window()
        yield ref.windowed(key, (window.start, window.end), list(elements), firing)

    def clear(self, context):
        context.window_state().get_state(self.FIRINGS).clear()


class Line(ProcessFunction):
    def __init__(self, name):
        self._name = name

    def process_element(self, value, ctx):
        yield time_input.line(self._name, value, ctx.timestamp())


_ASSIGNERS = {
    "tumbling": TumblingEventTimeWindows.of,
    "sliding": SlidingEventTimeWindows.of,
    "session": EventTimeSessionWindows.with_gap,
}


def windowed(stream, name, spec):
    """The window operator of a description; its late records are in the side output of this name."""
    kind, *numbers = spec.assigner
    assigner = _ASSIGNERS[kind](*[Time.milliseconds(number) for number in numbers])
    windows = stream.key_by(ref.key_of, Types.STRING()).window(assigner)
    if spec.trigger is not None:
        windows = windows.trigger(ContinuousEventTimeTrigger.of(Time.milliseconds(spec.trigger[1])))
    windows = windows.allowed_lateness(spec.lateness).side_output_late_data(OutputTag(name))
    if spec.counts_firings:
        result = windows.process(ShowFirings())
    elif spec.function == "list":
        result = windows.apply(Show())
    elif spec.function == "reduce":
        result = windows.reduce(ref.reduced, Show())
    else:
        result = windows.aggregate(Total(), Show())
    return result.uid(name)


def build(env, folder: Path) -> None:
    strategy = WatermarkStrategy.for_generator(Marks).with_timestamp_assigner(Times())
    source = checker.Ids(str(folder), (SPLIT,), time_input.PER_EPOCH)
    events = env.from_source(source, strategy, "ids").uid("ids").map(time_input.event_of).uid("map")
    streams = {name: windowed(events, name, spec) for name, spec in time_input.WINDOWS.items()}
    late = [
        stream.get_side_output(OutputTag(name)).process(Line(name)).uid(f"late {name}")
        for name, stream in streams.items()
    ]
    second = streams["session"].map(time_input.regrouped).uid("regrouped")
    streams["second"] = windowed(second, "second", time_input.SECOND)
    by_key = events.key_by(ref.key_of, Types.STRING())
    streams["timers"] = by_key.process(EventTimers()).uid("timers")
    results = [stream.process(Line(name)).uid(f"line {name}") for name, stream in streams.items()]
    results.append(by_key.process(Confirm()).uid("confirm"))
    results[0].union(*results[1:]).sink_to(checker.file_sink(folder / "out")).uid("out")
    late[0].union(*late[1:]).sink_to(checker.file_sink(folder / "late")).uid("late")


if __name__ == "__main__":
    checker.main(build)
