"""Time in whole jobs: idle inputs, the clock, alignment, ends, restarts, and what a user is told of mistakes."""

from __future__ import annotations

import itertools
import logging
import time
from typing import ClassVar

import pytest

from millstream.api.source import (
    Boundedness,
    Source,
    SourceReader,
    SplitEnumerator,
    Timestamped,
    Watermark,
)
from millstream.common.time import Time
from millstream.common.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkStrategy,
)
from millstream.datastream import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
)
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import (
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from millstream.errors import (
    InvalidArgument,
    MillstreamError,
    MissingTimestamp,
    UnsupportedOperation,
    UserFunctionError,
)
from millstream.runtime.base import clock
from tests.support import Kept, collect, environment
from tests.waiting import until

MIN, MAX = -(2**63), 2**63 - 1
HOUR = 3_600_000
_feeds: dict[int, dict[str, list]] = {}
_ended: set[tuple[int, str]] = set()
_broken: set[int] = set()
_numbers = itertools.count()


class Feed(Source):
    """Splits that a test fills while the job runs."""

    def __init__(self, *splits: str, stamped: bool = False) -> None:
        self.number = next(_numbers)
        self._stamped = stamped
        _feeds[self.number] = {split: [] for split in splits}

    def boundedness(self):
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, parallelism):
        return _Splits(self.number)

    def create_reader(self):
        return _Reader(self.number)

    def stamped(self):
        return self._stamped

    def give(self, split, *records):
        _feeds[self.number][split].extend(records)

    def end(self, *splits):
        _ended.update((self.number, split) for split in splits)


class _Splits(SplitEnumerator):
    def __init__(self, number):
        self._number = number

    def discover(self):
        return list(_feeds[self._number])

    def available(self, split, position):
        if self._number in _broken:
            _broken.discard(self._number)
            raise OSError("once")
        return len(_feeds[self._number][split])

    def finished(self, split, position):
        return (self._number, split) in _ended and position == len(_feeds[self._number][split])


class _Reader(SourceReader):
    def __init__(self, number):
        self._number = number

    def read(self, split, start, end):
        return _feeds[self._number][split][start:end]


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Punctuated(WatermarkGenerator):
    def on_event(self, event, event_timestamp, output):
        output.emit_watermark(event_timestamp)


BOUNDED = WatermarkStrategy.for_bounded_out_of_orderness("0 ms").with_timestamp_assigner(Second())
EXACT = WatermarkStrategy.for_generator(Punctuated).with_timestamp_assigner(Second())


def counted(stream, size="10 ms"):
    return (
        stream.key_by(lambda v: v[0])
        .window(TumblingEventTimeWindows.of(size))
        .reduce(lambda a, b: (a[0], a[1], a[2] + b[2]))
    )


class Running:
    """A job that goes on while the test looks at its results."""

    def __init__(self, env, **streams):
        self.kept = Kept()
        for name, stream in streams.items():
            self.kept.add(name, stream)
        self.client = env.execute_async("running")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.client.cancel().result()
        self.kept.forget()

    def metrics(self):
        return until(self.client.get_metrics)

    def wait(self, name, count):
        until(lambda: len(self.kept.values(name)) >= count)
        return self.kept.values(name)


# -- idle inputs -----------------------------------------------------------------------------------------------


def test_a_split_without_data_holds_windows_back_until_it_is_idle():
    env, feed = environment(2), Feed("busy", "silent")
    stream = env.from_source(feed, BOUNDED.with_idleness("300 ms"), "feed")
    with Running(env, out=counted(stream)) as job:
        feed.give("busy", ("a", 1, 1), ("a", 5, 1), ("b", 30, 1))
        assert job.wait("out", 1) == [("a", 1, 2)]


def test_a_split_without_data_holds_windows_back_for_ever_without_idleness():
    env, feed = environment(2), Feed("busy", "silent")
    stream = env.from_source(feed, BOUNDED, "feed")
    with Running(env, out=counted(stream), seen=stream) as job:
        feed.give("busy", ("a", 1, 1), ("a", 5, 1), ("b", 30, 1))
        # Epoch after epoch goes by.
        for count in range(3, 10):
            job.wait("seen", count)
            feed.give("busy", ("b", 30 + count, 1))
        assert job.kept.values("out") == []
        feed.give("silent", ("c", 31, 1))
        assert job.wait("out", 1) == [("a", 1, 2)]


