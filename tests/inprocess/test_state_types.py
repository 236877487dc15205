"""Declared types of state in whole jobs: values are fitted when they are put, all state is checked at a restore, and
the editor writes nothing that the job could not have put."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import threading

import numpy as np
import pytest

import millstream.state
from millstream.common.time import Time
from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from millstream.datastream import (
    AggregateFunction,
    BroadcastProcessFunction,
    CheckpointedFunction,
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
)
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.errors import (
    InvalidArgument,
    MillstreamError,
    StateMismatch,
    StateNotSerializable,
    TypeMismatchError,
    UnsupportedOperation,
)
from millstream.graph.operators import CollectOp
from millstream.runtime.state.storing import which_entry
from millstream.testing import OperatorHarness
from tests.inprocess.test_savepoints import Count, saved, start
from tests.inprocess.test_state import BY_SPLIT, Numbers, environment, wait_for


@dataclasses.dataclass
class Place:
    name: str
    at: datetime.datetime


@dataclasses.dataclass
class Trip:
    n: int
    first: Place
    all: list[Place]


class Level(enum.IntEnum):
    HIGH = 3


NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)


def trip(n):
    return Trip(n, Place("a", NOON), [Place("b", NOON)] * 2)


@pytest.mark.parametrize(
    ("type_info", "make", "add", "kept"),
    [
        (Types.LONG(), lambda: np.int64(1), lambda n: np.int64(n + 1), 10),
        (Types.LONG(), lambda: Level.HIGH, lambda n: Level.HIGH, 3),
        (Trip, lambda: trip(1), lambda t: dataclasses.replace(t, n=t.n + 1), trip(10)),
        (Types.SQL_DATE(), lambda: NOON.date(), lambda d: d, NOON.date()),
        (
            Types.ROW_NAMED(["a", "n"], [Types.FLOAT(), Types.INT()]),
            lambda: {"n": 1, "a": 1.1},
            lambda row: Row(n=row.n + 1, a=row.a),
            Row(a=1.100000023841858, n=10),
        ),
    ],
    ids=["numpy", "IntEnum", "dataclass", "date", "row by name"],
)
@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
def test_values_of_every_kind_survive_a_restore(tmp_path, type_info, make, add, kept, backend):
    function = Count(ValueStateDescriptor("count", type_info), make, add)
    path = saved(tmp_path, function)
    for _, value in millstream.state.open_savepoint(path).rows("counter", "count"):
        shown = dataclasses.asdict(kept) if dataclasses.is_dataclass(kept) else kept
        assert (value, type(value)) == (shown, type(shown))
    out = []
    config = {"state_backend_type": backend, "millstream_epoch_records": 20}
    env = environment(1, **config)
    env.get_configuration().set_string("execution.state-recovery.path", path)
    numbers = env.from_source(Numbers(66, unbounded=True), None, "numbers").uid("numbers")
    look = Count(ValueStateDescriptor("count", type_info), make, lambda value: value)
    numbers.key_by(BY_SPLIT).process(look).uid("counter")._sink("out", CollectOp(out.extend))
    client = env.execute_async("counting")
    wait_for(out, 6)
    client.cancel().result(30)
    assert {repr(value) for _, value in out} == {repr(kept)}


class Failing(Count):
    """Fails once, when there is a checkpoint to go on from."""

    failed = threading.Event()

    def process_element(self, value, ctx):
        if value > 50 and not self.failed.is_set():
            self.failed.set()
            raise RuntimeError("once")
        yield from super().process_element(value, ctx)


def test_a_transient_failure_does_not_end_a_job_with_values_of_every_kind():
    out = []
    function = Failing(
        ValueStateDescriptor("count", Trip),
        lambda: trip(np.int64(1)),
        lambda t: dataclasses.replace(t, n=np.int64(t.n + 1)),
    )
    Failing.failed.clear()
    env = environment(2, millstream_epoch_records=20)
    config = env.get_configuration().set_string("restart-strategy.type", "fixed-delay")
    config.set_string("restart-strategy.fixed-delay.delay", "1 ms")
    numbers = env.from_source(Numbers(120, unbounded=True), None, "numbers").uid("numbers")
    numbers.key_by(BY_SPLIT).process(function)._sink("out", CollectOp(out.extend))
    client = env.execute_async("once")
    wait_for(out, 120)
    client.cancel().result(30)
    assert Failing.failed.is_set()
    assert max(value.n for _, value in out) == 20
    assert {type(value.n) for _, value in out} == {int}


@pytest.mark.parametrize(
    ("descriptor", "value", "error"),
    [
        (ValueStateDescriptor("s", Types.LONG()), "x", TypeMismatchError),
        (ValueStateDescriptor("s", Trip), dataclasses.replace(trip(1), n="x"), TypeMismatchError),
        (
            ValueStateDescriptor("s", Types.PRIMITIVE_ARRAY(Types.BYTE())),
            [1, None],
            TypeMismatchError,
        ),
        (ValueStateDescriptor("s"), "a lock", StateNotSerializable),
    ],
)
def test_what_cannot_be_kept_is_refused_where_it_is_put(descriptor, value, error):
    class Put(KeyedProcessFunction):
        def open(self, ctx):
            self.state = ctx.get_state(descriptor)

        def process_element(self, n, ctx):
            self.state.update(threading.Lock() if value == "a lock" else value)
            yield 1

    env = environment(1)
    stream = env.from_collection([1]).key_by(lambda n: n).process(Put()).name("putting")
    with pytest.raises(error) as caught:
        list(stream.execute_and_collect())
    evidence = caught.value.evidence
    assert evidence["state"] == "s"
    assert "state.update" in str(caught.value), "the user's line"
    assert evidence["operator"] == "putting"


# -- every kind of state is checked at a restore -------------------------------------------------------------


class Remember(BroadcastProcessFunction):
    def __init__(self, descriptor):
        self.descriptor = descriptor

    def process_element(self, value, ctx):
        yield ctx.get_broadcast_state(self.descriptor).get("last")

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(self.descriptor).put("last", value)


class Keep(MapFunction, CheckpointedFunction):
    def __init__(self, descriptor, union):
        self.descriptor, self.union = descriptor, union

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        get = store.get_union_list_state if self.union else store.get_list_state
        self.state = get(self.descriptor)
        self.seen = list(self.state.get())

    def snapshot_state(self, context):
        self.state.update(self.seen[-1:])

    def map(self, value):
        self.seen.append(value)
        return value


def broadcasting(descriptor, count, out, path=None, *, parallelism=1):
    env = environment(parallelism, millstream_epoch_records=20)
    if path is not None:
        env.get_configuration().set_string("execution.state-recovery.path", path)
    rules = env.from_source(Numbers(count, unbounded=True), None, "rules").uid("rules")
    numbers = env.from_source(Numbers(count, unbounded=True), None, "numbers").uid("numbers")
    both = numbers.connect(rules.broadcast(descriptor)).process(Remember(descriptor))
    both.uid("both")._sink("out", CollectOp(out.extend))
    return env.execute_async("broadcasting")


def keeping(descriptor, count, out, path=None, *, union=False, parallelism=1):
    env = environment(parallelism, millstream_epoch_records=20)
    if path is not None:
        env.get_configuration().set_string("execution.state-recovery.path", path)
    numbers = env.from_source(Numbers(count, unbounded=True), None, "numbers").uid("numbers")
    kept = numbers.map(Keep(descriptor, union)).uid("keep")
    kept._sink("out", CollectOp(out.extend))
    return env.execute_async("keeping")


def unioned(*args, **options):
    return keeping(*args, union=True, **options)


def mapped(name, value_type):
    return MapStateDescriptor(name, Types.STRING(), value_type)


CHECKED = [
    (broadcasting, mapped("rules", Types.LONG()), mapped("limits", Types.LONG()), "rules"),
    (broadcasting, mapped("rules", Types.LONG()), mapped("rules", Types.STRING()), "rules"),
    (broadcasting, mapped("rules", Types.LONG()), MapStateDescriptor("rules"), "rules"),
    (
        keeping,
        ListStateDescriptor("kept", Types.LONG()),
        ListStateDescriptor("kept", Types.STRING()),
        "kept",
    ),
    (
        unioned,
        ListStateDescriptor("kept", Types.LONG()),
        ListStateDescriptor("kept", Types.STRING()),
        "kept",
    ),
    (unioned, ListStateDescriptor("kept"), ListStateDescriptor("kept", Types.STRING()), "kept"),
    (keeping, ListStateDescriptor("kept", Types.LONG()), ListStateDescriptor("other"), "kept"),
]


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize(("run", "before", "after", "name"), CHECKED)
def test_renamed_and_retyped_operator_state_is_refused(
    tmp_path, run, before, after, name, parallelism
):
    out = []
    client = run(before, 40, out)
    wait_for(out, 40)
    path = client.stop_with_savepoint(False, str(tmp_path)).result(30)
    client = run(after, 80, [], path, parallelism=parallelism)
    with pytest.raises(StateMismatch) as caught:
        client.get_job_execution_result().result(30)
    assert caught.value.evidence["state"] == name
    assert caught.value.evidence["found"] != caught.value.evidence["wanted"]
    more = []
    client = run(before, 60, more, path, parallelism=parallelism)
    wait_for(more, 20)
    client.cancel().result(30)
    assert len(more) == 20
    if run is broadcasting:
        assert None not in more


def test_broadcast_state_that_was_not_declared_is_refused():
    env = environment(1)
    rules = env.from_collection([1]).broadcast(MapStateDescriptor("rules"))
    both = env.from_collection([1]).connect(rules).process(Remember(MapStateDescriptor("rule")))
    with pytest.raises(InvalidArgument, match="not broadcast with the state 'rule'"):
        list(both.execute_and_collect())


# -- reduce functions with state -----------------------------------------------------------------------------


class Counted(ReduceFunction):
    """Counts its calls in state of the key."""

    def __init__(self, name="calls"):
        self.name = name

    def open(self, ctx):
        self.calls = ctx.get_state(ValueStateDescriptor(self.name, Types.LONG()))

    def reduce(self, a, b):
        calls = (self.calls.value() or 0) + 1
        self.calls.update(calls)
        return a[0], a[1] + b[1], calls


PAIRS = [("a", 1, 0), ("b", 1, 0), ("a", 2, 0), ("a", 3, 0), ("b", 5, 0)]


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_reduce_function_may_use_state_of_the_key(mode, parallelism):
    env = environment(parallelism, millstream_epoch_records=2)
    env.get_configuration().set_string("execution.runtime-mode", mode)
    reduced = env.from_collection(PAIRS).key_by(lambda pair: (pair[0],)).reduce(Counted())
    got = sorted(reduced.execute_and_collect())
    last = [("a", 6, 2), ("b", 6, 1)]
    assert got == (last if mode == "BATCH" else sorted([*PAIRS[:2], ("a", 3, 1), *last]))


def test_the_name_of_the_operators_own_state_is_taken():
    env = environment(1)
    reduced = env.from_collection(PAIRS).key_by(lambda pair: pair[0]).reduce(Counted("reduce"))
    with pytest.raises(InvalidArgument, match="keeps a state of its own under the name 'reduce'"):
        list(reduced.execute_and_collect())


class CountedSum(AggregateFunction):
    def open(self, ctx):
        self.calls = ctx.get_state(ValueStateDescriptor("calls"))

    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value[1]

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


@pytest.mark.parametrize("count", [True, False])
@pytest.mark.parametrize("kind", ["reduce", "aggregate"])
def test_functions_that_add_to_windows_have_no_state(count, kind):
    env = environment(1)
    keyed = env.from_collection(PAIRS).key_by(lambda pair: pair[0])
    windows = (
        keyed.count_window(2)
        if count
        else keyed.window(TumblingEventTimeWindows.of(Time.seconds(1)))
    )
    made = windows.reduce(Counted()) if kind == "reduce" else windows.aggregate(CountedSum())
    with pytest.raises(UnsupportedOperation, match="cannot have keyed state"):
        list(made.execute_and_collect())


SUM = Types.TUPLE([Types.LONG(), Types.SQL_TIMESTAMP()])


class DatedSum(AggregateFunction):
    """Its accumulators are lists with a time and numpy's numbers."""

    def create_accumulator(self):
        return [np.int64(0), NOON]

    def add(self, value, accumulator):
        return [np.int64(accumulator[0] + value), NOON]

    def get_result(self, accumulator):
        return *accumulator, type(accumulator[0]).__name__

    def merge(self, acc_a, acc_b):
        return [np.int64(acc_a[0] + acc_b[0]), NOON]


