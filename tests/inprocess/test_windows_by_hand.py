"""Tumbling, sliding and session windows against the sums that anybody would write down, over a few hundred records.

The property tests draw short inputs; here windows have many panes, keys come and go, sessions merge over several
others, and the accumulators are lists, so that one that is handed out twice shows.
"""

import random
from collections import Counter

import pytest

from millstream.common import Time, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkGenerator
from millstream.datastream import AggregateFunction, OutputTag, WindowFunction
from millstream.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tests.support import environment, keeping

LATE = OutputTag("late")


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Marks(WatermarkGenerator):
    """Records with a mark announce it."""

    def on_event(self, event, event_timestamp, output):
        if event[3] is not None:
            output.emit_watermark(event[3])


class Numbers(AggregateFunction):
    """Keeps the numbers themselves, in a list that it changes."""

    def create_accumulator(self):
        return []

    def add(self, value, accumulator):
        accumulator.append(value[2])
        return accumulator

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        acc_a.extend(acc_b)
        return acc_a


class Show(WindowFunction):
    def apply(self, key, window, inputs):
        (numbers,) = inputs
        yield key, window.start, window.end, tuple(sorted(numbers))
        numbers.append("changed by its reader")


def some_records(seed, count=240):
    """(key, time, number, mark): in order but for a little, with a mark now and then, some of them ahead of records."""
    draw = random.Random(seed)
    time, records = 0, []
    for number in range(count):
        time += draw.choice([0, 0, 1, 1, 2, 9])
        mark = time - draw.choice([1, 3, 6]) if draw.random() < 0.15 else None
        records.append((draw.choice("abcde"), time - draw.choice([0, 0, 1, 4]), number, mark))
    return records


def windows_of(kind, time):
    """The windows of a time (rules 18 and 19)."""
    if kind[0] == "session":
        return [(time, time + kind[1])]
    _, size, slide, offset = kind
    start = time - (time - offset) % slide
    return [(s, s + size) for s in range(start, time - size, -slide)]


def by_hand(kind, records, lateness):
    """All results, with one for each firing, and the late records."""
    open_windows = {}
    results, late, watermark = [], [], -(2**63)
    for key, time, number, mark in records:
        found = windows_of(kind, time)
        if kind[0] == "session":
            merged = found[0]
            touched = [
                w for w in open_windows if w[0] == key and w[1] <= merged[1] and merged[0] <= w[2]
            ]
            merged = (
                min([merged[0], *(w[1] for w in touched)]),
                max([merged[1], *(w[2] for w in touched)]),
            )
            if merged[1] - 1 + lateness <= watermark:
                late.append(number)
            else:
                together = [n for w in touched for n in open_windows.pop(w)]
                open_windows[key, *merged] = [*together, number]
                if merged[1] - 1 <= watermark:
                    results.append((key, *merged, tuple(sorted([*together, number]))))
        else:
            alive = [w for w in found if w[1] - 1 + lateness > watermark]
            for window in alive:
                numbers = open_windows.setdefault((key, *window), [])
                numbers.append(number)
                if window[1] - 1 <= watermark:
                    results.append((key, *window, tuple(sorted(numbers))))
            # Also one that is in no window at all, between two that do not touch (rule 20).
            if not alive and time + lateness <= watermark:
                late.append(number)
        if mark is not None and mark > watermark:
            before, watermark = watermark, mark
            fire(open_windows, before, watermark, lateness, results)
    fire(open_windows, watermark, 2**63 - 1, lateness, results)
    return Counter(results), sorted(late)


def fire(open_windows, before, watermark, lateness, results):
    for (key, start, end), numbers in list(open_windows.items()):
        if before < end - 1 <= watermark:
            results.append((key, start, end, tuple(sorted(numbers))))
        if end - 1 + lateness <= watermark:
            del open_windows[key, start, end]


def assigner_of(kind):
    if kind[0] == "session":
        return EventTimeSessionWindows.with_gap(Time.milliseconds(kind[1]))
    size, slide, offset = (Time.milliseconds(n) for n in kind[1:])
    if kind[0] == "tumbling":
        return TumblingEventTimeWindows.of(size, offset)
    return SlidingEventTimeWindows.of(size, slide, offset)


KINDS = [
    ("tumbling", 1, 1, 0),
    ("tumbling", 10, 10, 3),
    ("sliding", 4, 2, 0),
    ("sliding", 20, 1, 0),
    ("sliding", 10, 3, 1),
    ("sliding", 12, 5, -2),
    ("sliding", 3, 7, 2),
    ("session", 1),
    ("session", 4),
]


@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
@pytest.mark.parametrize(("parallelism", "epoch"), [(1, None), (1, 7), (3, 40)])
@pytest.mark.parametrize("lateness", [0, 5, 40])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind)))
def test_windows(kind, lateness, parallelism, epoch, backend):
    records = some_records(f"{kind} {lateness}")
    expected, late = by_hand(kind, records, lateness)
    env = environment(parallelism, epoch, state__backend__type=backend)
    strategy = WatermarkStrategy.for_generator(Marks).with_timestamp_assigner(Second())
    timed = env.from_collection(records).assign_timestamps_and_watermarks(strategy)
    windows = timed.set_parallelism(1).key_by(lambda v: v[0]).window(assigner_of(kind))
    results = (
        windows.allowed_lateness(lateness).side_output_late_data(LATE).aggregate(Numbers(), Show())
    )
    with keeping() as kept:
        kept.add("results", results, parallelism)
        kept.add("late", results.get_side_output(LATE), parallelism)
        env.execute()
        assert Counter(kept.values("results")) == expected
        assert sorted(v[2] for v in kept.values("late")) == late


@pytest.mark.parametrize("late", [0, 2])
@pytest.mark.parametrize(
    "assigner",
    [TumblingEventTimeWindows, SlidingEventTimeWindows, EventTimeSessionWindows],
    ids=lambda one: one.__name__,
)
def test_late_records_that_nobody_wants_are_counted(assigner, late, caplog):
    """Exactly those."""
    caplog.set_level("INFO", logger="millstream")
    times = {
        TumblingEventTimeWindows: (Time.milliseconds(10),),
        SlidingEventTimeWindows: (Time.milliseconds(10), Time.milliseconds(5)),
        EventTimeSessionWindows: (Time.milliseconds(3),),
    }[assigner]
    make = getattr(assigner, "of", None) or assigner.with_gap
    env = environment(1)
    records = [("a", 1, 0, 100), ("a", 101, 1, None), *[("a", 2, 2, None)] * late]
    strategy = WatermarkStrategy.for_generator(Marks).with_timestamp_assigner(Second())
    stream = env.from_collection(records).assign_timestamps_and_watermarks(strategy)
    windows = stream.key_by(lambda one: one[0]).window(make(*times))
    windows.aggregate(Numbers(), Show()).print()
    env.execute("late")
    told = [one.getMessage() for one in caplog.records if "has dropped" in one.getMessage()]
    assert [f"has dropped {late} late records" in one for one in told] == ([True] if late else [])
