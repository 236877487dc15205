"""Functions over many records at once: what they are called with, and what becomes of what they give."""

import json
import pickle
import re
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from millstream.api.checkpointed import CheckpointedFunction
from millstream.api.error_policy import ErrorPolicy
from millstream.common import Types
from millstream.common.types import Row
from millstream.common.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkStrategy,
)
from millstream.datastream import (
    FilterBatchesFunction,
    FlatMapBatchesFunction,
    MapBatchesFunction,
    OutputTag,
    ProcessFunction,
)
from millstream.datastream.state import ListStateDescriptor, ValueStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import (
    InvalidArgument,
    JobError,
    TypeMismatchError,
    UnsupportedOperation,
    UserFunctionError,
)
from tests.support import collect, environment, keeping

BAD = OutputTag("bad")
LATE = OutputTag("late")

# The batches that functions have got. Functions are copied, this module is not.
CALLS: list = []


@pytest.fixture(autouse=True)
def no_calls():
    CALLS.clear()


def seen(batch):
    CALLS.append(batch)
    return batch


def sizes():
    return list(map(len, CALLS))


class AtSecond(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Punctuated(WatermarkGenerator):
    """After each record the watermark is at its time."""

    def on_event(self, event, event_timestamp, output):
        output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output):
        pass


class Stamps(ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp()


def timed(stream, generator=Punctuated):
    strategy = WatermarkStrategy.for_generator(generator)
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(AtSecond()))


# -- when the function is called ---------------------------------------------------------------------------


def test_a_call_has_as_many_records_as_it_may():
    assert collect(environment().from_collection(range(10)).map_batches(seen, 4)) == list(range(10))
    assert CALLS == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_batch_ends_with_its_epoch():
    assert collect(environment(epoch=5).from_collection(range(10)).map_batches(seen, 4)) == [
        *range(10)
    ]
    assert sizes() == [4, 1, 4, 1]


def test_a_batch_may_be_larger_than_what_a_task_reads_at_once():
    numbers = environment().from_collection(range(5000))
    assert collect(numbers.map_batches(seen, 3000)) == list(range(5000))
    assert sizes() == [3000, 2000]


def test_watermarks_do_not_end_a_batch_and_stay_between_their_records():
    """Each record's watermark makes the next window's predecessor fire: what comes after it is late."""
    records = [("a", time) for time in (1, 2, 12, 3, 13, 25, 14)]
    stream = timed(environment().from_collection(records)).map_batches(seen, 4)
    windows = stream.key_by(lambda v: v[0]).window(TumblingEventTimeWindows.of(10))
    sums = windows.side_output_late_data(LATE).reduce(lambda a, b: (a[0], a[1] + b[1]))
    with keeping() as kept:
        kept.add("sums", sums)
        kept.add("late", sums.get_side_output(LATE))
        stream._env.execute()
        assert kept.values("sums") == [("a", 3), ("a", 25), ("a", 25)]
        assert kept.values("late") == [("a", 3), ("a", 14)]
    assert sizes() == [4, 3]


def test_watermarks_without_records_between_them_are_not_held_for_ever():
    """A filter that stands between the watermarks and the batch lets none of the records through."""
    records = [("a", time) for time in range(3000)]
    some = timed(environment().from_collection(records)).filter(lambda v: v[1] % 2900 == 5)
    windows = some.map_batches(seen, 10).key_by(lambda v: v[0])
    counts = windows.window(TumblingEventTimeWindows.of(10)).reduce(lambda a, b: b)
    assert collect(counts) == [("a", 5), ("a", 2905)]
    assert sizes() == [1, 1]


class Sleepy(WatermarkGenerator):
    """Idle after each record."""

    def on_event(self, event, event_timestamp, output):
        output.emit_watermark(event_timestamp)
        output.mark_idle()

    def on_periodic_emit(self, output):
        pass


def test_who_says_that_it_is_idle_holds_nothing_back():
    stream = timed(environment().from_collection([("a", 1), ("a", 2)]), Sleepy)
    mapped = stream.map_batches(seen, 4)
    windows = mapped.key_by(lambda v: v[0]).window(TumblingEventTimeWindows.of(10))
    assert collect(windows.reduce(lambda a, b: b)) == [("a", 2)]
    assert sizes() == [1, 1]


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
def test_batches_behind_batches_and_windows(mode):
    records = [("a", time) for time in range(100)]
    env = environment(2, execution__runtime_mode=mode)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(AtSecond())
    stream = env.from_collection(records).assign_timestamps_and_watermarks(strategy)
    windows = stream.key_by(lambda v: v[0]).window(TumblingEventTimeWindows.of(10))
    ends = windows.reduce(lambda a, b: b).map_batches(seen, 4)
    kept = ends.filter_batches(lambda batch: [v[1] % 20 == 9 for v in batch], 3)
    twice = kept.flat_map_batches(lambda batch: [[v[1], -v[1]] for v in batch], 2)
    assert Counter(collect(twice)) == Counter(n for t in range(9, 100, 20) for n in (t, -t))
    assert sizes() == [4, 4, 2]


