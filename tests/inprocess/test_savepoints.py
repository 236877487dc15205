"""Savepoints: taken, looked into, repaired, started from by programs that have changed."""

from __future__ import annotations

import dataclasses
import json
import threading

import pytest
from click.testing import CliRunner

import millstream.state
from millstream.cli import main
from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.state import MapStateDescriptor, ValueStateDescriptor
from millstream.errors import MillstreamError, StateMismatch, StateNotFound
from millstream.graph.operators import CollectOp
from millstream.runtime.driver import savepoints
from tests.inprocess.test_state import BY_SPLIT, Numbers, environment, run_to, wait_for
from tests.waiting import until


class Count(KeyedProcessFunction):
    """Counts with a state of a given type; `make` and `add` work on its values."""

    def __init__(self, descriptor, make, add):
        self.descriptor, self.make, self.add = descriptor, make, add

    def open(self, ctx):
        self.state = ctx.get_state(self.descriptor)

    def process_element(self, value, ctx):
        before = self.state.value()
        self.state.update(self.make() if before is None else self.add(before))
        yield ctx.get_current_key(), self.state.value()


def count_ints(name="count", type_info=None):
    return Count(ValueStateDescriptor(name, type_info), lambda: 1, lambda n: n + 1)


def start(
    function, count, out, *, path=None, allow=False, uid="counter", parallelism=2, maximum=None
):
    env = environment(parallelism, millstream_epoch_records=20)
    config = env.get_configuration()
    if path is not None:
        config.set_string("execution.state-recovery.path", path)
    if allow:
        config.set_string("execution.state-recovery.ignore-unclaimed-state", "true")
    numbers = env.from_source(Numbers(count, unbounded=True), None, "numbers").uid("numbers")
    counted = numbers.key_by(BY_SPLIT).process(function).uid(uid).name("counter")
    if maximum is not None:
        counted.set_max_parallelism(maximum)
    counted._sink("out", CollectOp(out.extend))
    return env.execute_async("counting")


def saved(tmp_path, function, count=60, **options):
    out = []
    client = start(function, count, out, **options)
    wait_for(out, count)
    return client.stop_with_savepoint(False, str(tmp_path)).result(30)


def refused(*args, **options):
    client = start(*args, [], **options)  # type: ignore[call-arg]
    with pytest.raises(MillstreamError) as caught:
        client.get_job_execution_result().result(30)
    return caught.value


def test_a_savepoint_of_a_running_job(tmp_path):
    out = []
    client = start(count_ints(), 100, out)
    wait_for(out, 100)
    first = client.trigger_savepoint(str(tmp_path)).result(30)
    second = client.trigger_savepoint(str(tmp_path)).result(30)
    assert first != second
    assert not client.get_job_status().result().is_terminal_state()
    client.cancel().result(30)
    more = []
    client = start(count_ints(), 160, more, path=first)
    wait_for(more, 60)
    client.cancel().result(30)
    assert len(more) == 60
    last = dict(sorted(more))
    assert last == {f"k{k}": 27 - (k > 3) for k in range(6)}


def test_a_restart_leaves_the_files_of_a_savepoint_that_is_being_copied(tmp_path, monkeypatch):
    begun, failed, go = tmp_path / "begun", tmp_path / "failed", threading.Event()
    write = savepoints.write_savepoint

    def slowly(*args):
        begun.touch()
        assert go.wait(60)
        return write(*args)

    def fail_once(value):
        if begun.exists() and not failed.exists():
            failed.touch()
            raise ValueError("once")
        return value

    monkeypatch.setattr(savepoints, "write_savepoint", slowly)
    out = []
    restart = {"restart__strategy_type": "fixed-delay", "restart__strategy_fixed__delay_delay": "0"}
    env = environment(2, millstream_epoch_records=20, **restart)
    numbers = env.from_source(Numbers(4000, unbounded=True), None, "numbers").uid("numbers")
    counted = numbers.map(fail_once).key_by(BY_SPLIT).process(count_ints()).uid("counter")
    counted._sink("out", CollectOp(out.extend))
    client = env.execute_async("counting")
    wait_for(out, 200)
    asked = client.trigger_savepoint(str(tmp_path / "saved"))
    until(failed.exists)
    # More checkpoints than are kept.
    wait_for(out, len(out) + 1000)
    go.set()
    path = asked.result(30)
    client.cancel().result(30)
    found = millstream.state.open_savepoint(path, allow_pickle=True)
    assert len(list(found.rows("counter", "count"))) == 6


def test_stop_with_drain(tmp_path):
    out = []
    client = start(count_ints(), 40, out)
    wait_for(out, 40)
    path = client.stop_with_savepoint(True, str(tmp_path)).result(30)
    client.get_job_execution_result().result(30)
    more = []
    client = start(count_ints(), 80, more, path=path)
    wait_for(more, 40)
    client.cancel().result(30)
    assert len(more) == 40


def test_no_folder_for_a_savepoint_is_an_error():
    out = []
    client = start(count_ints(), 40, out)
    wait_for(out, 40)
    with pytest.raises(MillstreamError, match="no folder for the savepoint"):
        client.trigger_savepoint()
    client.cancel().result(30)


