"""Asynchronous I/O in whole programs: order, capacity, timeouts, retries, watermarks, errors, restarts (rule 59)."""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections import Counter

import pytest

from millstream.api.error_policy import ErrorPolicy
from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.common import Time, TimestampAssigner, Types, WatermarkStrategy
from millstream.common.restart_strategy import RestartStrategies
from millstream.common.watermark_strategy import WatermarkGenerator
from millstream.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    CheckpointedFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeExecutionMode,
)
from millstream.datastream.async_retry_predicates import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from millstream.datastream.async_retry_strategies import (
    ExponentialBackoffDelayRetryStrategy,
    FixedDelayRetryStrategy,
    NoRetryStrategy,
)
from millstream.datastream.state import ListStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import (
    InvalidArgument,
    TypeMismatchError,
    UnsupportedOperation,
    UserFunctionError,
)
from millstream.graph.operators import CollectOp
from millstream.runtime.operators import async_calls
from tests.support import collect, environment, keeping

ordered, unordered = AsyncDataStream.ordered_wait, AsyncDataStream.unordered_wait
BOTH = pytest.mark.parametrize("wait", [ordered, unordered])
MINUTE = Time.minutes(1)
# What functions, which are copied, leave for their tests, by a number that each test takes.
_numbers = itertools.count()
LOG: dict[int, list] = {}


def log():
    number = next(_numbers)
    LOG[number] = []
    return number


class Echo(AsyncFunction):
    """Answers with ten times the record, at once or after a time that is not that of its neighbours."""

    def __init__(self, spread=0.0):
        self.spread = spread

    async def async_invoke(self, value):
        if self.spread:
            await asyncio.sleep(value * 7 % 5 * self.spread)
        return [value * 10]


# -- order and capacity ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.0, 0.001])
@pytest.mark.parametrize("capacity", [1, 7, 1000])
def test_ordered(spread, capacity):
    stream = environment().from_collection(range(60))
    assert collect(ordered(stream, Echo(spread), MINUTE, capacity)) == list(range(0, 600, 10))


def test_unordered_gives_what_is_there():
    class Slow(AsyncFunction):
        async def async_invoke(self, value):
            await asyncio.sleep(value / 100)
            return [value]

    stream = environment().from_collection([8, 0, 4])
    assert collect(unordered(stream, Slow(), MINUTE)) == [0, 4, 8]
    assert collect(ordered(stream, Slow(), MINUTE)) == [8, 0, 4]
    # With room for one, there is nothing that could overtake.
    assert collect(unordered(stream, Slow(), MINUTE, 1)) == [8, 0, 4]


@BOTH
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("epoch", [1, 7, 100, None])
def test_every_record_is_answered_once(wait, parallelism, epoch):
    env = environment(parallelism, epoch)
    stream = env.from_collection(range(100)).rebalance()
    found = collect(wait(stream, Echo(0.0005), MINUTE, 10))
    assert sorted(found) == list(range(0, 1000, 10))


def test_a_source_of_several_chunks():
    stream = environment().from_collection(range(5000))
    assert collect(ordered(stream, Echo(), MINUTE)) == list(range(0, 50_000, 10))


class Crowd(AsyncFunction):
    """Nobody is answered before so many have asked."""

    def __init__(self, number, size):
        self.number, self.size, self.now = number, size, 0

    async def open(self, runtime_context):
        self.barrier = asyncio.Barrier(self.size)

    async def async_invoke(self, value):
        self.now += 1
        LOG[self.number].append(self.now)
        await self.barrier.wait()
        self.now -= 1
        return [value]


@BOTH
@pytest.mark.parametrize("capacity", [1, 5, 60, 100])
def test_capacity_bounds_the_calls(wait, capacity):
    number = log()
    stream = environment().from_collection(range(60))
    crowd = Crowd(number, min(capacity, 60))
    assert sorted(collect(wait(stream, crowd, MINUTE, capacity))) == list(range(60))
    assert max(LOG[number]) == min(capacity, 60)