def test_an_idle_source_wakes_up_behind():
    """What it brings is late where others have gone on (rule 6), and it holds nothing back until it has caught up."""
    env, one, two = environment(1), Feed("only"), Feed("only")
    late = OutputTag("late")
    first = env.from_source(one, BOUNDED.with_idleness("200 ms"), "one")
    second = env.from_source(two, BOUNDED.with_idleness("200 ms"), "two")
    windows = (
        first.union(second).key_by(lambda v: v[0]).window(TumblingEventTimeWindows.of("10 ms"))
    )
    result = windows.side_output_late_data(late).reduce(lambda a, b: (a[0], a[1], a[2] + b[2]))
    with Running(env, out=result, late=result.get_side_output(late)) as job:
        one.give("only", ("a", 1, 1), ("a", 35, 1))
        assert job.wait("out", 1) == [("a", 1, 1)]
        two.give("only", ("b", 2, 1))
        assert job.wait("late", 1) == [("b", 2, 1)]
        one.give("only", ("a", 52, 1))
        assert job.wait("out", 2)[1:] == [("a", 35, 1)]


def test_idleness_further_down_follows_the_clock():
    env, feed = environment(1), Feed("only")
    busy = Feed("only")
    strategy = BOUNDED.with_idleness("300 ms")
    assigned = (
        env.from_source(feed, WatermarkStrategy.no_watermarks(), "silent")
        .rebalance()
        .map(lambda v: v)
        .disable_chaining()
        .assign_timestamps_and_watermarks(strategy)
        .start_new_chain()
    )
    other = env.from_source(busy, BOUNDED, "busy")
    with Running(env, out=counted(assigned.union(other))) as job:
        busy.give("only", ("a", 1, 1), ("a", 40, 1))
        assert job.wait("out", 1) == [("a", 1, 1)]


def test_a_source_that_has_ended_holds_nothing_back():
    env, feed = environment(2), Feed("only")
    ended = env.from_collection([("a", 3, 1)]).assign_timestamps_and_watermarks(BOUNDED)
    unmarked = env.from_collection([("a", 4, 1)])
    going = env.from_source(feed, BOUNDED, "feed")
    stamped = unmarked.assign_timestamps_and_watermarks(
        WatermarkStrategy.no_watermarks().with_timestamp_assigner(Second())
    )
    with Running(env, out=counted(ended.union(going, stamped))) as job:
        feed.give("only", ("a", 5, 1), ("a", 20, 1))
        assert job.wait("out", 1) in ([("a", t, 3)] for t in (3, 4, 5))


# -- the clock --------------------------------------------------------------------------------------------------


