"""Epochs that are run again: every kind of state, failures, muted sinks, and what is refused."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path

import pytest

from millstream.api.error_policy import ErrorPolicy
from millstream.api.functions import SinkFunction, SourceFunction
from millstream.api.sink import Sink
from millstream.checkpoint.manifest import list_epochs
from millstream.common.configuration import Configuration
from millstream.common.execution_mode import RuntimeExecutionMode
from millstream.common.job_status import JobStatus
from millstream.common.restart_strategy import RestartStrategies
from millstream.common.serialization import Encoder
from millstream.common.time import Time
from millstream.common.typeinfo import Types
from millstream.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from millstream.connectors.file.sink import FileSink
from millstream.datastream import (
    CheckpointedFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    StreamExecutionEnvironment,
    overrides,
)
from millstream.datastream.state import ListStateDescriptor, ValueStateDescriptor
from millstream.datastream.window import EventTimeSessionWindows
from millstream.errors import (
    JobError,
    SourceError,
    StateDamaged,
    StateMismatch,
    StateNotFound,
    StateNotSigned,
    UnsupportedOperation,
    UserFunctionError,
)
from millstream.graph.operators import CollectOp
from millstream.runtime.base import clock
from millstream.runtime.driver import epochs, plan_file, replay
from millstream.runtime.driver.plan_file import plan_name, read_plan, replayable, write_plan
from millstream.runtime.state.changes import ABSENT, StateChange
from millstream.storage.open import open_storage
from millstream.storage.seal import Seal
from tests.compat import programs as compat
from tests.inprocess.test_iteration import roads, shortest
from tests.replaying import (
    KEEP_ALL,
    check_epoch,
    check_epochs,
    everything,
    folder_of,
    job_of,
    recording,
    replayed,
)
from tests.support import environment
from tests.waiting import until


def _forget(records):
    """What is delivered is recorded elsewhere."""


def env_in(folder, parallelism=1, epoch=3, **options):
    return environment(
        parallelism, epoch, execution__checkpointing__dir=folder, **{**KEEP_ALL, **options}
    )


class Total(KeyedProcessFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value, ctx):
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield value[0], total


def totals(folder):
    """A program of one keyed operator."""
    env = env_in(folder)
    stream = env.from_collection(RECORDS).uid("numbers")
    stream = stream.key_by(lambda v: v[0]).process(Total()).uid("totals")
    stream._sink("out", CollectOp(_forget))
    env.execute("job")


RECORDS = [("ab"[n % 2], n) for n in range(10)]


# -- the same as the first run ---------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_every_kind_of_state(tmp_path, backend, parallelism):
    settings = {
        "execution.checkpointing.dir": str(tmp_path),
        "execution.checkpointing.num-retained": "1000",
        "state.backend.type": backend,
    }
    overrides.set_overrides(settings)
    try:
        with recording() as recorded:
            out: list[object] = []
            client = compat.start(100, out, parallelism)
            compat.wait_for(out, 100)
            client.cancel().result(60)
            # Another parallelism, in the same folder.
            client = compat.start(160, out, 3 - parallelism)
            compat.wait_for(out, 160)
            client.cancel().result(60)
            jobs = [job_of(partial(compat.start, 160, [], p)) for p in (1, 2)]
            storage = folder_of(tmp_path, "compatibility")
            assert check_epochs(storage, jobs, recorded) > 8
    finally:
        overrides.set_overrides({})


def test_loops(tmp_path):
    def program():
        env = env_in(tmp_path, 2, 4)
        shortest(env, roads(12))._sink("out", CollectOp(_forget))
        env.execute("job")

    with recording() as recorded:
        program()
        assert check_epochs(folder_of(tmp_path), [job_of(program)], recorded) > 3


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


LATE = OutputTag("late")


def test_late_records_go_to_the_side_output_again(tmp_path):
    def program():
        env = env_in(tmp_path, 2, 3)
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
        stream = env.from_collection([("a", n) for n in (1, 2, 30, 31, 3, 60, 4, 61, 90, 5)])
        stream = stream.assign_timestamps_and_watermarks(strategy).key_by(lambda v: v[0])
        sessions = stream.window(EventTimeSessionWindows.with_gap(Time.milliseconds(5)))
        sums = sessions.side_output_late_data(LATE).reduce(lambda a, b: ("a", a[1] + b[1]))
        sums._sink("sums", CollectOp(_forget))
        sums.get_side_output(LATE)._sink("late", CollectOp(_forget))
        env.execute("job")

    with recording() as recorded:
        program()
        assert check_epochs(folder_of(tmp_path), [job_of(program)], recorded) > 3
    delivered = [
        text for epoch in recorded.outputs.values() for sink in epoch.values() for text in sink
    ]
    assert "('a', 4)" in delivered


class Alarm(KeyedProcessFunction):
    """Gives each record again 25 milliseconds later, by the clock."""

    def open(self, runtime_context):
        self.kept = runtime_context.get_list_state(ListStateDescriptor("kept"))

    def process_element(self, value, ctx):
        self.kept.add((value, ctx.timer_service().current_processing_time()))
        at = ctx.timer_service().current_processing_time() + 25
        ctx.timer_service().register_processing_time_timer(at)

    def on_timer(self, timestamp, ctx):
        yield timestamp, list(self.kept.get())
        self.kept.clear()


def test_timers_of_the_clock(tmp_path, monkeypatch):
    def program():
        env = env_in(tmp_path, 1, 1)
        stream = env.from_source(compat.Numbers(8), None, "numbers").key_by(lambda n: n % 2)
        stream.process(Alarm())._sink("out", CollectOp(_forget))
        return env.execute_async("job")

    ticks = itertools.count(1_000_000, 10)
    available = compat._Splits.available

    def later(splits, split, position):
        # Time goes on when the driver looks for records, and stands while an epoch runs.
        moment[0] = next(ticks)
        return available(splits, split, position)

    moment = [1_000_000]
    with recording() as recorded:
        with monkeypatch.context() as patched:
            patched.setattr(compat._Splits, "available", later)
            patched.setattr(clock, "now", lambda: moment[0])
            client = program()
            storage = folder_of(tmp_path)
            until(lambda: sum(map(bool, list(recorded.outputs.values()))) >= 2)
            client.cancel().result(60)
        assert check_epochs(storage, [job_of(program)], recorded) >= 4
    fired = [epoch for epoch, outputs in recorded.outputs.items() if outputs]
    changes = check_epoch(storage, [job_of(program)], recorded, fired[0]).changes
    gone = [c for c in changes if c.state == "#processing-timers" and c.kind == "removed"]
    assert gone


class Fragile(MapFunction):
    def map(self, value):
        if value[1] % 5 == 4:
            raise ValueError("a bad one")
        return value


BAD = OutputTag("bad")


def test_bad_records_are_left_out_again(tmp_path):
    def program():
        env = env_in(tmp_path, 2, 3)
        stream = env.from_collection(RECORDS).rebalance().map(Fragile())
        stream = stream.on_error(ErrorPolicy.dead_letter(BAD)).uid("fragile")
        stream._sink("good", CollectOp(_forget))
        letters = stream.get_side_output(BAD).map(lambda letter: letter.record)
        letters._sink("bad", CollectOp(_forget))
        env.execute("job")

    with recording() as recorded:
        program()
        storage, job = folder_of(tmp_path), job_of(program)
        assert check_epochs(storage, [job], recorded) > 3
    seen = [replayed(job, storage, epoch).watcher for epoch in replayable(storage)]
    assert (
        sum(watcher.taken["fragile"].count for watcher in seen if "fragile" in watcher.taken) == 10
    )
    # Eight good ones and two letters: what is held back until its record is known to be good counts once.
    assert (
        sum(watcher.given["fragile"].count for watcher in seen if "fragile" in watcher.given) == 10
    )


def test_changes_say_what_was_and_what_is(tmp_path):
    with recording():
        totals(tmp_path)
    made = replayed(job_of(lambda: totals(tmp_path)), folder_of(tmp_path), 1)
    assert list(made.changes) == [
        StateChange("totals", "total", "a", 2, 6),
        StateChange("totals", "total", "b", 1, 9),
    ]
    first = replayed(made.job, folder_of(tmp_path), 0)
    assert first.changes[0] == StateChange("totals", "total", "a", ABSENT, 2)
    assert [change.kind for change in first.changes] == ["added", "added"]


def test_sources_that_only_the_driver_has(tmp_path, monkeypatch):
    class Pushes(SourceFunction):
        def run(self, ctx):
            for n in range(10):
                ctx.collect((str(n % 2), n))

        def cancel(self):
            pass

    def program():
        env = env_in(tmp_path, 1, 4)
        stream = env.add_source(Pushes()).key_by(lambda v: v[0]).process(Total())
        stream._sink("out", CollectOp(_forget))
        env.execute("job")

    with recording() as recorded:
        program()
        assert check_epochs(folder_of(tmp_path), [job_of(program)], recorded) >= 3
    monkeypatch.setattr(plan_file, "_MOST_BYTES", 20)
    other = tmp_path / "other"

    def large():
        env = env_in(other, 1, 10)
        env.add_source(Pushes())._sink("out", CollectOp(_forget))
        env.execute("job")

    with recording():
        large()
    storage = folder_of(other)
    reads = next(e for e in replayable(storage) if any(w.ranges for w in plan_of(storage, e).work))
    with pytest.raises(UnsupportedOperation, match="are gone"):
        replayed(job_of(large), storage, reads)


def plan_of(storage, epoch):
    plan = read_plan(storage, epoch - 1) or read_plan(storage, None)
    assert plan is not None
    return plan


# -- not the same ----------------------------------------------------------------------------------

_calls = itertools.count()


class Moody(MapFunction):
    """Not deterministic: counts over everything that runs in this process."""

    def map(self, value):
        return value[0], next(_calls)


def test_what_is_not_deterministic_is_found(tmp_path):
    def program():
        env = env_in(tmp_path)
        stream = env.from_collection(RECORDS).map(Moody()).key_by(lambda v: v[0])
        stream.process(Total()).uid("totals")._sink("out", CollectOp(_forget))
        env.execute("job")

    with recording():
        program()
    made = replayed(job_of(program), folder_of(tmp_path), 1)
    assert made.error is None
    assert made.completed
    assert {(c.operator, c.state) for c in made.differences} == {("totals", "total")}
    assert not made.counts


def test_other_numbers_of_records_are_found(tmp_path):
    limit = [100]

    def program():
        env = env_in(tmp_path)
        most = limit[0]
        stream = env.from_collection(RECORDS).filter(lambda v: v[1] < most).uid("some")
        stream.rebalance().map(lambda v: v).uid("rest")._sink("out", CollectOp(_forget))
        env.execute("job")

    with recording():
        program()
    limit[0] = 5
    made = replayed(job_of(program), folder_of(tmp_path), 1)
    first, now = made.counts["rest"]
    assert (first[0], now[0]) == (3, 2)


# -- failures --------------------------------------------------------------------------------------


class Seventh(MapFunction):
    def map(self, value):
        if value[1] == 7:
            raise ValueError("unlucky")
        return value


def seventh(folder, parallelism=1, **options):
    """Fails in the third epoch."""
    env = env_in(folder, parallelism, **options)
    stream = env.from_collection(RECORDS).uid("numbers").map(Seventh()).uid("seventh")
    stream = stream.key_by(lambda v: v[0]).process(Total()).uid("totals")
    stream._sink("out", CollectOp(_forget))
    env.execute("job")


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_failed_epoch_fails_again(tmp_path, parallelism):
    with pytest.raises(UserFunctionError) as caught:
        seventh(tmp_path, parallelism)
    storage = folder_of(tmp_path)
    assert replayable(storage) == [0, 1, 2]
    made = replayed(job_of(lambda: seventh(tmp_path, parallelism)), storage, 2)
    assert isinstance(made.error, UserFunctionError)
    assert str(made.error) == str(caught.value)
    assert not made.completed
    # Two of the epoch's three records have come to it, the second was the bad one.
    if parallelism == 1:
        assert made.watcher.taken["seventh"].count == 2


def test_the_first_epoch_can_fail_too(tmp_path):
    def program():
        env = env_in(tmp_path, 1, 10)
        env.from_collection(RECORDS).map(Seventh())._sink("out", CollectOp(_forget))
        env.execute("job")

    with pytest.raises(UserFunctionError):
        program()
    storage = folder_of(tmp_path)
    assert list_epochs(storage) == []
    assert replayable(storage) == [0]
    assert isinstance(replayed(job_of(program), storage, 0).error, UserFunctionError)


def test_the_error_says_how_to_replay_it(tmp_path, monkeypatch):
    monkeypatch.setattr(overrides, "_program", (("-p2", "job.py"), ("--input", "a b")))
    with pytest.raises(UserFunctionError) as caught:
        seventh(tmp_path)
    command = "millstream replay -p2 job.py --epoch 2 -- --input 'a b'"
    assert caught.value.evidence["replay"] == command
    assert f"replay: {command}" in str(caught.value)


def test_so_does_every_restart(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(overrides, "_program", (("job.py",), ()))

    def program():
        env = env_in(tmp_path)
        for key, value in (
            RestartStrategies.fixed_delay_restart(2, 0).to_configuration().to_dict().items()
        ):
            env.get_configuration().set_string(key, value)
        env.from_collection(RECORDS).map(Seventh())._sink("out", CollectOp(_forget))
        return env.execute_async("job")

    client = program()
    with pytest.raises(UserFunctionError):
        client.get_job_execution_result().result(60)
    assert [f.error.evidence["replay"] for f in client._run.failures] == [
        "millstream replay job.py --epoch 2"
    ] * 3
    assert "replay: millstream replay job.py --epoch 2" in caplog.text


@pytest.mark.parametrize("known", [True, False])
def test_without_a_folder_or_a_program_nothing_is_said(tmp_path, monkeypatch, known):
    monkeypatch.setattr(overrides, "_program", (("job.py",), ()) if known else None)
    env = environment(1, 3, **({} if known else {"execution__checkpointing__dir": tmp_path}))
    env.from_collection(RECORDS).map(Seventh()).print()
    with pytest.raises(UserFunctionError) as caught:
        env.execute("job")
    assert "replay" not in caught.value.evidence


def test_a_program_that_was_put_right_runs_through(tmp_path):
    with pytest.raises(UserFunctionError):
        seventh(tmp_path)

    def repaired():
        env = env_in(tmp_path)
        stream = env.from_collection(RECORDS).uid("numbers").map(lambda v: v).uid("seventh")
        stream = stream.key_by(lambda v: v[0]).process(Total()).uid("totals")
        stream._sink("out", CollectOp(_forget))
        env.execute("job")

    made = replayed(job_of(repaired), folder_of(tmp_path), 2)
    assert made.error is None
    assert not made.completed
    assert {change.key: change.after for change in made.changes} == {"a": 20, "b": 16}


def test_an_epoch_that_takes_up_changed_state_fails_again(tmp_path):
    class Other(KeyedProcessFunction):
        def open(self, runtime_context):
            self.other = runtime_context.get_state(ValueStateDescriptor("other", Types.LONG()))

        def process_element(self, value, ctx):
            yield value

    def changed():
        env = env_in(tmp_path)
        stream = env.from_collection(RECORDS).uid("numbers").map(Seventh()).uid("seventh")
        stream = stream.key_by(lambda v: v[0]).process(Other()).uid("totals")
        stream._sink("out", CollectOp(_forget))
        env.execute("job")

    with pytest.raises(UserFunctionError):
        seventh(tmp_path)
    with pytest.raises(StateMismatch, match="is not asked for") as caught:
        changed()
    made = replayed(job_of(changed), folder_of(tmp_path), 2)
    assert str(made.error) == str(caught.value)


# -- sinks -----------------------------------------------------------------------------------------

_reached: list[object] = []


class Tells(SinkFunction, CheckpointedFunction):
    """A sink with a state of its own."""

    def initialize_state(self, context):
        _reached.append("initialize")
        store = context.get_operator_state_store()
        self.count = store.get_list_state(ListStateDescriptor("count"))

    def snapshot_state(self, context):
        self.count.update([len(_reached)])

    def invoke(self, value, context):
        _reached.append(value)


class Watched(Sink):
    def __init__(self, sink):
        self.sink = sink

    @property
    def guarantee(self):
        return self.sink.guarantee

    def create_writer(self, context):
        _reached.append("writer")
        return self.sink.create_writer(context)

    def create_committer(self):
        _reached.append("committer")
        return self.sink.create_committer()


def test_nothing_reaches_a_sink(tmp_path, capfd):
    files = tmp_path / "files"

    def program():
        env = env_in(tmp_path / "chk")
        stream = env.from_collection(RECORDS).map(lambda v: f"{v[0]} {v[1]}")
        stream.add_sink(Tells()).uid("tells")
        stream.sink_to(
            Watched(FileSink.for_row_format(str(files), Encoder.simple_string_encoder()).build())
        ).uid("files")
        stream.print().uid("printed")
        env.execute("job")

    with recording():
        program()
    job, written = job_of(program), sorted(files.rglob("*"))
    assert "writer" in _reached
    assert written
    _reached.clear()
    capfd.readouterr()
    made = replayed(job, folder_of(tmp_path / "chk"), 1)
    assert _reached == []
    assert capfd.readouterr().out == ""
    assert sorted(files.rglob("*")) == written
    for uid in ("tells", "files", "printed"):
        assert made.watcher.taken[uid].records == ["'b 3'", "'a 4'", "'b 5'"]
    assert made.error is None
    assert not made.differences


def test_what_cannot_be_pickled_reaches_a_sink_in_its_chain(tmp_path):
    def program():
        env = env_in(tmp_path)
        env.get_config().enable_object_reuse()
        stream = env.from_collection(RECORDS).map(lambda v: (n for n in v))
        stream.add_sink(lambda v: None).uid("sink")
        env.execute("job")

    with recording():
        program()
    made = replayed(job_of(program), folder_of(tmp_path), 1)
    assert made.error is None
    assert made.watcher.taken["sink"].count == 3


# -- the folder ------------------------------------------------------------------------------------


def test_plans_go_with_their_checkpoints(tmp_path):
    """Three are retained, two of them from before the failure."""
    with pytest.raises(UserFunctionError):
        seventh(tmp_path, epoch=1, execution__checkpointing__num_retained=2)
    storage = folder_of(tmp_path)
    plans = [name for name in everything(storage) if name.endswith("_plan")]
    assert plans == ["chk-5/_plan", "chk-6/_plan", "start/_plan"]
    assert replayable(storage) == [0, 6, 7]
    env = env_in(tmp_path)
    env.from_collection(RECORDS)._sink("out", CollectOp(_forget))
    env.get_configuration().set_string("millstream.recovery.resume", "never")
    env.execute("job")
    assert not list(everything(storage))


def test_signed_plans(tmp_path):
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    option = {"millstream__state__hmac_key_file": key}
    with pytest.raises(UserFunctionError):
        seventh(tmp_path / "chk", **option)
    root = f"{tmp_path}/chk/job"
    job = job_of(lambda: seventh(tmp_path / "chk", **option))
    signed = open_storage(root, seal=Seal.of(str(key)))
    assert isinstance(replayed(job, signed, 2).error, UserFunctionError)
    unsigned = open_storage(root)
    plan = Path(root, plan_name(1)).read_bytes()
    unsigned.write(plan_name(1), plan[:-1] + b"x")
    with pytest.raises(StateNotSigned):
        replayed(job, signed, 2)


def test_a_disk_that_is_full_does_not_stop_a_job(tmp_path, monkeypatch, caplog):
    def full(storage, plan):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(epochs, "write_plan", full)
    with recording():
        totals(tmp_path)
    assert "epoch 1 cannot be replayed, its plan was not written" in caplog.text
    assert replayable(folder_of(tmp_path)) == []


def test_a_plan_that_cannot_be_told_does_not_stop_a_job(tmp_path, monkeypatch, caplog):
    def clueless(work, uids):
        raise ValueError("a name that is no text")

    monkeypatch.setattr(epochs, "planned", clueless)
    with recording():
        totals(tmp_path)
    assert "epoch 1 cannot be replayed, its plan was not written" in caplog.text


def test_a_damaged_plan_of_the_first_epoch_leaves_the_others(failed):
    storage, job = failed
    storage.write(plan_name(None), b"?")
    assert replayable(storage) == [6, 7]
    assert replayed(job, storage, 6).completed
    with pytest.raises(StateDamaged, match="start/_plan"):
        replayed(job, storage, 0)


def test_a_function_that_exits(tmp_path):
    def leave(value):
        if value == 4:
            raise SystemExit(0)
        return value

    def program():
        env = env_in(tmp_path)
        env.from_collection(range(9)).uid("numbers").map(leave).uid("leave").print().uid("out")
        env.execute("job")

    overrides.set_program((("job.py",), ()))
    try:
        with pytest.raises(JobError, match="was ended by SystemExit") as caught:
            program()
    finally:
        overrides.set_program(None)
    assert caught.value.evidence["replay"] == "millstream replay job.py --epoch 1"
    replay = replayed(job_of(program), folder_of(tmp_path), 1)
    assert isinstance(replay.error, JobError)
    assert "was ended by SystemExit" in str(replay.error)


def test_a_running_job_is_not_disturbed(tmp_path):
    settings = {
        "execution.checkpointing.dir": str(tmp_path),
        "execution.checkpointing.num-retained": "1000",
    }
    overrides.set_overrides(settings)
    try:
        with recording() as recorded:
            out: list[object] = []
            client = compat.start(100, out, 1)
            compat.wait_for(out, 100)
            storage = folder_of(tmp_path, "compatibility")
            held = storage.exists("lease.json")
            check_epoch(storage, [job_of(partial(compat.start, 100, [], 1))], recorded, 1)
            status = client.get_job_status().result(60)
            client.cancel().result(60)
    finally:
        overrides.set_overrides({})
    assert held
    assert status is JobStatus.RUNNING


# -- what is refused -------------------------------------------------------------------------------


@pytest.fixture
def failed(tmp_path):
    with pytest.raises(UserFunctionError):
        seventh(tmp_path, epoch=1, execution__checkpointing__num_retained=2)
    return folder_of(tmp_path), job_of(lambda: seventh(tmp_path, epoch=1))


def test_epochs_that_are_not_retained(failed):
    storage, job = failed
    with pytest.raises(StateNotFound, match="epoch 3 cannot be replayed") as caught:
        replayed(job, storage, 3)
    assert caught.value.evidence["can_be_replayed"] == "0, 6, 7"
    # The first one is always there, which does not make those after it epochs to come.
    assert "execution.checkpointing.num-retained" in str(caught.value.hint)
    with pytest.raises(StateNotFound, match="epoch 12 cannot be replayed") as caught:
        replayed(job, storage, 12)
    assert "has not begun yet" in str(caught.value.hint)


def test_the_hint_names_the_setting_that_keeps_more(tmp_path):
    with pytest.raises(UserFunctionError):
        seventh(tmp_path, epoch=1, execution__checkpointing__num_retained=2)
    storage = folder_of(tmp_path)
    storage.delete_tree("start")
    with pytest.raises(StateNotFound) as caught:
        replayed(job_of(lambda: seventh(tmp_path)), storage, 3)
    assert "execution.checkpointing.num-retained" in str(caught.value.hint)


def test_checkpoints_without_a_plan(failed):
    storage, job = failed
    storage.delete(plan_name(6))
    with pytest.raises(StateNotFound, match="nothing is written down about epoch 7"):
        replayed(job, storage, 7)


def test_another_program(failed, tmp_path):
    storage, _ = failed

    def other():
        env = env_in(tmp_path)
        env.from_collection(RECORDS).uid("numbers").map(Seventh()).uid("eighth").print()
        env.execute("job")

    with pytest.raises(StateMismatch, match="other operators") as caught:
        replayed(job_of(other), storage, 7)
    assert "seventh" in caught.value.evidence["gone"]
    assert "eighth" in caught.value.evidence["new"]


def test_another_parallelism(failed, tmp_path):
    storage, _ = failed
    with pytest.raises(StateMismatch, match="another parallelism") as caught:
        replayed(job_of(lambda: seventh(tmp_path, 3)), storage, 7)
    assert caught.value.hint == "replay with -p 1"


def test_other_chains(failed, tmp_path):
    storage, _ = failed

    def unchained():
        seventh(tmp_path, pipeline__operator_chaining__enabled="false")

    with pytest.raises(StateMismatch, match="chained in another way"):
        replayed(job_of(unchained), storage, 7)


def test_records_that_are_gone(tmp_path):
    records = [*RECORDS]

    def program():
        env = env_in(tmp_path)
        env.from_collection(records).uid("numbers")._sink("out", CollectOp(_forget))
        env.execute("job")

    with recording():
        program()
    del records[4:]
    made = replayed(job_of(program), folder_of(tmp_path), 1)
    assert isinstance(made.error, SourceError)
    assert "the collection is shorter" in str(made.error)


def test_a_job_in_batch_mode(tmp_path):
    def program():
        env = env_in(tmp_path)
        env.set_runtime_mode(RuntimeExecutionMode.BATCH)
        env.from_collection(RECORDS).print()
        env.execute("job")

    with pytest.raises(UnsupportedOperation, match="BATCH"):
        replayed(job_of(program), folder_of(tmp_path), 1)


class Frame:
    """What a Spark frame looks like to a program."""

    isStreaming = True


def test_a_job_over_a_frame(tmp_path):
    def program():
        env = env_in(tmp_path)
        env.from_dataframe(Frame()).print()
        env.execute("job")

    with pytest.raises(UnsupportedOperation, match="only Spark can read again"):
        replayed(job_of(program), folder_of(tmp_path), 1)


def test_a_checkpoint_that_is_removed_meanwhile(failed, monkeypatch):
    """As a running job does it: the manifest, then the files."""
    storage, job = failed
    prepare = replay.prepare

    def slowly(*arguments, **facts):
        storage.delete_tree("chk-5")
        storage.delete_tree("shared")
        return prepare(*arguments, **facts)

    monkeypatch.setattr(replay, "prepare", slowly)
    with pytest.raises(StateNotFound, match="checkpoint 5 was removed while epoch 6") as caught:
        replayed(job, storage, 6)
    assert "num-retained" in str(caught.value.hint)


def test_a_file_that_is_damaged_is_no_job_that_cleans_up(failed):
    storage, job = failed
    storage.delete_tree("shared")
    with pytest.raises(StateDamaged, match="it is missing"):
        replayed(job, storage, 6)


def test_plans_are_small(tmp_path):
    with recording():
        totals(tmp_path)
    storage = folder_of(tmp_path)
    sizes = [storage.size(name) or 0 for name in everything(storage) if name.endswith("_plan")]
    assert sizes
    assert max(sizes) < 1000


def test_configuration_of_a_job_knows_no_program_in_a_test():
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.from_collection([1]).print()
    assert job_of(lambda: env.execute("job")).settings.program is None


def test_a_plan_is_read_as_it_was_written(failed):
    storage, _ = failed
    plan = plan_of(storage, 7)
    write_plan(storage, plan)
    assert plan_of(storage, 7) == plan
    storage.write(plan_name(6), b"no plan")
    with pytest.raises(StateDamaged, match="_plan cannot be used"):
        plan_of(storage, 7)