@BOTH
def test_results_are_lists_of_any_length(wait):
    class Many(AsyncFunction):
        async def async_invoke(self, value):
            return [value] * value

    stream = environment().from_collection([0, 3, 1])
    assert collect(wait(stream, Many(), MINUTE)) == [3, 3, 3, 1]


def test_one_behind_the_other():
    stream = environment(2, 7).from_collection(range(40))
    first = unordered(stream, Echo(0.001), MINUTE, 4)
    second = ordered(first.map(lambda n: n // 10), Echo(0.001), MINUTE, 3)
    assert sorted(collect(second)) == list(range(0, 400, 10))


def test_on_a_keyed_stream():
    stream = environment(2).from_collection([("a", 1), ("b", 2), ("a", 3)]).key_by(0)

    class Value(AsyncFunction):
        async def async_invoke(self, value):
            return [value[1]]

    assert sorted(collect(ordered(stream, Value(), MINUTE))) == [1, 2, 3]


def test_output_type_and_side_outputs():
    odd = OutputTag("odd", Types.LONG())

    class Sort(AsyncFunction):
        async def async_invoke(self, value):
            return [(odd, value) if value % 2 else value]

    env = environment(1, 3)
    result = ordered(env.from_collection(range(6)), Sort(), MINUTE, output_type=Types.LONG())
    assert result.get_type() == Types.LONG()
    with keeping() as kept:
        kept.add("even", result)
        kept.add("odd", result.get_side_output(odd))
        env.execute()
        assert (kept.values("even"), kept.values("odd")) == ([0, 2, 4], [1, 3, 5])

    wrong = ordered(env.from_collection(["x"]), Sort1(), MINUTE, output_type=Types.LONG())
    with pytest.raises(TypeMismatchError):
        collect(wrong)


class Sort1(AsyncFunction):
    async def async_invoke(self, value):
        return [value]


# -- timeouts --------------------------------------------------------------------------------------------------


class Never(AsyncFunction):
    async def async_invoke(self, value):
        if value % 3 == 0:
            await asyncio.sleep(60)
        return [value]


class NeverMind(Never):
    def timeout(self, value):
        return [-value]


@BOTH
def test_timeout_gives_a_result(wait):
    stream = environment().from_collection(range(1, 8))
    found = collect(wait(stream, NeverMind(), Time.milliseconds(50), 3))
    assert Counter(found) == Counter([1, 2, -3, 4, 5, -6, 7])
    if wait is ordered:
        assert found == [1, 2, -3, 4, 5, -6, 7]


def test_timeout_fails_the_job():
    stream = environment().from_collection([1, 3])
    with pytest.raises(UserFunctionError, match=r"no answer within 0\.03 s") as caught:
        collect(ordered(stream, Never(), "30 ms").name("lookup"))
    assert caught.value.evidence["operator"] == "lookup"
    assert caught.value.evidence["record"] == "3"
    assert "record 1" in caught.value.evidence["position"]
    assert "timeout(value)" in caught.value.hint


class Stubborn(AsyncFunction):
    """Its first answer comes although the request was cancelled, while others are asked."""

    def __init__(self, number):
        self.number = number

    async def async_invoke(self, value):
        try:
            await asyncio.sleep(0.01 if value else 60)
        except asyncio.CancelledError:
            LOG[self.number].append("cancelled")
            await asyncio.sleep(0.01)
        LOG[self.number].append(value)
        return [value]

    def timeout(self, value):
        return ["none"]


@BOTH
def test_a_result_after_the_timeout_is_dropped(wait):
    number = log()
    stream = environment(1, 3).from_collection(range(9))
    assert collect(wait(stream, Stubborn(number), "300 ms", 1)) == ["none", *range(1, 9)]
    assert LOG[number][0] == "cancelled"
    assert 0 in LOG[number]


def test_time_in_which_the_loop_cannot_run_does_not_count():
    def slow(value):
        time.sleep(0.5)
        return value

    stream = environment().from_collection([1, 2]).map(slow)
    assert collect(ordered(stream, Echo(0.001), "400 ms")) == [10, 20]


def test_timeout_covers_all_attempts():
    class Down(AsyncFunction):
        async def async_invoke(self, value):
            raise ConnectionError("down")

        def timeout(self, value):
            return ["given up"]

    retry = AsyncRetryStrategy.fixed_delay(10_000, 5, None, has_exception_predicate)
    stream = environment().from_collection([1])
    started = time.monotonic()
    assert collect(AsyncDataStream.ordered_wait_with_retry(stream, Down(), "60 ms", retry)) == [
        "given up"
    ]
    assert time.monotonic() - started < 30


# -- retries ---------------------------------------------------------------------------------------------------


class Flaky(AsyncFunction):
    """Fails, or has no result, `times` times for each record."""

    def __init__(self, number, times, error=None):
        self.number, self.times, self.error = number, times, error
        self.asked = Counter()

    async def async_invoke(self, value):
        self.asked[value] += 1
        LOG[self.number].append((value, time.monotonic()))
        if self.asked[value] <= self.times:
            if self.error is not None:
                raise self.error
            return []
        return [(value, self.asked[value])]


RETRIES = {
    "fixed": lambda *predicates: AsyncRetryStrategy.fixed_delay(3, 5, *predicates),
    "exponential": lambda *predicates: AsyncRetryStrategy.exponential_backoff(
        3, 4, 10, 2.0, *predicates
    ),
}


@pytest.mark.parametrize("kind", sorted(RETRIES))
@pytest.mark.parametrize("error", [None, ConnectionError("gone")])
@pytest.mark.parametrize(
    "wait", [AsyncDataStream.ordered_wait_with_retry, AsyncDataStream.unordered_wait_with_retry]
)
def test_retries(kind, error, wait):
    number = log()
    retry = RETRIES[kind](
        empty_result_predicate,
        functools.partial(exception_type_predicate, expected_error_type=OSError),
    )
    stream = environment().from_collection([1, 2])
    # Three attempts after the first one are enough.
    assert sorted(collect(wait(stream, Flaky(number, 3, error), MINUTE, retry))) == [(1, 4), (2, 4)]
    times = [at for value, at in LOG[number] if value == 1]
    pauses = [after - before for before, after in itertools.pairwise(times)]
    wanted = [0.005] * 3 if kind == "fixed" else [0.004, 0.008, 0.010]
    assert all(pause > least * 0.9 for pause, least in zip(pauses, wanted, strict=True))


def test_out_of_attempts():
    retry = AsyncRetryStrategy.fixed_delay(2, 1, empty_result_predicate, has_exception_predicate)
    stream = environment().from_collection([1])
    number = log()
    wait = AsyncDataStream.ordered_wait_with_retry
    # The last result stands.
    assert collect(wait(stream, Flaky(number, 3), MINUTE, retry)) == []
    assert len(LOG[number]) == 3
    with pytest.raises(UserFunctionError, match="ConnectionError: gone") as caught:
        collect(wait(stream, Flaky(log(), 3, ConnectionError("gone")), MINUTE, retry))
    assert caught.value.evidence["attempts"] == 3


def test_what_no_predicate_wants_is_not_asked_again():
    number = log()
    only = functools.partial(exception_type_predicate, expected_error_type=OSError)
    retry = AsyncRetryStrategy.fixed_delay(2, 1, None, only)
    stream = environment().from_collection([1])
    with pytest.raises(UserFunctionError, match="ValueError: no"):
        collect(
            AsyncDataStream.ordered_wait_with_retry(
                stream, Flaky(number, 1, ValueError("no")), MINUTE, retry
            )
        )
    assert len(LOG[number]) == 1


def test_strategies():
    growing = ExponentialBackoffDelayRetryStrategy(3, 100, 450, 2.0, None, None)
    # Attempts of many records are mixed, each with its own pause.
    assert [growing.get_backoff_time_millis(n) for n in (1, 2, 1, 3, 4, 2, 10**9)] == [
        100, 200, 100, 400, 450, 200, 450,
    ]  # fmt: skip
    assert [growing.can_retry(n) for n in (1, 3, 4)] == [True, True, False]
    assert FixedDelayRetryStrategy(1, 7, None, None).get_backoff_time_millis(9) == 7
    assert not NoRetryStrategy().can_retry(1)
    assert AsyncRetryStrategy.no_restart().get_retry_predicate().exception_predicate() is None
    for wrong in [(0, 1), (1, 0), (-1, 1), (1.5, 1), (True, 1)]:
        with pytest.raises(InvalidArgument):
            FixedDelayRetryStrategy(*wrong, None, None)
    with pytest.raises(InvalidArgument, match="multiplier"):
        ExponentialBackoffDelayRetryStrategy(1, 1, 1, 0.0, None, None)
    with pytest.raises(InvalidArgument, match="result_predicate"):
        FixedDelayRetryStrategy(1, 1, "empty", None)


# -- time ------------------------------------------------------------------------------------------------------


class AtValue(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value


class Marks(WatermarkGenerator):
    """A watermark behind every fifth record."""

    def on_event(self, event, event_timestamp, output):
        if event % 5 == 4:
            output.emit_watermark(event_timestamp)


STRATEGIES = {
    "every fifth": WatermarkStrategy.for_generator(Marks),
    "monotonous": WatermarkStrategy.for_monotonous_timestamps(),
}


class Backwards(AsyncFunction):
    """Of five neighbours the last is answered first."""

    async def async_invoke(self, value):
        await asyncio.sleep((4 - value % 5) * 0.002)
        return [value]


class Late(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


@pytest.mark.parametrize("epoch", [3, 1000])
@pytest.mark.parametrize("apart", [False, True])
def test_results_stay_on_their_side_of_a_watermark(epoch, apart):
    times = STRATEGIES["every fifth"].with_timestamp_assigner(AtValue())
    stream = environment(1, epoch).from_collection(range(40))
    answered = unordered(stream.assign_timestamps_and_watermarks(times), Backwards(), MINUTE)
    found = collect((answered.disable_chaining() if apart else answered).process(Late()))
    assert all(value == stamp > watermark for value, stamp, watermark in found)
    values = [value for value, _, _ in found]
    assert sorted(values) == list(range(40))
    if epoch > 40:
        fives = [sorted(values[n : n + 5]) for n in range(0, 40, 5)]
        assert list(itertools.chain(*fives)) == list(range(40))


class Sum(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield context.window().start, sorted(elements)


@BOTH
@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("epoch", [4, 1000])
def test_windows_behind_it(wait, strategy, parallelism, epoch):
    times = STRATEGIES[strategy].with_timestamp_assigner(AtValue())
    stream = environment(parallelism, epoch).from_collection(range(60))
    answered = wait(stream.assign_timestamps_and_watermarks(times), Backwards(), MINUTE, 7)
    windows = answered.key_by(lambda n: 0).window(TumblingEventTimeWindows.of(Time(10)))
    assert collect(windows.process(Sum())) == [
        (start, list(range(start, start + 10))) for start in range(0, 60, 10)
    ]


class Three(Source):
    """Three splits with every third number each, all of which one subtask reads, one after the other."""

    def boundedness(self):
        return Boundedness.BOUNDED

    def create_enumerator(self, parallelism):
        return _Enumerator()

    def create_reader(self):
        return _Reader()


class _Enumerator(SplitEnumerator):
    def discover(self):
        return ["0", "1", "2"]

    def available(self, split, position):
        return 20

    def finished(self, split, position):
        return position == 20


class _Reader(SourceReader):
    def read(self, split, start, end):
        return [n * 3 + int(split) for n in range(start, end)]


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@pytest.mark.parametrize("epoch", [5, 1000])
def test_results_stay_in_their_split(strategy, epoch):
    times = STRATEGIES[strategy].with_timestamp_assigner(AtValue())
    stream = environment(1, epoch).from_source(Three(), times, "three")
    answered = unordered(stream, Backwards(), MINUTE, 7)
    windows = answered.key_by(lambda n: 0).window(TumblingEventTimeWindows.of(Time(10)))
    assert collect(windows.process(Sum())) == [
        (start, list(range(start, start + 10))) for start in range(0, 60, 10)
    ]


def test_windows_before_it():
    times = STRATEGIES["monotonous"].with_timestamp_assigner(AtValue())
    stream = environment(1, 7).from_collection(range(30)).assign_timestamps_and_watermarks(times)
    windows = stream.key_by(lambda n: 0).window(TumblingEventTimeWindows.of(Time(10)))
    sums = windows.reduce(lambda a, b: a + b)
    assert collect(ordered(sums, Echo(0.001), MINUTE)) == [450, 1450, 2450]


# -- errors ----------------------------------------------------------------------------------------------------


class Unlucky(AsyncFunction):
    async def async_invoke(self, value):
        await asyncio.sleep(0.001)
        if value == 13:
            raise ValueError("unlucky")
        return [value]


@BOTH
@pytest.mark.parametrize("capacity", [1, 3, 100])
def test_an_exception_names_its_record(wait, capacity):
    stream = environment().from_collection(range(20))
    with pytest.raises(UserFunctionError) as caught:
        collect(wait(stream, Unlucky(), MINUTE, capacity).name("lookup"))
    assert "the function of 'lookup' raised ValueError: unlucky" in str(caught.value)
    evidence = caught.value.evidence
    assert evidence["record"] == "13"
    assert 'raise ValueError("unlucky")' in evidence["line"]
    assert "test_async.py" in evidence["traceback"]
    assert evidence["position"].endswith("record 13")
    assert "wait(stream, Unlucky()" in str(evidence["declared_at"])


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "The result of AsyncFunction cannot be none, please check the methods"),
        (5, "The result of AsyncFunction should be of list type, please check the methods"),
        ("text", "The result of AsyncFunction should be of list type, please check the methods"),
    ],
)
def test_a_result_must_be_a_list(result, words):
    class Wrong(AsyncFunction):
        async def async_invoke(self, value):
            return result

    with pytest.raises(UserFunctionError, match=words) as caught:
        collect(ordered(environment().from_collection([1]), Wrong(), MINUTE))
    assert "Wrong'>" in caught.value.what
    assert type(result).__name__ in caught.value.evidence["returned"]
    assert caught.value.evidence["record"] == "1"


@pytest.mark.parametrize("many", [tuple, iter, dict.fromkeys])
def test_results_may_come_in_anything_that_can_be_walked(many):
    class Walked(AsyncFunction):
        async def async_invoke(self, value):
            return many([value, value + 1])

    assert collect(ordered(environment().from_collection([1]), Walked(), MINUTE)) == [1, 2]


def test_thread_mode_is_refused_as_in_pyflink():
    class Same(AsyncFunction):
        async def async_invoke(self, value):
            return [value]

    with pytest.warns(UserWarning, match="'python.execution-mode' has no effect"):
        env = environment(python__execution_mode="thread")
    with pytest.raises(UnsupportedOperation, match="is still not supported for 'thread' mode"):
        ordered(env.from_collection([1]), Same(), MINUTE)


def test_a_failure_behind_it_is_not_its_own():
    def explode(value):
        raise KeyError(value)

    stream = environment().from_collection([1])
    with pytest.raises(UserFunctionError) as caught:
        collect(ordered(stream, Echo(), MINUTE).map(explode).name("explode"))
    assert caught.value.evidence["operator"] == "explode"


def test_an_inner_cancellation_is_an_error_of_the_function():
    class Cancelled(AsyncFunction):
        async def async_invoke(self, value):
            raise asyncio.CancelledError

    with pytest.raises(UserFunctionError, match="CancelledError"):
        collect(ordered(environment().from_collection([1]), Cancelled(), MINUTE))


@BOTH
def test_bad_records_by_policy(wait):
    bad = OutputTag("bad")
    env = environment(1, 30)
    stream = env.from_collection(range(20)).map(lambda n: n)
    answered = wait(stream, Unlucky(), MINUTE, 5).on_error(ErrorPolicy.dead_letter(bad))
    with keeping() as kept:
        kept.add("good", answered)
        kept.add("bad", answered.get_side_output(bad))
        client = env.execute_async()
        client.get_job_execution_result().result(30)
        assert sorted(kept.values("good")) == [n for n in range(20) if n != 13]
        (letter,) = kept.values("bad")
        assert (letter.record, letter.position) == ("13", 13)
        assert letter.error == "ValueError: unlucky"
        assert list(client.get_metrics().bad_records.values()) == [(1, 20)]


class Plain(AsyncFunction):
    def async_invoke(self, value):
        return [value]


class Yields(AsyncFunction):
    async def async_invoke(self, value):
        yield value


class WaitsAgain(Echo):
    async def timeout(self, value):
        return []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((Echo(), 0), "timeout"),
        ((Echo(), Time.seconds(-1)), "timeout"),
        ((Echo(), "soon"), "soon"),
        ((Echo(), MINUTE, 0), "capacity"),
        ((Echo(), MINUTE, -1), "capacity"),
        ((Echo(), MINUTE, 2.5), "capacity"),
        ((Echo(), MINUTE, True), "capacity"),
        ((Echo, MINUTE), "not an object of it"),
        ((lambda n: [n], MINUTE), "needs a AsyncFunction"),
        ((Plain(), MINUTE), "not a coroutine"),
        ((Yields(), MINUTE), "not a coroutine"),
        ((WaitsAgain(), MINUTE), "is a coroutine"),
    ],
)
def test_refused_when_the_program_is_built(arguments, says):
    stream = environment().from_collection([1])
    with pytest.raises(InvalidArgument, match=says):
        ordered(stream, *arguments)