# -- programs that have changed ---------------------------------------------------------------------------


def test_a_removed_operator_is_refused_unless_allowed(tmp_path):
    path = saved(tmp_path, count_ints())
    error = refused(count_ints(), 60, path=path, uid="other")
    assert isinstance(error, StateMismatch)
    assert "counter" in error.evidence["operator"]
    assert "count" in error.evidence["found"]
    assert "--allowNonRestoredState" in error.hint
    out = []
    client = start(count_ints(), 80, out, path=path, uid="other", allow=True)
    wait_for(out, 20)
    client.cancel().result(30)
    assert max(count for _, count in out) <= 4


def test_a_renamed_state_is_refused_before_the_first_record(tmp_path):
    path = saved(tmp_path, count_ints())
    error = refused(count_ints("total"), 80, path=path)
    assert isinstance(error, StateMismatch)
    assert error.evidence["state"] == "count"
    assert "counter" in error.evidence["operator"]
    assert "value state 'count'" in error.evidence["found"]
    assert "value state 'total'" in error.evidence["wanted"]


class Mapped(Count):
    def open(self, ctx):
        self.state = ctx.get_map_state(MapStateDescriptor("count"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (count_ints(type_info=Types.LONG()), count_ints(type_info=Types.STRING())),
        (count_ints(type_info=Types.LONG()), count_ints()),
        (count_ints(), Mapped(None, None, None)),
    ],
)
def test_a_retyped_state_is_refused(tmp_path, before, after):
    path = saved(tmp_path, before)
    error = refused(after, 80, path=path)
    assert isinstance(error, StateMismatch), error
    assert error.evidence["state"] == "count"
    assert error.evidence["found"] != error.evidence["wanted"]


def test_another_maximum_parallelism_is_refused(tmp_path):
    path = saved(tmp_path, count_ints(), maximum=128)
    error = refused(count_ints(), 80, path=path, maximum=64)
    assert isinstance(error, StateMismatch)
    assert (error.evidence["found"], error.evidence["wanted"]) == (128, 64)


def test_a_savepoint_of_another_program_is_refused(tmp_path):
    out = []
    client = run_to(environment(2, millstream_epoch_records=20), 60, out)
    wait_for(out, 60)
    path = client.stop_with_savepoint(False, str(tmp_path)).result(30)
    error = refused(count_ints(), 60, path=path, uid="counter")
    assert isinstance(error, StateMismatch)


@dataclasses.dataclass
class Visits:
    n: int


@dataclasses.dataclass
class VisitsWithName:
    n: int
    name: str = "unknown"
    tags: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class VisitsWithCity:
    n: int
    city: str


def test_a_dataclass_with_a_new_field_restores(tmp_path):
    before = Count(
        ValueStateDescriptor("count", Visits), lambda: Visits(1), lambda v: Visits(v.n + 1)
    )
    path = saved(tmp_path, before)
    after = Count(
        ValueStateDescriptor("count", VisitsWithName),
        lambda: None,
        lambda v: dataclasses.replace(v, n=v.n + 1),
    )
    out = []
    client = start(after, 66, out, path=path)
    wait_for(out, 6)
    client.cancel().result(30)
    assert sorted(out) == [(f"k{k}", VisitsWithName(11, "unknown", [])) for k in range(6)]
    wrong = Count(ValueStateDescriptor("count", VisitsWithCity), lambda: None, lambda v: v)
    assert isinstance(refused(wrong, 66, path=path), StateMismatch)


def test_a_row_with_a_new_field_restores(tmp_path):
    old = Types.ROW_NAMED(["n"], [Types.LONG()])
    new = Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.LONG()])
    before = Count(ValueStateDescriptor("count", old), lambda: Row(n=1), lambda r: Row(n=r.n + 1))
    path = saved(tmp_path, before)
    after = Count(
        ValueStateDescriptor("count", new), lambda: None, lambda r: Row(name=r.name, n=r.n + 1)
    )
    out = []
    client = start(after, 66, out, path=path)
    wait_for(out, 6)
    client.cancel().result(30)
    assert {(key, row.name, row.n) for key, row in out} == {(f"k{k}", None, 11) for k in range(6)}


# -- from outside -------------------------------------------------------------------------------------------


def test_read_and_repair(tmp_path):
    path = saved(tmp_path, count_ints(type_info=Types.LONG()))
    frame = millstream.state.read_pandas(path, "counter", "count")
    assert dict(zip(frame.key, frame.value, strict=True)) == {f"k{k}": 10 for k in range(6)}
    editor = millstream.state.edit(path)
    assert editor.update("counter", "count", lambda key, n: None if key == "k5" else n * 100) == 6
    editor.put("counter", "count", "k0", 7)
    repaired = editor.write(str(tmp_path / "repaired"))
    out = []
    client = start(count_ints(type_info=Types.LONG()), 66, out, path=repaired, parallelism=3)
    wait_for(out, 6)
    client.cancel().result(30)
    assert dict(out) == {"k0": 8, "k1": 1001, "k2": 1001, "k3": 1001, "k4": 1001, "k5": 1}
    with pytest.raises(StateNotFound, match="no state 'nope'"):
        millstream.state.read_pandas(path, "counter", "nope")