def test_results_have_the_timestamps_of_their_records():
    stream = timed(environment().from_collection([("a", 5), ("b", 7), ("c", 9)]))
    mapped = stream.map_batches(lambda batch: [v[0] for v in batch])
    assert collect(mapped.process(Stamps())) == [("a", 5), ("b", 7), ("c", 9)]
    kept = stream.filter_batches(lambda batch: [v[0] != "b" for v in batch])
    assert collect(kept.process(Stamps())) == [(("a", 5), 5), (("c", 9), 9)]
    flat = stream.flat_map_batches(lambda batch: [[], ["x", "y"], (n for n in "z")])
    assert collect(flat.process(Stamps())) == [("x", 7), ("y", 7), ("z", 9)]


# -- functions ---------------------------------------------------------------------------------------------


class Model(MapBatchesFunction):
    def open(self, runtime_context):
        self.name = runtime_context.get_task_name()
        self.calls = runtime_context.get_metrics_group().counter("calls")
        CALLS.append("open")

    def map_batches(self, batch):
        self.calls.inc()
        return batch["f0"] * 2 + batch["f1"]

    def close(self):
        CALLS.append("close")


def test_a_function_object_is_opened_and_closed_and_has_metrics():
    env = environment(epoch=3)
    scores = env.from_collection([(1, 0.5)] * 6).map_batches(Model(), 2, "numpy").uid("model")
    with keeping() as kept:
        kept.add("scores", scores)
        client = env.execute_async()
        client.get_job_execution_result().result(timeout=60)
        assert kept.values("scores") == [2.5] * 6
        assert {type(score) for score in kept.values("scores")} == {float}
    [vertex] = client.get_metrics().vertices.values()
    assert [o.user[(), "calls"].count for o in vertex.operators["model"]] == [4]
    assert CALLS == ["open", "close"]


class Even(FilterBatchesFunction):
    def filter_batches(self, batch):
        return batch["value"] % 2 == 0


class Words(FlatMapBatchesFunction):
    def flat_map_batches(self, batch):
        for line in batch:
            yield line.split()


def test_objects_that_filter_and_flat_map():
    env = environment()
    assert collect(env.from_collection(range(5)).filter_batches(Even(), 2, "pandas")) == [0, 2, 4]
    lines = env.from_collection(["to be", "", "or not"])
    assert collect(lines.flat_map_batches(Words())) == ["to", "be", "or", "not"]


class Totals(MapBatchesFunction, CheckpointedFunction):
    """A running number over all batches."""

    def initialize_state(self, context):
        self.state = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("total", Types.LONG())
        )
        self.total = sum(self.state.get())

    def snapshot_state(self, context):
        self.state.update([self.total])

    def map_batches(self, batch):
        results = [(self.total + n, value) for n, value in enumerate(batch)]
        self.total += len(batch)
        return results


FAILED: list = []


def fail_once(value):
    if value[1] == 7 and not FAILED:
        FAILED.append(value)
        raise ValueError("once")
    return value


def test_operator_state_is_that_of_whole_batches(tmp_path):
    FAILED.clear()
    env = environment(
        epoch=5,
        execution__checkpointing__dir=tmp_path,
        restart_strategy__type="fixed-delay",
        restart_strategy__fixed_delay__delay="0 ms",
    )
    numbered = env.from_collection(range(12)).map_batches(Totals(), 2).map(fail_once)
    assert collect(numbered) == [(n, n) for n in range(12)]
    assert FAILED


class WithState(MapBatchesFunction):
    def open(self, runtime_context):
        runtime_context.get_state(ValueStateDescriptor("seen"))

    def map_batches(self, batch):
        return batch


def test_on_a_keyed_stream_a_batch_has_many_keys_and_no_state():
    env = environment()
    keyed = env.from_collection(range(6)).key_by(lambda n: n % 3)
    assert sorted(collect(keyed.map_batches(seen, 4))) == list(range(6))
    assert sizes() == [4, 2]
    with pytest.raises(UnsupportedOperation, match="records of any key in a batch"):
        collect(keyed.map_batches(WithState()))


