"""Programs over columns give what they give over records, and what an interpreter says that they should.

Two kinds of input can be compared with the interpreter, whatever the epochs and the parallelism (rule 63): one split,
where everything is determined, late rows and second firings too; and several splits whose rows keep to their bound.
"""

import itertools
import math
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from millstream.common import Row, WatermarkStrategy
from millstream.datastream import OutputTag, count, max_of, mean_of, min_of, sum_of
from millstream.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows
from millstream.graph.operators import CollectOp
from millstream.runtime.operators import column_exchange
from millstream.runtime.task import columns as task_columns
from millstream.runtime.task import task
from millstream.runtime.windows.from_columns import ColumnsToPanes
from tests.columns import ALL_READ, ColumnSource
from tests.in_rounds import in_rounds
from tests.rescaling import rescaling_at
from tests.support import environment
from tests.waiting import until

LATE = OutputTag("late")
CHUNK = 6

# -- the input ---------------------------------------------------------------------------------------------

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KEYS = {
    "string": (pa.string(), st.sampled_from(["a", "b", "ß", "", None])),
    "large string": (pa.large_string(), st.sampled_from(["a", "b", None])),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", None])),
    "int": (pa.int64(), st.sampled_from([0, 1, -1, 2**63 - 1, None])),
    "byte": (pa.int8(), st.sampled_from([0, 1, -1, None])),
    "bool": (pa.bool_(), st.sampled_from([True, False, None])),
    "float": (pa.float64(), st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf, None])),
    "date": (pa.date32(), st.sampled_from([EPOCH.date(), datetime(2026, 1, 1).date(), None])),
    "moment": (
        pa.timestamp("us", "Europe/Berlin"),
        st.sampled_from([EPOCH, EPOCH + timedelta(days=100), None]),
    ),
    "binary": (pa.binary(), st.sampled_from([b"", b"a\x00", None])),
    "nothing": (pa.null(), st.none()),
}
SMALL = st.integers(-40, 40)
VALUES = {
    "int": (pa.int64(), st.none() | SMALL),
    "byte": (pa.int8(), st.none() | SMALL),
    # Their sums need more than 64 bits.
    "long": (pa.int64(), st.none() | SMALL | st.sampled_from([2**63 - 1, -(2**63), 2**62])),
    "unsigned": (pa.uint64(), SMALL.map(abs) | st.just(2**64 - 1)),
    "float": (pa.float64(), st.none() | st.floats(width=64) | st.sampled_from([0.0, -0.0])),
    "short float": (pa.float32(), st.none() | st.floats(width=32)),
    "nothing": (pa.null(), st.none()),
}
ALL = (sum_of("v"), count(), min_of("v"), max_of("v"), mean_of("v"))


def rows(key, value, times):
    (_, keys), (_, values) = KEYS[key], VALUES[value]
    return st.lists(st.tuples(keys, values, times), max_size=40)


@st.composite
def batches_of(draw, key, value, times, moments):
    """A split's rows, as batches of any length."""
    found = draw(rows(key, value, times))
    stamps = [EPOCH + timedelta(milliseconds=time, microseconds=7) for *_, time in found]
    at = [row[2] for row in found]
    columns = {
        "k": pa.array([row[0] for row in found], KEYS[key][0]),
        "v": pa.array([row[1] for row in found], VALUES[value][0]),
        "at": pa.array(stamps, pa.timestamp("us")) if moments else pa.array(at, pa.int64()),
        "n": pa.array(range(len(found)), pa.int64()),
    }
    whole = pa.RecordBatch.from_pydict(columns)
    cuts = sorted(draw(st.lists(st.integers(0, len(found)), max_size=3)))
    return [whole.slice(a, b - a) for a, b in itertools.pairwise([0, *cuts, len(found)])]


# -- the program --------------------------------------------------------------------------------------------


def as_it_is(table):
    return table


def with_more(frame):
    return frame.assign(more=1.5)


def only_those(columns):
    return {name: columns[name] for name in ("k", "v", "at")}


def odd(table):
    return pa.compute.equal(pa.compute.bit_wise_and(table["n"], 1), 1)


def twice(table):
    structs = table.to_struct_array().combine_chunks()
    offsets = pa.array(np.arange(0, 2 * len(structs) + 1, 2), pa.int32())
    both = structs.take(pa.array(np.repeat(np.arange(len(structs)), 2)))
    return pa.ListArray.from_arrays(offsets, both)