def test_more_that_is_refused():
    stream = environment().from_collection([1])
    with pytest.raises(InvalidArgument, match="takes a stream"):
        ordered([1], Echo(), MINUTE)
    with pytest.raises(InvalidArgument, match="AsyncRetryStrategy"):
        AsyncDataStream.unordered_wait_with_retry(stream, Echo(), MINUTE, 3)


# -- life ------------------------------------------------------------------------------------------------------


class Client:
    """As many libraries' clients: bound to the loop it is made in, with a task of its own."""

    def __init__(self, number):
        self.loop = asyncio.get_running_loop()
        self.number = number
        self.task = self.loop.create_task(self._keep_alive())

    async def _keep_alive(self):
        try:
            await asyncio.sleep(600)
        finally:
            LOG[self.number].append("task ended")

    async def get(self, value):
        assert asyncio.get_running_loop() is self.loop
        await asyncio.sleep(0)
        return value * 10

    async def close(self):
        LOG[self.number].append("closed")


class WithClient(AsyncFunction):
    def __init__(self, number):
        self.number = number

    def open(self, runtime_context):
        LOG[self.number].append("opened")
        self.client = Client(self.number)

    async def async_invoke(self, value):
        if value == "hang":
            await asyncio.sleep(600)
        if value == "fail":
            raise ValueError(value)
        return [await self.client.get(value)]

    async def close(self):
        await self.client.close()