def test_a_batch_is_the_functions_own():
    """It may keep and change it; neither what was sent nor what comes next is touched."""

    class Keeps(FilterBatchesFunction):
        kept: list = []  # noqa: RUF012

        def filter_batches(self, batch):
            mask = [True] * len(batch)
            for record in self.kept:
                record.append("changed later")
            self.kept = batch[:]
            batch.clear()
            return mask

    lists = environment().from_collection([[n] for n in range(6)])
    assert collect(lists.filter_batches(Keeps(), 2).map(lambda v: v)) == [[n] for n in range(6)]


def test_declared_types_hold():
    env = environment()
    numbers = env.from_collection([1, 2])
    typed = numbers.map_batches(lambda b: [np.float64(n) for n in b], output_type=Types.DOUBLE())
    assert {type(n) for n in collect(typed)} == {float}
    rows = numbers.map_batches(
        lambda b: [(n, str(n)) for n in b],
        output_type=Types.ROW_NAMED(["n", "text"], [Types.INT(), Types.STRING()]),
    )
    assert collect(rows) == [Row(n=1, text="1"), Row(n=2, text="2")]
    kept = env.from_collection([1, 2], Types.INT()).filter_batches(lambda b: [n > 1 for n in b])
    assert kept.get_type() == Types.INT()
    assert collect(kept) == [2]
    with pytest.raises(TypeMismatchError) as failure:
        collect(numbers.map_batches(lambda b: ["x" for _ in b], output_type=Types.INT()))
    assert failure.value.evidence["operator"] == "Map batches"


def test_records_are_counted_and_operators_have_names():
    env = environment(2, epoch=7)
    stream = env.from_collection(range(20)).uid("source")
    kept = stream.filter_batches(lambda b: [n % 2 == 0 for n in b], 3).uid("kept")
    mapped = kept.map_batches(list, 4).uid("mapped")
    flat = mapped.flat_map_batches(lambda b: [[n, n] for n in b], 4).uid("flat")
    flat.add_sink(lambda n: None).uid("sink")
    names = [node["type"] for node in json.loads(env.get_execution_plan())["nodes"]]
    assert names[1:4] == ["Filter batches", "Map batches", "FlatMap batches"]
    client = env.execute_async()
    client.get_job_execution_result().result(timeout=60)
    found = {
        uid: (sum(o.records_in for o in each), sum(o.records_out for o in each))
        for vertex in client.get_metrics().vertices.values()
        for uid, each in vertex.operators.items()
    }
    assert found == {
        "source": (20, 20),
        "kept": (20, 10),
        "mapped": (10, 10),
        "flat": (10, 20),
        "sink": (20, 0),
    }


# -- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["map_batches", "filter_batches", "flat_map_batches"])
@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 0},
        {"batch_size": 1.5},
        {"batch_size": True},
        {"batch_format": "polars"},
        {"func": Model},
        {"func": lambda: None},
        {"func": lambda a, b: None},
        {"func": 5},
    ],
)
def test_arguments_that_cannot_work_are_refused(call, arguments):
    stream = environment().from_collection([1])
    with pytest.raises(InvalidArgument):
        getattr(stream, call)(**{"func": list, **arguments})


async def asks(batch):
    return batch


def test_an_async_function_is_refused():
    with pytest.raises(InvalidArgument, match="is async"):
        environment().from_collection([1]).map_batches(asks)


def failing(stream, error=UserFunctionError):
    with pytest.raises(error) as failure:
        collect(stream)
    return failure.value


def test_another_number_of_results_fails_the_job():
    numbers = environment().from_collection(range(6))
    error = failing(numbers.map_batches(lambda b: b[:3], 4))
    assert error.what == "the function of 'Map batches' gave 3 results for 4 records"
    assert error.evidence["position"] == "collection, records 0 to 3"
    assert error.evidence["record"] == "from 0 to 3"
    assert "test_batches.py" in str(error.evidence["declared_at"])
    error = failing(numbers.filter_batches(lambda b: [True], 4))
    assert error.what == "the function of 'Filter batches' gave 1 boolean for 4 records"
    error = failing(numbers.flat_map_batches(lambda b: [b], 4))
    assert error.what == "the function of 'FlatMap batches' gave 1 iterable for 4 records"
    error = failing(numbers.map_batches(lambda b: [*b, 1], 1))
    assert error.what == "the function of 'Map batches' gave 2 results for 1 record"
    assert error.evidence["record"] == "0"