def test_every_kind_can_be_read(tmp_path):
    out = []
    client = run_to(environment(2, millstream_epoch_records=20), 60, out)
    wait_for(out, 60)
    path = client.stop_with_savepoint(False, str(tmp_path)).result(30)
    reader = millstream.state.open_savepoint(path, allow_pickle=True)
    assert set(reader.operators["everything"].states) == {"count", "last", "seen", "total", "mean"}
    assert dict(reader.rows("everything", "count")) == {f"k{k}": 10 for k in range(6)}
    lasts = list(reader.rows("everything", "last"))
    assert sorted(value for key, value in lasts if key == "k0") == [42, 48, 54]
    seen = [row for row in reader.rows("everything", "seen") if row[0] == "k0"]
    assert sorted(seen) == [("k0", (0,), 5), ("k0", (2,), 5)]


def test_show(tmp_path):
    path = saved(tmp_path, count_ints(type_info=Types.LONG()))
    result = CliRunner().invoke(main, ["savepoint", "show", path])
    assert result.exit_code == 0, result.output
    assert "of 'counting'" in result.output
    assert "count: value state, Long" in result.output
    assert "uid counter" in result.output
    found = json.loads(CliRunner().invoke(main, ["savepoint", "show", "--json", path]).output)
    assert [state["name"] for one in found["operators"] for state in one["states"]] == ["count"]
    missing = CliRunner().invoke(main, ["savepoint", "show", str(tmp_path / "none")])
    assert missing.exit_code == 1
    assert "STATE_NOT_FOUND" in missing.output


def test_the_command_line_reaches_a_running_job(tmp_path):
    out = []
    env = environment(2, millstream_epoch_records=20)
    env.get_configuration().set_string("execution.checkpointing.dir", str(tmp_path / "chk"))
    client = run_to(env, 60, out)
    wait_for(out, 60)
    run, folder = CliRunner(), ["--dir", str(tmp_path / "chk")]
    assert "numbers" in run.invoke(main, ["list", *folder]).output
    taken = run.invoke(main, ["savepoint", "trigger", *folder, "numbers", str(tmp_path / "sp")])
    assert "Savepoint completed. Path: " in taken.output, taken.output
    stopped = run.invoke(main, ["stop", *folder, "-p", str(tmp_path / "sp"), "numbers"])
    assert "Savepoint completed. Path: " in stopped.output, stopped.output
    client.get_job_execution_result().result(30)
    assert run.invoke(main, ["list", *folder]).output == "no jobs\n"
    gone = run.invoke(main, ["cancel", *folder, "numbers"])
    assert gone.exit_code == 1


def test_the_same_savepoint_again_after_a_lost_driver_goes_on(tmp_path, monkeypatch):
    """Killed and started again with the same -s, a job goes on; stopped and started again, it starts from there."""
    path = saved(tmp_path, count_ints())

    def from_savepoint(count, wait):
        out = []
        env = environment(2, millstream_epoch_records=20)
        env.get_configuration().set_string("execution.state-recovery.path", path)
        env.get_configuration().set_string("execution.checkpointing.dir", str(tmp_path / "chk"))
        numbers = env.from_source(Numbers(count, unbounded=True), None, "numbers").uid("numbers")
        counted = numbers.key_by(BY_SPLIT).process(count_ints()).uid("counter")
        counted._sink("out", CollectOp(out.extend))
        client = env.execute_async("again")
        wait_for(out, wait)
        client.cancel().result(30)
        return sorted(out)

    with monkeypatch.context() as patch:
        # A driver that is killed does not give its lease back.
        patch.setattr(
            "millstream.checkpoint.lease.Lease.release", lambda lease: lease._stopped.set()
        )
        assert from_savepoint(66, 6) == [(f"k{k}", 11) for k in range(6)]
    lease = tmp_path / "chk" / "again" / "lease.json"
    lease.write_text(lease.read_text().replace('"process_start":', '"process_start":1'))
    assert from_savepoint(72, 6) == [(f"k{k}", 12) for k in range(6)]
    assert from_savepoint(66, 6) == [(f"k{k}", 11) for k in range(6)]


def test_a_driver_lost_while_it_cleans_up_after_the_end(tmp_path, monkeypatch):
    def run():
        out = []
        env = environment(1, millstream_epoch_records=20)
        env.get_configuration().set_string("execution.checkpointing.dir", str(tmp_path))
        env.from_collection(list(range(40)))._sink("out", CollectOp(out.extend))
        env.execute("finishing")
        return out

    with monkeypatch.context() as patch:

        def killed(lease):
            lease._stopped.set()
            raise RuntimeError("killed")

        patch.setattr("millstream.checkpoint.lease.Lease.release", killed)
        with pytest.raises(RuntimeError):
            run()
    lease = tmp_path / "finishing" / "lease.json"
    lease.write_text(lease.read_text().replace('"process_start":', '"process_start":1'))
    assert run() == []
    assert run() == list(range(40))