STEPS = {
    "fails once": lambda stream, size: stream.map_batches(
        fail_once, batch_format="arrow", batch_size=size
    ),
    "nothing": lambda stream, size: stream,
    "as it is": lambda stream, size: stream.map_batches(
        as_it_is, batch_format="arrow", batch_size=size
    ),
    "frame": lambda stream, size: stream.map_batches(
        with_more, batch_format="pandas", batch_size=size
    ),
    "arrays": lambda stream, size: stream.map_batches(
        only_those, batch_format="numpy", batch_size=size
    ),
    "filter": lambda stream, size: stream.filter_batches(
        odd, batch_format="arrow", batch_size=size
    ),
    "flat map": lambda stream, size: stream.flat_map_batches(
        twice, batch_format="arrow", batch_size=size
    ),
}
KEYED_BY = {
    "name": "k",
    "item": lambda row: row["k"],
    "place": lambda row: row[0],
    "attribute": lambda row: row.k,
    "called": lambda row: (row["k"],)[0],
    "pair": lambda row: (row["k"], row["v"] is None),
}


@dataclass(frozen=True)
class Program:
    """What is drawn of a program."""

    splits: list
    bound: int
    windows: tuple
    lateness: int = 0
    late: bool = False
    aggregates: tuple = ALL
    step: str = "nothing"
    step_size: int = 5
    keyed_by: str = "name"
    epoch: int | None = None
    parallelism: int = 1
    rounds: int = 1
    chunk: int = CHUNK
    idle: bool = False
    upto: int | None = None
    open: bool = False

    def key(self, record):
        selector = KEYED_BY[self.keyed_by]
        return record["k"] if isinstance(selector, str) else selector(record)


def source_of(program):
    return ColumnSource(*program.splits, upto=program.upto, unbounded=program.open)


FAILED: set = set()


def fail_once(table):
    if any(number >= 9 for number in table["n"].to_pylist()) and not FAILED:
        FAILED.add(True)
        raise ValueError("once")
    return table


def build(env, program, out, late):
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(program.bound)
    strategy = strategy.with_timestamp_column("at")
    if program.idle:
        strategy = strategy.with_idleness("1 h")
    stream = env.from_source(source_of(program), strategy, "source").uid("source")
    stream = STEPS[program.step](stream, program.step_size)
    size, slide, offset = program.windows
    assigner = (
        TumblingEventTimeWindows.of(size, offset)
        if slide == size
        else SlidingEventTimeWindows.of(size, slide, offset)
    )
    windowed = stream.key_by(KEYED_BY[program.keyed_by]).window(assigner)
    if program.lateness:
        windowed = windowed.allowed_lateness(program.lateness)
    if program.late:
        windowed = windowed.side_output_late_data(LATE)
    results = windowed.aggregate_of(*program.aggregates).uid("windows")
    results._sink("out", CollectOp(out.extend))
    if program.late:
        results.get_side_output(LATE)._sink("late", CollectOp(late.extend))


def run(program, columns, **options):
    """The results and the late records, and whether the windows were handed columns."""
    out: list = []
    late: list = []
    taken: list = []
    take = ColumnsToPanes.take

    def noted(self, given):
        taken.append(len(given))
        take(self, given)

    env = environment(
        program.parallelism, program.epoch, **{"millstream__columns": columns, **options}
    )
    build(env, program, out, late)
    with small_pieces(program), patch.object(ColumnsToPanes, "take", noted):
        env.execute()
    return shown(out), shown(late), bool(taken)


def run_and_save(program, columns, folder):
    """The results up to a savepoint, and where that is."""
    out: list = []
    late: list = []
    env = environment(program.parallelism, program.epoch, millstream__columns=columns)
    build(env, program, out, late)
    ALL_READ.clear()
    with small_pieces(program):
        client = env.execute_async()
        until(lambda: ALL_READ)
        path = client.stop_with_savepoint(False, folder).result(30)
    return shown(out), shown(late), path


@contextmanager
def small_pieces(program):
    with ExitStack() as patches:
        patches.enter_context(in_rounds(program.rounds))
        # Generators of watermarks are asked this often, so that there is something between the rows.
        patches.enter_context(patch.object(task, "CHUNK", program.chunk))
        patches.enter_context(patch.object(task_columns, "CHUNK", program.chunk))
        patches.enter_context(patch.object(column_exchange, "_MOST_ADDED", 23))
        patches.enter_context(patch.object(column_exchange, "_MOST_SENT", 17))
        yield