def divide(batch):
    return [12 // n for n in batch]


def test_a_function_that_raises_fails_the_job_and_is_told_with_its_batch():
    numbers = environment().from_collection([1, 2, 3, 4, 5, 0, 7])
    error = failing(numbers.map_batches(divide, 3))
    assert "raised ZeroDivisionError" in error.what
    assert error.evidence["operator"] == "Map batches"
    assert "in divide: return [12 // n for n in batch]" in error.evidence["line"].replace(
        "<listcomp>", "divide"
    )
    assert error.evidence["batch"] == "3 records"
    assert error.evidence["position"] == "collection, records 3 to 5"
    # At the end of the input there is no record at hand.
    error = failing(numbers.map_batches(divide, 100))
    assert error.evidence["position"] == "collection, records 0 to 6"
    assert error.evidence["record"] == "from 1 to 7"
    # What was read where is not known behind another batch.
    error = failing(numbers.map_batches(list, 2).map_batches(divide, 2))
    assert error.evidence["position"] == "the operator does not read its input directly"


def test_what_fails_behind_a_batch_is_the_failure_of_the_one_behind():
    numbers = environment().from_collection([1, 0])
    error = failing(numbers.map_batches(list).map(lambda n: 1 // n).name("behind"))
    assert error.evidence["operator"] == "behind"
    assert error.evidence["record"] == "0"


def test_one_record_in_the_place_of_several_is_refused():
    error = failing(environment().from_collection(["a"]).flat_map_batches(lambda b: ["text"]))
    assert "one str where any number of records is wanted" in error.what
    columns = environment().from_collection([1]).flat_map_batches(lambda b: {"a": b})
    assert "an iterable for each record is wanted" in failing(columns).what
    for wrong in (1, None):
        one = (
            environment().from_collection(["a"]).flat_map_batches(lambda b, w=wrong: [w for _ in b])  # type: ignore[misc]
        )
        error = failing(one)
        assert f"gave one {type(wrong).__name__} for a record" in error.what
        assert (
            error.hint
            == "give an iterable for each record, in their order, [] for one without results"
        )


@pytest.mark.parametrize("call", ["map_batches", "filter_batches", "flat_map_batches"])
def test_a_forgotten_return_is_told_as_one(call):
    error = failing(getattr(environment().from_collection([1]), call)(lambda b: None))
    assert error.what.endswith("gave None")
    assert "without a return" in error.hint
    assert error.evidence["record"] == "1"


def test_a_row_of_an_array_is_what_a_record_gives():
    numbers = environment().from_collection([1, 2])
    pairs = numbers.flat_map_batches(lambda a: np.stack([a, a * 10], axis=1), batch_format="numpy")
    assert collect(pairs.map(lambda n: (n, type(n)))) == [(n, int) for n in (1, 10, 2, 20)]
    empty = numbers.flat_map_batches(lambda a: np.zeros((len(a), 0)), batch_format="numpy")
    assert collect(empty) == []
    wide = numbers.flat_map_batches(lambda a: np.zeros((len(a), 1, 2)), batch_format="numpy")
    assert collect(wide) == [(0.0, 0.0), (0.0, 0.0)]


def test_the_results_of_one_record_may_be_a_set_and_those_of_a_batch_may_not():
    numbers = environment().from_collection([1, 2])
    assert collect(numbers.flat_map_batches(lambda b: [{n} for n in b])) == [1, 2]
    assert "has no order" in failing(numbers.map_batches(lambda b: {-n for n in b})).what


# -- bad records -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("epoch", [None, 2])
def test_only_bad_records_are_skipped(size, epoch):
    env = environment(epoch=epoch)
    numbers = env.from_collection([3, 0, 4, 6, 0, 12])
    good = numbers.map_batches(divide, size).on_error(ErrorPolicy.skip()).uid("divide")
    with keeping() as kept:
        kept.add("good", good)
        client = env.execute_async()
        client.get_job_execution_result().result(timeout=60)
        assert kept.values("good") == [4, 3, 2, 1]
    assert client.get_metrics().bad_records == {"divide": (2, 6)}


def changing(batch):
    """Fails after it has changed what it was given."""
    for record in batch:
        record.append("changed")
    return [1 // record[0] for record in batch]


@pytest.mark.parametrize("call", ["map_batches", "flat_map_batches", "filter_batches"])
def test_letters_have_the_record_as_it_came_and_its_position(call):
    env = environment()

    def function(batch):
        results = changing(batch)
        return {
            "map_batches": results,
            "flat_map_batches": [[n, n] for n in results],
            "filter_batches": [n == 1 for n in results],
        }[call]

    lists = env.from_collection([[n] for n in (1, 0, 2, 0, 1)])
    good = getattr(lists, call)(function, 3).on_error(ErrorPolicy.dead_letter(BAD))
    letters = good.get_side_output(BAD)
    with keeping() as kept:
        kept.add("good", good.map(str))
        kept.add("letters", letters)
        env.execute()
        found = kept.values("letters")
        assert [pickle.loads(letter.data) for letter in found] == [[0], [0]]
        assert [(letter.source, letter.position) for letter in found] == [
            ("collection", 1),
            ("collection", 3),
        ]
        assert all("ZeroDivisionError" in letter.error for letter in found)
        assert (
            kept.values("good")
            == {
                "map_batches": ["1", "0", "1"],
                "flat_map_batches": ["1", "1", "0", "0", "1", "1"],
                "filter_batches": ["[1, 'changed']", "[1, 'changed']"],
            }[call]
        )


def test_letters_of_operators_behind_a_batch_say_where_their_records_were_read():
    env = environment()
    numbers = env.from_collection([1, 2, 0, 4, 5]).map_batches(lambda b: b, 4)
    good = numbers.filter_batches(lambda b: [n != 1 for n in b], 3).map(lambda n: 4 // n)
    good = good.on_error(ErrorPolicy.dead_letter(BAD))
    letters = good.get_side_output(BAD).map(lambda letter: letter.position)
    assert collect(letters) == [2]


@pytest.mark.parametrize(
    "answer", [lambda: "two", lambda: 2.5, lambda: 1 / 0, threading.Lock, lambda: Row("a")]
)
def test_results_that_do_not_fit_are_the_failures_of_their_records(answer):
    env = environment()
    numbers = env.from_collection([1, 2, 3])
    typed = None if answer is threading.Lock else Types.INT()
    mapped = numbers.map_batches(
        lambda b: [answer() if n == 2 else n for n in b], output_type=typed
    )
    assert collect(mapped.on_error(ErrorPolicy.skip())) == [1, 3]


def test_records_that_make_no_columns_are_tried_one_by_one():
    env = environment()
    mixed = env.from_collection([("a", 1), ("b",), ("c", 3)])
    second = mixed.map_batches(lambda c: c["f1"] * 2, batch_format="numpy")
    assert "different fields" in failing(second).what
    assert collect(second.on_error(ErrorPolicy.skip())) == [2, 6]


def test_too_many_bad_records_fail_the_job():
    zeros = environment().from_collection([0] * 200)
    bad = zeros.map_batches(divide, 50).on_error(ErrorPolicy.skip(max_share=0.1))
    assert "too many bad records" in failing(bad, JobError).what


def test_late_records_stay_late_where_a_batch_has_bad_ones():
    """Watermarks stay between the records that are tried one by one."""
    records = [("a", time) for time in (1, 12, 3, 0, 25)]
    stream = timed(environment().from_collection(records))
    good = stream.filter_batches(lambda batch: [1 // v[1] < 9 for v in batch], 10)
    good = good.on_error(ErrorPolicy.skip())
    windows = good.key_by(lambda v: v[0]).window(TumblingEventTimeWindows.of(10))
    sums = windows.side_output_late_data(LATE).reduce(lambda a, b: (a[0], a[1] + b[1]))
    with keeping() as kept:
        kept.add("sums", sums)
        kept.add("late", sums.get_side_output(LATE))
        stream._env.execute()
        assert kept.values("sums") == [("a", 1), ("a", 12), ("a", 25)]
        assert kept.values("late") == [("a", 3)]


# -- the page ----------------------------------------------------------------------------------------------


def test_the_programs_of_the_page_run(capsys):
    text = (Path(__file__).parents[2] / "docs" / "batches.md").read_text()
    first, *others = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    scope: dict = {}
    exec(first.replace("environment()", 'environment("in-process")'), scope)
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["('ann', 3.0)", "('bob', 3.0)", "('cy', 0.0)"]
    assert all(f"`{line}`" in text for line in printed)
    exec("\n".join(others), scope)
    assert collect(scope["dear"]) == [("gold", 60)]
    assert collect(scope["numbers"]) == [1, 3]