class Later(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_processing_time_timer(
            ctx.timer_service().current_processing_time() + value[1]
        )

    def on_timer(self, timestamp, ctx):
        assert ctx.timer_service().current_processing_time() >= timestamp
        yield ctx.get_current_key(), ctx.time_domain().name


class Stamp(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp()


def test_timers_of_the_clock_fire_though_nothing_comes():
    env, feed = environment(2), Feed("only")
    stream = env.from_source(feed, WatermarkStrategy.no_watermarks(), "feed")
    with Running(env, out=stream.key_by(lambda v: v[0]).process(Later()).process(Stamp())) as job:
        feed.give("only", ("a", 200), ("b", 400))
        found = job.wait("out", 2)
        # Rule 14: without a timestamp.
        assert found == [(("a", "PROCESSING_TIME"), None), (("b", "PROCESSING_TIME"), None)]


def test_windows_of_the_clock_fire_though_nothing_comes():
    env, feed = environment(2), Feed("only")
    stream = env.from_source(feed, WatermarkStrategy.no_watermarks(), "feed")
    windows = stream.key_by(lambda v: v[0]).window(TumblingProcessingTimeWindows.of("150 ms"))
    with Running(env, out=windows.reduce(lambda a, b: (a[0], a[1] + b[1]))) as job:
        feed.give("only", ("a", 1), ("a", 2))
        until(lambda: sum(n for _, n in job.kept.values("out")) == 3)


# -- alignment --------------------------------------------------------------------------------------------------


def of_the_clock(stream):
    """Everything that waits for the clock, soon after a record."""
    keyed = stream.key_by(lambda v: v[0])
    sessions = ProcessingTimeSessionWindows.with_gap(Time.hours(1))
    sliding = SlidingProcessingTimeWindows.of(Time.hours(1), Time.hours(1))
    trigger = ContinuousProcessingTimeTrigger.of(Time.hours(1))
    return {
        "timers": keyed.process(Later()).uid("timers"),
        "tumbling": keyed.window(TumblingProcessingTimeWindows.of(Time.hours(1)))
        .reduce(lambda a, b: a)
        .uid("tumbling"),
        "sliding": keyed.window(sliding).reduce(lambda a, b: a).uid("sliding"),
        "sessions": keyed.window(sessions).reduce(lambda a, b: a).uid("sessions"),
        "early": keyed.window(GlobalWindows.create())
        .trigger(trigger)
        .reduce(lambda a, b: a)
        .uid("early"),
    }


@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
@pytest.mark.parametrize("how", ["restart", "by name", "by path", "by path at another parallelism"])
def test_overdue_timers_of_the_clock_fire_after_a_restart_though_nothing_comes(
    tmp_path, monkeypatch, how, backend
):
    time_is = [1_000_000]
    monkeypatch.setattr(clock, "now", lambda: time_is[0])
    feed = Feed("only")

    def program(parallelism=2, **options):
        env = environment(parallelism, state__backend__type=backend, **options)
        for key, value in {
            "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
            "execution.checkpointing.interval": "10 ms",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1",
            "restart-strategy.fixed-delay.delay": "1 ms",
        }.items():
            env.get_configuration().set_string(key, value)
        stream = env.from_source(feed, WatermarkStrategy.no_watermarks(), "feed").uid("feed")
        return env, {"seen": stream} | of_the_clock(stream)

    def all_fire(job):
        for name in sorted(streams.keys() - {"seen"}):
            until(lambda name=name: {v[0] for v in job.kept.values(name)} == set("abcd"))

    env, streams = program()
    with Running(env, **streams) as job:
        feed.give("only", *[(key, HOUR) for key in "abcd"])
        job.wait("seen", 4)
        path = job.client.trigger_savepoint(str(tmp_path / "savepoint")).result()
        assert not any(job.kept.values(name) for name in streams.keys() - {"seen"})
        if how == "restart":
            _broken.add(feed.number)
            until(lambda: feed.number not in _broken)
            time_is[0] += 2 * HOUR
            all_fire(job)
            return
    time_is[0] += 2 * HOUR
    options = {} if how == "by name" else {"execution__state_recovery__path": path}
    env, streams = program(3 if "another" in how else 2, **options)
    with Running(env, **streams) as job:
        all_fire(job)


def test_a_source_that_runs_ahead_waits_for_its_group():
    aligned = BOUNDED.with_watermark_alignment("group", "20 ms")
    env, fast, slow, other = environment(1, epoch=2), Feed("only"), Feed("only"), Feed("only")
    first = env.from_source(fast, aligned, "fast")
    second = env.from_source(slow, aligned, "slow")
    third = env.from_source(other, BOUNDED, "other")
    with Running(env, fast=first, slow=second, other=third) as job:
        slow.give("only", ("s", 0, 1))
        job.wait("slow", 1)
        fast.give("only", *[("f", 10 * n, 1) for n in range(40)])
        job.wait("fast", 3)
        # A source of no group takes so many epochs that all 40 would have come.
        other.give("only", *[("o", n, 1) for n in range(60)])
        job.wait("other", 60)
        ahead = len(job.kept.values("fast"))
        assert ahead < 10
        slow.give("only", ("s", 400, 1))
        assert len(job.wait("fast", 40)) == 40


# -- ends and drains ----------------------------------------------------------------------------------------------


class Watch(KeyedProcessFunction):
    """Counts a key's records in state and lets an event timer tell the number."""

    def open(self, runtime_context):
        self._count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value, ctx):
        self._count.update((self._count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(value[1] + 10)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp, self._count.value()


class Alarm(Watch):
    """As `Watch`, without the number: it depends on where epochs end."""

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp


@pytest.mark.parametrize("strategy", [BOUNDED, EXACT])
@pytest.mark.parametrize("epoch", [None, 1, 2])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_the_end_of_the_input_fires_everything(strategy, epoch, parallelism):
    env = environment(parallelism, epoch)
    stream = env.from_collection([("a", 5), ("b", 6), ("a", 7)])
    result = collect(
        stream.assign_timestamps_and_watermarks(strategy).key_by(lambda v: v[0]).process(Watch())
    )
    assert sorted(result) == [("a", 15, 2), ("a", 17, 2), ("b", 16, 1)]


def test_a_drained_job_fires_everything_and_goes_on_from_its_savepoint(tmp_path):
    feed = Feed("only")

    def program(**options):
        env = environment(1, **options)
        stream = env.from_source(feed, EXACT, "feed").uid("feed")
        return env, stream.key_by(lambda v: v[0]).process(Watch()).uid("watch")

    env, out = program()
    kept = Kept()
    kept.add("out", out)
    client = env.execute_async("first")
    feed.give("only", ("a", 5), ("a", 30))
    until(lambda: len(kept.values("out")) == 1)
    path = client.stop_with_savepoint(True, str(tmp_path)).result()
    assert kept.values("out") == [("a", 15, 2), ("a", 40, 2)]
    env, out = program(execution__state_recovery__path=path)
    with Running(env, out=out) as job:
        feed.give("only", ("a", 50), ("a", 70))
        # Had the end of time been saved, nothing would ever be late enough to fire.
        assert job.wait("out", 1) == [("a", 60, 4)]


# -- restarts and rescaling -----------------------------------------------------------------------------------------


class Clumsy(WatermarkGenerator):
    """A generator with a state of its own: every third record is a watermark, five behind the largest."""

    def __init__(self):
        self.seen, self.largest = 0, MIN

    def on_event(self, event, event_timestamp, output):
        self.seen += 1
        self.largest = max(self.largest, event_timestamp)
        if self.seen % 3 == 0:
            output.emit_watermark(self.largest - 5)


class FailOnce(MapFunction):
    failed: ClassVar[set[int]] = set()

    def __init__(self, number, at):
        self._number, self._at = number, at

    def map(self, value):
        if value[1] == self._at and self._number not in FailOnce.failed:
            FailOnce.failed.add(self._number)
            raise OSError("once")
        return value


class Marks(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timer_service().current_watermark()


@pytest.mark.parametrize("epoch", [1, 2, 5])
@pytest.mark.parametrize("fail_at", [None, 0, 8, 24])
@pytest.mark.parametrize("place", ["at the source", "further down"])
def test_the_state_of_generators_is_part_of_checkpoints(tmp_path, epoch, fail_at, place):
    strategy = WatermarkStrategy.for_generator(Clumsy).with_timestamp_assigner(Second())
    env = environment(
        1,
        epoch,
        execution__checkpointing__dir=tmp_path,
        restart_strategy__type="fixed-delay",
        restart_strategy__fixed_delay__delay="1 ms",
    )
    stream = env.from_collection([("k", 4 * n) for n in range(10)])
    if place == "further down":
        stream = stream.map(lambda v: v).disable_chaining()
    marked = stream.assign_timestamps_and_watermarks(strategy)
    result = (
        marked.rebalance()
        .map(FailOnce(next(_numbers), fail_at))
        .disable_chaining()
        .process(Marks())
        .disable_chaining()
    )
    found = sorted(collect(result))
    largest = [MIN] * 3 + [8 - 5] * 3 + [20 - 5] * 3 + [32 - 5]
    assert found == [(("k", 4 * n), largest[n]) for n in range(10)]


def test_timers_windows_and_watermarks_move_to_another_parallelism(tmp_path):
    feed = Feed("x", "y")
    keys = "abcdefgh"

    def program(parallelism, **options):
        env = environment(parallelism, 3, **options)
        stream = env.from_source(feed, BOUNDED, "feed").uid("feed")
        keyed = stream.key_by(lambda v: v[0])
        return env, {
            "timers": keyed.process(Alarm()).uid("watch"),
            "sessions": keyed.window(EventTimeSessionWindows.with_gap("15 ms"))
            .reduce(lambda a, b: (a[0], min(a[1], b[1]), a[2] + b[2]))
            .uid("sessions"),
            "sliding": keyed.window(SlidingEventTimeWindows.of("20 ms", "10 ms"))
            .reduce(lambda a, b: (a[0], min(a[1], b[1]), a[2] + b[2]))
            .uid("sliding"),
            "tumbling": counted(stream, "20 ms").uid("tumbling"),
        }

    def records(step):
        for n, key in enumerate(keys):
            feed.give("xy"[n % 2], (key, step * 7 + n, 1))

    results: dict[str, list] = {name: [] for name in program(1)[1]}
    path = None
    for run, parallelism in enumerate([1, 3, 2]):
        options = {} if path is None else {"execution__state_recovery__path": path}
        env, streams = program(parallelism, **options)
        with Running(env, **streams) as job:
            for step in range(3 * run, 3 * run + 3):
                read = job.metrics().records
                records(step)
                until(lambda read=read: job.metrics().records >= read + len(keys))
            done = job.client.stop_with_savepoint(False, str(tmp_path / str(run)))
            path = done.result()
            for name, found in results.items():
                found.extend(job.kept.values(name))
    whole = Feed("x", "y")
    for split in "xy":
        whole.give(split, *_feeds[feed.number][split])
    whole.end("x", "y")
    feed.end("x", "y")
    env, streams = program(2, execution__state_recovery__path=path)
    kept = Kept()
    for name, stream in streams.items():
        kept.add(name, stream)
    env.execute("rest")
    for name, found in results.items():
        found.extend(kept.values(name))
    feed = whole
    env, streams = program(1)
    kept = Kept()
    for name, stream in streams.items():
        kept.add(name, stream)
    env.execute("whole")
    for name, found in results.items():
        assert sorted(found) == sorted(kept.values(name)), name


# -- a source's own time --------------------------------------------------------------------------------------------


def test_timestamps_and_watermarks_of_the_source_itself():
    env, feed = environment(2), Feed("only", stamped=True)
    stream = env.from_source(feed, WatermarkStrategy.no_watermarks(), "feed")
    feed.give(
        "only",
        Timestamped(("a", 5), 5),
        Timestamped(("a", 7), 7),
        Watermark(9),
        Timestamped(("a", 12), 12),
        "no timestamp",
    )
    feed.end("only")
    keyed = stream.filter(lambda v: v != "no timestamp").key_by(lambda v: v[0])
    kept = Kept()
    kept.add("marks", stream.process(Stamp()).process(Marks()))
    kept.add("windows", keyed.window(TumblingEventTimeWindows.of("10 ms")).reduce(max))
    env.execute("stamped")
    assert kept.values("marks") == [
        ((("a", 5), 5), MIN),
        ((("a", 7), 7), MIN),
        ((("a", 12), 12), 9),
        (("no timestamp", None), 9),
    ]
    assert sorted(kept.values("windows")) == [("a", 7), ("a", 12)]


def test_ingestion_time():
    env, before = environment(1), time.time_ns() // 1_000_000
    stream = env.from_collection(["a"]).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_ingestion_time()
    )
    ((value, stamp),) = collect(stream.process(Stamp()))
    assert value == "a"
    assert before <= stamp <= time.time_ns() // 1_000_000


# -- late records ----------------------------------------------------------------------------------------------------


def test_dropped_records_are_counted_and_the_log_says_so_once(caplog):
    env = environment(1, 1)
    stream = env.from_collection([("a", 1, 1), ("a", 50, 1), ("a", 2, 1), ("a", 3, 1)])
    with caplog.at_level(logging.WARNING, "millstream.job"):
        result = collect(counted(stream.assign_timestamps_and_watermarks(EXACT)).name("counts"))
    assert sorted(result) == [("a", 1, 1), ("a", 50, 1)]
    (said,) = [r.getMessage() for r in caplog.records if "late record" in r.getMessage()]
    assert "'counts'" in said
    assert "allowed_lateness" in said


# -- bad input -------------------------------------------------------------------------------------------------------


def failing(make):
    env = environment(1)
    with pytest.raises(MillstreamError) as caught:
        collect(make(env.from_collection([("a", 1, 1), ("b", 2, 1)])))
    return caught.value


def test_an_event_time_window_needs_timestamps():
    for assigner in (
        TumblingEventTimeWindows.of("10 ms"),
        SlidingEventTimeWindows.of("10 ms", "5 ms"),
        EventTimeSessionWindows.with_gap("5 ms"),
    ):
        error = failing(lambda s, a=assigner: s.key_by(lambda v: v[0]).window(a).reduce(max))
        assert type(error) is MissingTimestamp
        assert error.evidence["record"] == "('a', 1, 1)"
        assert "record 0" in error.evidence["position"]
        assert error.evidence["declared_at"] is not None
        assert "assign_timestamps_and_watermarks" in error.hint


@pytest.mark.parametrize("stamp", [2**63, -(2**63) - 1, 1.5, "5", None])
def test_timestamps_must_be_numbers_of_64_bits(stamp):
    class Bad(TimestampAssigner):
        def extract_timestamp(self, value, record_timestamp):
            return stamp

    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Bad())
    error = failing(lambda s: s.assign_timestamps_and_watermarks(strategy))
    assert type(error) is InvalidArgument
    assert "extract_timestamp" in error.what
    assert error.evidence["operator"] == "Timestamps/Watermarks"
    assert error.evidence["record"] == "('a', 1, 1)"


def test_an_assigner_that_raises():
    class Bad(TimestampAssigner):
        def extract_timestamp(self, value, record_timestamp):
            return value[7]  # out of range

    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Bad())
    error = failing(lambda s: s.assign_timestamps_and_watermarks(strategy))
    assert type(error) is UserFunctionError
    assert "IndexError" in error.what
    assert "timestamp assigner" in error.what
    assert "def extract_timestamp" in str(error.evidence["declared_at"])


@pytest.mark.parametrize("mark", [2**63, 1.5, "5", None])
def test_watermarks_must_be_numbers_of_64_bits(mark):
    class Bad(WatermarkGenerator):
        def on_event(self, event, event_timestamp, output):
            output.emit_watermark(mark)

    strategy = WatermarkStrategy.for_generator(Bad).with_timestamp_assigner(Second())
    error = failing(lambda s: s.assign_timestamps_and_watermarks(strategy).process(Marks()))
    assert type(error) is InvalidArgument
    assert "emit_watermark" in error.what
    assert error.evidence["operator"] == "Timestamps/Watermarks"


def test_a_generator_that_goes_back_is_swallowed_and_the_log_says_so(caplog):
    class Back(WatermarkGenerator):
        def on_event(self, event, event_timestamp, output):
            output.emit_watermark(10 - event_timestamp)

    strategy = WatermarkStrategy.for_generator(Back).with_timestamp_assigner(Second())
    env = environment(1)
    stream = env.from_collection([("a", n, 1) for n in (1, 2, 3)])
    with caplog.at_level(logging.WARNING, "millstream.job"):
        found = collect(stream.assign_timestamps_and_watermarks(strategy).process(Marks()))
    assert [mark for _, mark in found] == [MIN, 9, 9]
    assert any("went back from 9 to 8" in record.getMessage() for record in caplog.records)


def test_a_supplier_that_gives_no_generator():
    strategy = WatermarkStrategy.for_generator(lambda: "generator")
    error = failing(lambda s: s.assign_timestamps_and_watermarks(strategy))
    assert "not a generator" in error.what


def test_something_else_than_a_strategy():
    for wrong in (None, "5 s", Second()):
        with pytest.raises(InvalidArgument, match="WatermarkStrategy"):
            environment().from_collection([1]).assign_timestamps_and_watermarks(wrong)


def test_an_assigner_that_returns_nothing():
    class Nothing(WindowAssigner):
        def assign_windows(self, element, timestamp, context):
            return None

        def get_default_trigger(self, env):
            return CountTrigger.of(1)

        def get_window_serializer(self):
            return None

        def is_event_time(self):
            return False

    error = failing(lambda s: s.key_by(lambda v: v[0]).window(Nothing()).reduce(max))
    assert type(error) is UserFunctionError
    assert "did not return a list of windows" in error.what
    assert error.evidence["record"] == "('a', 1, 1)"


def test_a_trigger_that_cannot_merge():
    keyed = environment().from_collection([("a", 1)]).key_by(lambda v: v[0])
    windows = keyed.window(EventTimeSessionWindows.with_gap("5 ms"))
    with pytest.raises((InvalidArgument, UnsupportedOperation), match="merge"):
        windows.trigger(NeverTrigger()).reduce(max)


def test_what_a_timer_raises_names_the_operator_and_the_line():
    class Bad(KeyedCoProcessFunction):
        def process_element1(self, value, ctx):
            ctx.timer_service().register_event_time_timer(7)

        def process_element2(self, value, ctx):
            pass

        def on_timer(self, timestamp, ctx):
            raise ValueError(f"at {timestamp}")  # timer

    def program(stream):
        keyed = stream.key_by(lambda v: v[0])
        return keyed.connect(keyed).process(Bad()).name("bad timers")

    error = failing(program)
    assert type(error) is UserFunctionError
    assert "bad timers" in error.what
    assert "at 7" in error.what
    assert "# timer" in error.evidence["line"]


def test_what_a_window_function_raises_names_the_operator_and_the_line():
    class Bad(ProcessWindowFunction):
        def process(self, key, context, elements):
            raise ValueError(f"no {key}")  # window

    def program(stream):
        windows = (
            stream.assign_timestamps_and_watermarks(EXACT)
            .key_by(lambda v: v[0])
            .window(TumblingEventTimeWindows.of("10 ms"))
        )
        return windows.process(Bad()).name("bad windows")

    error = failing(program)
    assert type(error) is UserFunctionError
    assert "bad windows" in error.what
    assert "no a" in error.what
    assert "# window" in error.evidence["line"]


class Slashed(KeyedProcessFunction):
    def open(self, runtime_context):
        self._count = runtime_context.get_state(ValueStateDescriptor("a/count%2F/"))

    def process_element(self, value, ctx):
        self._count.update((self._count.value() or 0) + 1)
        yield self._count.value()


def test_the_name_of_a_state_may_hold_anything(tmp_path):
    feed = Feed("only")

    def program(**options):
        env = environment(1, **options)
        stream = env.from_source(feed, EXACT, "feed").uid("feed")
        return env, stream.key_by(lambda v: v[0]).process(Slashed()).uid("slashed/uid")

    env, out = program()
    with Running(env, out=out) as job:
        feed.give("only", ("a", 5), ("a", 30))
        job.wait("out", 2)
        path = job.client.stop_with_savepoint(False, str(tmp_path)).result()
    env, out = program(execution__state_recovery__path=path)
    with Running(env, out=out) as job:
        feed.give("only", ("a", 50))
        assert job.wait("out", 1) == [3]


@pytest.mark.parametrize("options", [{"epoch": 1}, {"execution__runtime_mode": "BATCH"}])
def test_a_record_without_a_timestamp_has_none_after_a_timer_has_fired(options):
    class Wakes(KeyedProcessFunction):
        def process_element(self, value, ctx):
            yield value, ctx.timestamp()
            timers = ctx.timer_service()
            timers.register_processing_time_timer(timers.current_processing_time() - 1)
            timers.register_event_time_timer(5)

        def on_timer(self, timestamp, ctx):
            yield "timer", ctx.timestamp() == timestamp

    keyed = environment(**options).from_collection(["a", "b", "c"]).key_by(lambda v: v)
    found = collect(keyed.process(Wakes()))
    assert {("a", None), ("b", None), ("c", None)} == {one for one in found if one[0] != "timer"}
    assert ("timer", True) in found
    assert ("timer", False) not in found