def shown(records):
    """What tells 0.0 from -0.0 and 1 from True, and takes one NaN for another."""
    return list(map(repr, records))


# -- the interpreter ------------------------------------------------------------------------------------------


def records_of(split):
    return [
        Row(**dict(zip(batch.schema.names, values, strict=True)))
        for batch in split
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    ]


def time_of(record):
    at = record["at"]
    return (
        at if isinstance(at, int) else (at.replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)
    )


def result_of(key, values, aggregates):
    there = [value for value in values if value is not None]
    results: list = []
    for aggregate in aggregates:
        if aggregate.kind == "count":
            results.append(len(values))
        elif not there:
            results.append(None)
        elif aggregate.kind in ("sum_of", "mean_of"):
            total = there[0]
            for value in there[1:]:
                total += value
            results.append(total if aggregate.kind == "sum_of" else total / len(there))
        else:
            best = there[0]
            for value in there:
                better = value < best if aggregate.kind == "min_of" else value > best
                best = value if better or value != value else best
            results.append(best)
    return (key, *results)


def windows_of(time, size, slide, offset):
    start = time - (time - offset) % slide
    return [s for s in range(start, start - size, -slide) if s + size > time]


def interpreted(program):
    """The results of one split, and the late records."""
    records = records_of(program.splits[0])
    epoch = program.epoch or len(records) or 1
    size = program.windows[0]
    open_windows: dict = {}
    fired: set = set()
    out: list = []
    late: list = []
    watermark, largest = -math.inf, -math.inf
    for begin in range(0, len(records), epoch):
        part = records[begin : begin + epoch]
        for first in range(0, len(part), program.chunk):
            for record in part[first : first + program.chunk]:
                time, key = time_of(record), program.key(record)
                largest = max(largest, time)
                live = [
                    start
                    for start in windows_of(time, *program.windows)
                    if start + size - 1 + program.lateness > watermark
                ]
                if not live and program.late:
                    late.append(record)
                for start in sorted(live):
                    values = open_windows.setdefault((start, repr(key)), (key, []))[1]
                    values.append(record["v"])
                    if start + size - 1 <= watermark:
                        fired.add((start, repr(key)))
                        out.append(result_of(key, values, program.aggregates))
            watermark = max(watermark, largest - program.bound - 1)
            _fire(program, open_windows, fired, watermark, out)
    _fire(program, open_windows, fired, math.inf, out)
    return shown(out), shown(late)


def _fire(program, open_windows, fired, watermark, out):
    size = program.windows[0]
    for window in sorted(open_windows, key=lambda window: window[0]):
        if window not in fired and window[0] + size - 1 <= watermark:
            fired.add(window)
            key, values = open_windows[window]
            out.append(result_of(key, values, program.aggregates))
    for window in [w for w in open_windows if w[0] + size - 1 + program.lateness <= watermark]:
        del open_windows[window]


# -- the tests ------------------------------------------------------------------------------------------------

WINDOWS = st.sampled_from([(10, 10, 0), (10, 10, 3), (12, 4, 0), (11, 4, 1)])
SOME = st.lists(st.sampled_from(ALL), min_size=1, max_size=5).map(tuple)
STEP_NAMES = st.sampled_from([name for name in STEPS if name != "fails once"])


@st.composite
def programs(draw, *, splits=1, values=None, **options):
    key = draw(st.sampled_from(sorted(KEYS)))
    value = draw(st.sampled_from(values or sorted(VALUES)))
    times, moments = st.integers(0, 60), draw(st.booleans())
    chosen = {
        "bound": draw(st.sampled_from([0, 3, 100])),
        "windows": draw(WINDOWS),
        "lateness": draw(st.sampled_from([0, 0, 7])),
        "late": draw(st.booleans()),
        "aggregates": draw(SOME),
        "step": draw(STEP_NAMES),
        "step_size": draw(st.sampled_from([1, 5, 1000])),
        "keyed_by": draw(st.sampled_from(sorted(KEYED_BY))),
        "epoch": draw(st.sampled_from([None, 7, 19])),
        "rounds": draw(st.sampled_from([1, 1, 2])),
        "idle": draw(st.booleans()),
        **options,
    }
    if value == "unsigned":
        # A column of Arrow's that is made from records has 63 bits.
        chosen["step"] = "nothing"
    if chosen["step"] == "flat map" and chosen["keyed_by"] in ("place", "attribute"):
        # Arrow's structs are dictionaries.
        chosen["keyed_by"] = "item"
    return Program([draw(batches_of(key, value, times, moments)) for _ in range(splits)], **chosen)