def test_open_and_close_run_in_the_loop():
    number = log()
    stream = environment(1, 2).from_collection([1, 2, 3])
    assert collect(ordered(stream, WithClient(number), MINUTE)) == [10, 20, 30]
    assert LOG[number] == ["opened", "closed", "task ended"]


def test_what_is_under_way_is_cancelled_when_the_job_fails(caplog):
    number = log()
    stream = environment().from_collection(["hang", "fail"])
    with pytest.raises(UserFunctionError, match="fail"):
        collect(ordered(stream, WithClient(number), MINUTE))
    assert LOG[number] == ["opened", "closed", "task ended"]
    assert not caplog.records


@pytest.mark.parametrize("method", ["open", "close"])
def test_open_and_close_that_fail(method):
    class Broken(Echo):
        pass

    async def fail(self, *_):
        raise OSError("no")

    setattr(Broken, method, fail)
    with pytest.raises(UserFunctionError, match=rf"{method}\(\) of 'lookup' raised OSError: no"):
        collect(ordered(environment().from_collection([1]), Broken(), MINUTE).name("lookup"))


def test_threads():
    class Blocking(AsyncFunction):
        async def async_invoke(self, value):
            return [await asyncio.to_thread(lambda: value * 2)]

    stream = environment().from_collection(range(5))
    assert collect(ordered(stream, Blocking(), MINUTE)) == [0, 2, 4, 6, 8]