class ByNumber(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value


ASSIGNERS = {
    "tumbling": lambda: TumblingEventTimeWindows.of(Time.milliseconds(1000)),
    "sliding": lambda: SlidingEventTimeWindows.of(Time.milliseconds(1000), Time.milliseconds(500)),
    "session": lambda: EventTimeSessionWindows.with_gap(Time.milliseconds(1000)),
    "general": lambda: TumblingEventTimeWindows.of(Time.milliseconds(1000)),
}


@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
@pytest.mark.parametrize("assigner", ASSIGNERS)
def test_accumulators_of_a_declared_type_survive_a_restore(tmp_path, assigner, backend):
    def run(count, out, path=None):
        env = environment(1, millstream_epoch_records=10, state_backend_type=backend)
        if path is not None:
            env.get_configuration().set_string("execution.state-recovery.path", path)
        source = Numbers(count, unbounded=True)
        strategy = WatermarkStrategy.for_monotonous_timestamps()
        strategy = strategy.with_timestamp_assigner(ByNumber())
        numbers = env.from_source(source, strategy, "numbers").uid("numbers")
        numbers._sink("seen", CollectOp(seen.extend))
        windows = numbers.key_by(lambda n: "all").window(ASSIGNERS[assigner]())
        if assigner == "general":
            windows = windows.trigger(ContinuousEventTimeTrigger.of(Time.milliseconds(10_000)))
        sums = windows.aggregate(DatedSum(), accumulator_type=SUM).uid("sums")
        sums._sink("out", CollectOp(out.extend))
        return env.execute_async("sums")

    seen, out = [], []
    client = run(40, out)
    wait_for(seen, 40)
    path = client.stop_with_savepoint(False, str(tmp_path)).result(30)
    seen.clear()
    client = run(60, out, path)
    wait_for(seen, 20)
    client.stop_with_savepoint(True, str(tmp_path)).result(30)
    expected = (sum(range(60)), NOON, "int")
    assert out == [expected] * (2 if assigner == "sliding" else 1)


class Wrong(DatedSum):
    def add(self, value, accumulator):
        return "not a pair"


@pytest.mark.parametrize("count", [True, False])
def test_an_accumulator_that_does_not_fit_is_refused(count):
    env = environment(1)
    keyed = env.from_collection([1, 2]).key_by(lambda n: "all")
    windows = keyed.count_window(5)
    if not count:
        strategy = WatermarkStrategy.for_monotonous_timestamps()
        strategy = strategy.with_timestamp_assigner(ByNumber())
        keyed = (
            env.from_collection([1, 2])
            .assign_timestamps_and_watermarks(strategy)
            .key_by(lambda n: "all")
        )
        windows = keyed.window(TumblingEventTimeWindows.of(Time.seconds(1)))
    with pytest.raises(TypeMismatchError, match="an accumulator") as caught:
        list(windows.aggregate(Wrong(), accumulator_type=SUM).execute_and_collect())
    assert caught.value.evidence["wanted"] == repr(SUM)


# -- the editor ----------------------------------------------------------------------------------------------


def edited(tmp_path, type_info, make=lambda: 1, add=lambda n: n + 1, descriptor=None):
    function = Count(descriptor or ValueStateDescriptor("count", type_info), make, add)
    return millstream.state.edit(saved(tmp_path, function))


@pytest.mark.parametrize(
    ("type_info", "make", "bad"),
    [
        (Types.INT(), lambda: 1, "many"),
        (Types.INT(), lambda: 1, 1.5),
        (Trip, lambda: trip(1), {"n": 1, "first": None}),
        (Trip, lambda: trip(1), {"n": "x", "first": None, "all": []}),
        (Types.ROW_NAMED(["a"], [Types.LONG()]), lambda: Row(a=1), (1, 2)),
        (Types.TUPLE([Types.LONG(), Types.LONG()]), lambda: (1, 1), (1,)),
    ],
)
def test_the_editor_refuses_what_the_job_could_not_put(tmp_path, type_info, make, bad):
    editor = edited(tmp_path, type_info, make, lambda value: value)
    for change in (
        lambda: editor.put("counter", "count", "k0", bad),
        lambda: editor.update("counter", "count", lambda key, value: bad),
    ):
        with pytest.raises(TypeMismatchError) as caught:
            change()
        assert caught.value.evidence["state"] == "count"
        assert caught.value.evidence["uid"] == "counter"


def test_the_editor_refuses_keys_of_another_type(tmp_path):
    editor = edited(tmp_path, Types.LONG())
    with pytest.raises(InvalidArgument) as caught:
        editor.put("counter", "count", 7, 1)
    assert (caught.value.evidence["found"], caught.value.evidence["wanted"]) == ("int", "str")
    editor.put("counter", "count", 7, 1, new_key_type=True)
    editor.put("counter", "count", "new", 1)
    path = editor.write(str(tmp_path / "edited"))
    rows = dict(millstream.state.open_savepoint(path).rows("counter", "count"))
    assert (rows[7], rows["new"], rows["k0"]) == (1, 1, 10)


def test_an_edited_value_is_fitted_as_a_put_one_is(tmp_path):
    editor = edited(tmp_path, Trip, lambda: trip(1), lambda t: t)

    def later(key, found):
        found["first"]["name"] = "changed in place"
        return found

    assert editor.update("counter", "count", later) == 6
    assert editor.update("counter", "count", lambda key, found: found) == 0
    editor.put("counter", "count", "k0", trip(np.int64(5)))
    path = editor.write(str(tmp_path / "edited"))
    out = []
    look = Count(ValueStateDescriptor("count", Trip), None, lambda value: value)
    client = start(look, 66, out, path=path)
    wait_for(out, 6)
    client.cancel().result(30)
    found = dict(out)
    assert found["k0"] == trip(5)
    assert type(found["k0"].n) is int
    assert found["k1"].first == Place("changed in place", NOON)


def test_a_value_that_is_put_lives_as_long_as_a_new_one(tmp_path):
    descriptor = ValueStateDescriptor("count", Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    editor = edited(tmp_path, None, descriptor=descriptor)
    editor.remove("counter", "count", "k0")
    editor.put("counter", "count", "k0", 100)
    path = editor.write(str(tmp_path / "edited"))
    out = []
    client = start(Count(descriptor, lambda: 1, lambda n: n + 1), 66, out, path=path)
    wait_for(out, 6)
    client.cancel().result(30)
    assert dict(out)["k0"] == 101


def test_the_editor_never_writes_over_anything(tmp_path):
    editor = edited(tmp_path, Types.LONG())
    path = editor.write(str(tmp_path / "edited"))
    with pytest.raises(InvalidArgument, match="there is something at the path already"):
        editor.write(path)


class Alarms(KeyedProcessFunction):
    def open(self, ctx):
        self.count = ctx.get_state(ValueStateDescriptor("count"))

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(10**12)
        self.count.update((self.count.value() or 0) + 1)
        yield value

    def on_timer(self, timestamp, ctx):
        yield "alarm"


def test_timers_and_windows_cannot_be_edited(tmp_path):
    out = []
    env = environment(1, millstream_epoch_records=20)
    numbers = env.from_source(Numbers(40, unbounded=True), None, "numbers").uid("numbers")
    keyed = numbers.key_by(BY_SPLIT)
    keyed.process(Alarms()).uid("alarms")._sink("out", CollectOp(out.extend))
    keyed.count_window(1000).reduce(max).uid("windows")._sink("more", CollectOp(out.extend))
    client = env.execute_async("alarms")
    wait_for(out, 40)
    path = client.stop_with_savepoint(False, str(tmp_path)).result(30)
    editor = millstream.state.edit(path, allow_pickle=True)
    reader = millstream.state.open_savepoint(path)
    refused = 0
    for uid, info in reader.operators.items():
        for name in info.states:
            if (uid, name) == ("alarms", "count"):
                assert editor.update(uid, name, lambda key, value: value + 1) == 6
                continue
            if name == "window-assigner-count":
                continue
            for change in (
                lambda uid=uid, name=name: editor.update(uid, name, lambda key, value: None),
                lambda uid=uid, name=name: editor.put(uid, name, "k0", 1),
            ):
                with pytest.raises(UnsupportedOperation, match="cannot be edited"):
                    change()
                refused += 1
    assert refused >= 4
    edited_path = editor.write(str(tmp_path / "edited"))
    before = list(reader.rows("alarms", "#event-timers"))
    assert list(millstream.state.open_savepoint(edited_path).rows("alarms", "#event-timers")) == (
        before
    )
    with pytest.raises(MillstreamError):
        millstream.state.edit(str(tmp_path / "nothing"))


def test_rolled_values_that_cannot_be_written_name_their_state_and_key():
    """What `reduce` and `sum` keep is pickled when the epoch ends, at the latest."""

    class Locked:
        def __init__(self):
            self.lock = threading.Lock()

        def __add__(self, other):
            return self

    env = environment(1)
    pairs = env.from_collection([("a", 1), ("a", 2)]).map(lambda pair: (pair[0], Locked()))
    with pytest.raises(MillstreamError) as caught:
        list(pairs.key_by(lambda pair: pair[0]).sum(1).execute_and_collect())
    assert "pickle" in str(caught.value)


def test_a_block_that_cannot_be_written_names_the_entry():
    error = which_entry("op/sum", [("a", 1), ("b", threading.Lock())], TypeError("no"))
    assert isinstance(error, StateNotSerializable)
    assert (error.evidence["state"], error.evidence["key"]) == ("sum", "'b'")


def _visits(fields):
    """A class that no name leads to, as those of a script on a worker: it travels with the program."""
    return dataclasses.make_dataclass("Visits", fields, namespace={"__module__": "__main__"})


def _kept_as(cls, value):
    class Keep(KeyedProcessFunction):
        def open(self, ctx):
            self.state = ctx.get_state(ValueStateDescriptor("visits", cls))

        def process_element(self, element, ctx):
            if value is not None:
                self.state.update(value)
            yield dataclasses.asdict(self.state.value())

    return lambda stream: stream.key_by(lambda n: 0).process(Keep()).uid("keep")


@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
def test_fields_added_to_a_class_of_a_script_have_their_defaults(backend):
    before = _visits([("n", int)])
    with OperatorHarness(_kept_as(before, before(1)), state_backend=backend) as harness:
        harness.process_element(1)
        snapshot = harness.snapshot()

    made = ("pages", list, dataclasses.field(default_factory=list))
    after = _visits([("n", int), made, ("share", float, dataclasses.field(default=0.5))])
    with OperatorHarness.restore(_kept_as(after, None), snapshot, state_backend=backend) as harness:
        harness.process_element(1)
        assert harness.extract_output() == [{"n": 1, "pages": [], "share": 0.5}]

    needed = _visits([("n", int), ("needed", int)])
    with pytest.raises(StateMismatch):
        OperatorHarness.restore(_kept_as(needed, None), snapshot, state_backend=backend)