@pytest.mark.timeout(1800)
@given(programs())
def test_one_split(program):
    note(repr(program))
    *by_columns, taken = run(program, True)
    *by_rows, untaken = run(program, False)
    event(f"columns: {taken}")
    assert not untaken
    assert by_columns == by_rows


@pytest.mark.timeout(1800)
@given(programs(step="nothing", epoch=None, rounds=1, windows=(10, 10, 3)))
def test_one_split_and_the_interpreter(program):
    """Tumbling windows, in which floats are added in the order of the rows."""
    note(repr(program))
    out, late, taken = run(program, True)
    event(f"columns: {taken}")
    expected, expected_late = interpreted(program)
    assert (sorted(out), late) == (sorted(expected), expected_late)


SIGNED = [name for name in sorted(VALUES) if name != "unsigned"]
EXACT = ["int", "byte", "long", "nothing"]


@pytest.mark.timeout(1800)
@given(programs(step="nothing", epoch=None, rounds=1, values=EXACT))
def test_sliding_windows_and_the_interpreter(program):
    """Ints come to the same in whatever order they are added."""
    note(repr(program))
    out, late, _ = run(program, True)
    expected, expected_late = interpreted(program)
    assert (sorted(out), late) == (sorted(expected), expected_late)


@pytest.mark.timeout(1800)
@given(
    st.integers(2, 4).flatmap(
        lambda number: programs(splits=number, values=EXACT, bound=100, lateness=0)
    ),
    st.integers(1, 3),
)
def test_several_splits(program, parallelism):
    """With several subtasks nothing says in which order their rows come, but all of them do."""
    note(repr(program))
    wide = Program(**{**program.__dict__, "parallelism": parallelism})
    out, late, taken = run(wide, True)
    event(f"columns: {taken}")
    rows, late_rows, _ = run(wide, False)
    assert (sorted(out), late, late_rows) == (sorted(rows), [], [])
    if program.step == "nothing":
        one = Program(**{**program.__dict__, "splits": [list(itertools.chain(*program.splits))]})
        assert sorted(out) == sorted(interpreted(one)[0])


@pytest.mark.timeout(1800)
@given(programs(splits=1, values=EXACT, epoch=7, rounds=1), st.integers(1, 4), st.integers(2, 3))
def test_another_parallelism(program, at, wanted):
    """The subtasks' windows are moved while the job runs, and rows go to where they are."""
    note(repr(program))
    with tempfile.TemporaryDirectory() as folder, rescaling_at({at: wanted}):
        options = {"execution__checkpointing__dir": folder}
        out, late, _ = run(program, True, **options)
    rows, late_rows, _ = run(program, False)
    assert (sorted(out), sorted(late)) == (sorted(rows), sorted(late_rows))


@pytest.mark.timeout(1800)
@given(programs(step="fails once", values=SIGNED, epoch=7, rounds=1), st.booleans())
def test_after_a_failure(program, columns):
    """The job goes on from a checkpoint, and what was gathered for an epoch that failed is forgotten."""
    note(repr(program))
    FAILED.clear()
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "execution__checkpointing__dir": folder,
            "restart_strategy__type": "fixed-delay",
            "restart_strategy__fixed_delay__delay": "0 ms",
        }
        *found, _ = run(program, columns, **options)
    event(f"failed: {bool(FAILED)}")
    FAILED.add(True)
    *expected, _ = run(program, not columns)
    # The keys of a window come in another order after it was read from a file, by whatever way its rows came.
    assert [sorted(found[0]), found[1]] == [sorted(expected[0]), expected[1]]


@pytest.mark.timeout(1800)
@given(programs(step="nothing", epoch=7, rounds=1), st.booleans(), st.integers(1, 5))
def test_a_checkpoint_of_one_kind_is_one_of_the_other(program, columns, epochs):
    """A job goes on from a checkpoint by rows that columns have left, and the other way round."""
    note(repr(program))
    rows = sum(batch.num_rows for batch in program.splits[0])
    first = Program(**{**program.__dict__, "upto": min(rows, 7 * epochs), "open": True})
    with tempfile.TemporaryDirectory() as folder:
        begun, begun_late, path = run_and_save(first, columns, folder)
        options = {"execution__state_recovery__path": path}
        out, late, _ = run(program, not columns, **options)
    whole, whole_late, _ = run(program, columns)
    assert (sorted(begun + out), begun_late + late) == (sorted(whole), whole_late)
