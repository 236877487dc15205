"""Poison records: each policy with exact counts and positions."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from millstream.api.error_policy import ErrorPolicy
from millstream.common import Time, Types
from millstream.common.configuration import Configuration
from millstream.common.serialization import Encoder
from millstream.common.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkStrategy,
)
from millstream.datastream import (
    AsyncDataStream,
    AsyncFunction,
    KeyedProcessFunction,
    OutputTag,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import InvalidArgument, JobError, UserFunctionError
from tests.support import keeping

BAD = OutputTag("bad")


def environment(parallelism=1, **options):
    config = Configuration().set_string("execution.target", "in-process")
    for key, value in options.items():
        config.set_string(key.replace("_", "."), str(value))
    env = StreamExecutionEnvironment.get_execution_environment(config)
    return env.set_parallelism(parallelism)


def texts(count):
    return [f"x{n}" if n % 100 == 37 else str(n) for n in range(count)]


@pytest.mark.parametrize("epoch", [300, 100_000])
def test_dead_letters_say_where_they_came_from(epoch):
    env = environment(millstream_epoch_records=epoch)
    numbers = env.from_collection(texts(10_000)).map(int).name("parse")
    good = numbers.on_error(ErrorPolicy.dead_letter(BAD))
    both = good.map(lambda n: ("good", n)).union(
        good.get_side_output(BAD).map(lambda d: ("bad", d))
    )
    results = list(both.execute_and_collect())
    wanted = [n for n in range(10_000) if n % 100 != 37]
    assert [n for kind, n in results if kind == "good"] == wanted
    letters = [letter for kind, letter in results if kind == "bad"]
    assert [letter.position for letter in letters] == list(range(37, 10_000, 100))
    assert all(pickle.loads(one.data) == f"x{one.position}" for one in letters)
    assert {letter.operator for letter in letters} == {"parse"}
    assert all("ValueError" in one.error and "Traceback" in one.traceback for one in letters)


def test_skip_counts():
    env = environment()
    env.from_collection(texts(1000)).map(int).uid("parse").on_error("skip").print()
    client = env.execute_async()
    client.get_job_execution_result().result(30)
    assert client.get_metrics().bad_records == {"parse": (10, 1000)}


def test_fail_stops_at_the_first_and_names_it():
    env = environment()
    with pytest.raises(UserFunctionError) as caught:
        list(env.from_collection(texts(1000)).map(int).on_error("fail").execute_and_collect())
    assert "'x37'" in str(caught.value)
    assert "record 37 of these" in str(caught.value)


def test_results_before_the_failure_are_not_given():
    def half(n):
        yield n
        if n == 2:
            raise ValueError(n)
        yield -n

    stream = environment().from_collection([1, 2, 3]).flat_map(half).on_error("skip")
    assert list(stream.execute_and_collect()) == [1, -1, 3, -3]


def test_a_failure_further_down_is_not_this_operators():
    def explode(n):
        raise KeyError(n)

    stream = environment().from_collection([1]).map(lambda n: n).on_error("skip").map(explode)
    with pytest.raises(UserFunctionError, match="KeyError"):
        list(stream.execute_and_collect())


def test_too_many_bad_records_fail_the_job():
    env = environment()
    stream = env.from_collection(texts(1000)).map(int).on_error(ErrorPolicy.skip(max_share=0.009))
    with pytest.raises(JobError, match="too many bad records"):
        list(stream.execute_and_collect())
    stream = env.from_collection(texts(1000)).map(int).on_error(ErrorPolicy.skip(max_share=0.01))
    assert len(list(stream.execute_and_collect())) == 990


def test_keyed_operators_and_filters_too():
    env = environment(2)
    stream = env.from_collection(list(range(10))).key_by(lambda n: n % 2)
    kept = stream.filter(lambda n: 10 // (n - 3) > 0).on_error("skip")
    assert sorted(kept.execute_and_collect()) == [4, 5, 6, 7, 8, 9]


def test_bad_policies_are_refused():
    stream = environment().from_collection([1]).map(int)
    with pytest.raises(InvalidArgument):
        stream.on_error("ignore")
    with pytest.raises(InvalidArgument):
        ErrorPolicy.skip(max_share=2)
    with pytest.raises(InvalidArgument):
        ErrorPolicy.dead_letter("bad")


@pytest.mark.parametrize(
    ("share", "bad", "good", "fails"),
    [
        (0, 99, 0, True),
        (0, 1, 98, True),
        (0, 0, 99, False),
        (0.5, 99, 0, True),
        (0.5, 50, 0, False),
        (0.01, 1, 9, False),
        (0.01, 2, 8, True),
        (1, 500, 0, False),
    ],
)
def test_a_share_is_that_of_a_hundred_records_at_least(share, bad, good, fails):
    stream = environment().from_collection(["x"] * bad + ["1"] * good, None).map(int)
    policy = stream.on_error(ErrorPolicy.skip(max_share=share))
    if fails:
        with pytest.raises(JobError, match="too many bad records"):
            list(policy.execute_and_collect())
    else:
        assert list(policy.execute_and_collect()) == [1] * good


def test_a_timer_that_fails_says_that_a_policy_is_about_records():
    class Late(KeyedProcessFunction):
        def process_element(self, value, ctx):
            ctx.timer_service().register_event_time_timer(5)
            return ()

        def on_timer(self, timestamp, ctx):
            raise ValueError("too late")

    stream = environment().from_collection([1]).key_by(lambda v: v).process(Late())
    with pytest.raises(UserFunctionError) as caught:
        list(stream.name("late").on_error("skip").execute_and_collect())
    assert "late" in str(caught.value)
    assert "a policy is about records" in str(caught.value)


class _Refused(KeyedProcessFunction):
    """Does with 2 what is refused, after it has changed its state."""

    def __init__(self, bad):
        self._bad = bad

    def open(self, ctx):
        self.count = ctx.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.any = ctx.get_state(ValueStateDescriptor("any"))
        self.list = ctx.get_list_state(ListStateDescriptor("list"))
        self.map = ctx.get_map_state(MapStateDescriptor("map"))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield value, self.count.value()
        if value == 2:
            yield self._bad(self, ctx)


@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (lambda f, ctx: f.count.update("two"), "TYPE_MISMATCH"),
        (lambda f, ctx: f.any.update(threading.Lock()), "STATE_NOT_SERIALIZABLE"),
        (lambda f, ctx: f.list.add(threading.Lock()), "STATE_NOT_SERIALIZABLE"),
        (lambda f, ctx: f.map.put(threading.Lock(), 1), "STATE_NOT_SERIALIZABLE"),
        (lambda f, ctx: f.list.add(None), "INVALID_ARGUMENT"),
        (lambda f, ctx: ctx.timer_service().register_event_time_timer("2"), "INVALID_ARGUMENT"),
        (lambda f, ctx: threading.Lock(), "RECORD_NOT_SERIALIZABLE"),
    ],
)
def test_what_is_refused_of_a_record_is_the_records_failure(bad, error, backend):
    env = environment(state_backend_type=backend)
    keyed = env.from_collection([1, 2, 3]).key_by(lambda n: 0)
    good = keyed.process(_Refused(bad)).on_error(ErrorPolicy.dead_letter(BAD))
    letters = good.get_side_output(BAD).map(lambda letter: (letter.record, letter.error))
    results = list(good.union(letters).execute_and_collect())
    assert sorted(one for one in results if one[0] != "2") == [(1, 1), (3, 2)]
    (letter,) = (one for one in results if one[0] == "2")
    assert f"[{error}]" in letter[1]


def test_a_result_that_does_not_fit_its_type_is_the_records_failure():
    side = OutputTag("side", Types.INT())

    class Tagged(KeyedProcessFunction):
        def process_element(self, value, ctx):
            yield "seen"
            yield side, value

    env = environment()
    values = env.from_collection([1, "two", 3])
    fitted = values.map(lambda v: v, output_type=Types.INT())
    fitted = fitted.on_error(ErrorPolicy.dead_letter(BAD))
    records = fitted.get_side_output(BAD).map(lambda letter: pickle.loads(letter.data))
    assert sorted(map(str, fitted.union(records).execute_and_collect())) == ["1", "3", "two"]

    sides = env.from_collection([1, "two", 3]).key_by(lambda v: 0).process(Tagged())
    sides = sides.on_error("skip")
    assert list(sides.union(sides.get_side_output(side)).execute_and_collect()).count("seen") == 2


class _Ask(AsyncFunction):
    def __init__(self, answer):
        self._answer = answer

    async def async_invoke(self, value):
        bad, value[:] = value == [2], [*value, "changed"]
        return [self._answer() if bad else 1]


def _no_answer():
    raise ValueError


@pytest.mark.parametrize("answer", [_no_answer, threading.Lock, lambda: "two"])
def test_a_request_whose_results_are_refused_has_failed_and_its_letter_has_the_record_as_it_came(
    answer,
):
    records = environment().from_collection([[1], [2], [3]])
    typed = Types.INT() if answer is not threading.Lock else None
    asked = AsyncDataStream.ordered_wait(records, _Ask(answer), Time.seconds(9), 9, typed)
    good = asked.on_error(ErrorPolicy.dead_letter(BAD))
    letters = good.get_side_output(BAD).map(lambda letter: pickle.loads(letter.data))
    assert sorted(map(str, good.union(letters).execute_and_collect())) == ["1", "1", "[2]"]


class _Mute(Exception):
    def __str__(self):
        raise RuntimeError("nothing to say")


def test_an_exception_without_a_text_is_told_all_the_same():
    def mute(value):
        if value == 2:
            raise _Mute

    env = environment()
    with pytest.raises(UserFunctionError, match="raised _Mute: <its text failed: RuntimeError>"):
        list(env.from_collection([1, 2]).map(mute).execute_and_collect())
    good = env.from_collection([1, 2]).map(mute).on_error(ErrorPolicy.dead_letter(BAD))
    letters = good.get_side_output(BAD).map(lambda letter: letter.error)
    assert list(letters.execute_and_collect()) == ["_Mute: <its text failed: RuntimeError>"]


@pytest.mark.parametrize("wrong", [("ignore",), ("dead_letter",), ("skip", BAD), (None,)])
def test_a_policy_that_is_none_is_refused(wrong):
    with pytest.raises(InvalidArgument, match="no such error policy"):
        ErrorPolicy(*wrong)


class AtSecond(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Punctuated(WatermarkGenerator):
    """After each record the watermark is at its time: the next one of the same time would be late."""

    def on_event(self, event, event_timestamp, output):
        output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output):
        pass


@pytest.mark.parametrize(
    "strategy",
    [
        WatermarkStrategy.for_monotonous_timestamps(),
        WatermarkStrategy.for_generator(Punctuated),
    ],
    ids=["monotonous", "punctuated"],
)
def test_records_with_a_timestamp_keep_it_where_those_without_are_dead_letters(strategy):
    bad = OutputTag("bad")
    env = environment()
    stamped = (
        env.from_collection([("a", 1), ("a",), ("a", 4), ("a", 12)])
        .assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(AtSecond()))
        .on_error(ErrorPolicy.dead_letter(bad))
    )
    windows = stamped.key_by(lambda v: v[0]).window(
        TumblingEventTimeWindows.of(Time.milliseconds(10))
    )
    late = OutputTag("late")
    sums = windows.side_output_late_data(late).reduce(lambda x, y: (x[0], x[1] + y[1]))
    with keeping() as kept:
        kept.add("sums", sums)
        kept.add("late", sums.get_side_output(late))
        kept.add("bad", stamped.get_side_output(bad).map(lambda letter: letter.record))
        env.execute()
        assert kept.values("sums") == [("a", 5), ("a", 12)]
        assert kept.values("late") == []
        assert kept.values("bad") == ["('a',)"]


def test_a_strategy_that_cannot_make_its_generator_says_so():
    env = environment()
    supplier: Any = lambda context: Punctuated()  # noqa: E731 - one parameter too many
    strategy = WatermarkStrategy.for_generator(supplier)
    stream = env.from_collection([("a", 1)]).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(AtSecond())
    )
    with pytest.raises(UserFunctionError, match="could not make its generator: TypeError"):
        list(stream.execute_and_collect())


def test_dead_letters_go_into_a_sink_that_stands_right_behind(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment("in-process")
    bad = OutputTag("bad")
    numbers = env.from_collection(["1", "x", "3"]).map(int).on_error(ErrorPolicy.dead_letter(bad))
    encoder = Encoder.simple_string_encoder()
    sink = FileSink.for_row_format(str(tmp_path), encoder)
    sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    numbers.get_side_output(bad).sink_to(sink.build())
    numbers.print()
    env.execute("letters into files")
    (part,) = tmp_path.iterdir()
    assert "ValueError" in part.read_text()