def test_inside_a_running_loop():
    async def main():
        return collect(ordered(environment().from_collection([1, 2]), Echo(), MINUTE))

    assert asyncio.run(main()) == [10, 20]


class Counting(Echo, CheckpointedFunction):
    def initialize_state(self, context):
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("n"))
        self.count = sum(self.state.get())

    def snapshot_state(self, context):
        self.state.update([self.count])

    async def async_invoke(self, value):
        self.count += 1
        return [self.count]


@BOTH
def test_batch_mode(wait):
    env = environment(2).set_runtime_mode(RuntimeExecutionMode.BATCH)
    pairs = env.from_collection([(n % 3, 1) for n in range(30)])
    sums = wait(pairs, Twice(), MINUTE, 4).key_by(0).sum(1)
    assert sorted(collect(wait(sums, Twice(), MINUTE, 4))) == [(0, 40), (1, 40), (2, 40)]


class Twice(AsyncFunction):
    async def async_invoke(self, value):
        await asyncio.sleep(0.001)
        return [(value[0], value[1] * 2)]


def test_operator_state():
    stream = environment(1, 3).from_collection(range(10))
    assert collect(ordered(stream, Counting(), MINUTE)) == list(range(1, 11))


# -- restarts --------------------------------------------------------------------------------------------------


class FailsOnce(AsyncFunction):
    """The job's first time at record 33 is an accident, while others are under way."""

    def __init__(self, number):
        self.number = number

    async def async_invoke(self, value):
        LOG[self.number].append(value)
        await asyncio.sleep(0.001)
        if value == 33 and LOG[self.number].count(33) == 1:
            raise ConnectionError("the server went away")
        return [value]


@BOTH
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("epoch", [1, 10, 1000])
def test_a_restart_answers_each_record_once(wait, parallelism, epoch, tmp_path):
    number = log()
    env = environment(parallelism, epoch, execution__checkpointing__dir=str(tmp_path))
    strategy = RestartStrategies.fixed_delay_restart(3, 0)
    for key, value in strategy.to_configuration().to_dict().items():
        env.get_configuration().set_string(key, value)
    stream = env.from_collection(range(60)).rebalance()
    answered = wait(stream, FailsOnce(number), MINUTE, 8)
    out: list[int] = []
    answered._sink("out", CollectOp(out.extend))
    totals: list[tuple[int, int]] = []
    # Behind another one in the same chain: it has to be settled after the first.
    later = wait(answered, Echo(0.002), MINUTE, 5)
    sums = later.map(lambda n: (n // 10 % 3, n)).key_by(0).sum(1)
    sums._sink("totals", CollectOp(totals.extend))
    client = env.execute_async()
    client.get_job_execution_result().result(60)
    assert client.get_metrics().restarts == 1
    assert sorted(out) == list(range(60))
    assert len(totals) == 60
    assert dict(sorted(totals)) == {key: sum(range(key, 60, 3)) * 10 for key in range(3)}
    asked = Counter(LOG[number])
    assert set(asked) == set(range(60))
    assert asked[33] == 2


class Unending(AsyncFunction):
    """Does not let itself be cancelled, and waits for its request when it is closed."""

    async def async_invoke(self, value):
        self.over = asyncio.get_running_loop().create_future()
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    def timeout(self, value):
        return [-value]

    async def close(self):
        await self.over


def test_a_request_that_swallows_its_cancellation_does_not_hold_up_the_job(monkeypatch):
    monkeypatch.setattr(async_calls, "_PATIENCE", 0.2)
    stream = environment().from_collection([1])
    started = time.monotonic()
    result = collect(unordered(stream, Unending(), Time.milliseconds(100), 2))
    assert result == [-1]
    assert time.monotonic() - started < 20
