"""Several drivers of a job, of which one leads: whatever it is doing when it is paused, each record comes out once."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from millstream.api.functions import KeyedProcessFunction
from millstream.api.state import ListStateDescriptor
from millstream.checkpoint.lease import Lease
from millstream.common.job_status import JobStatus
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import (
    ConfigurationError,
    JobError,
    JobLocked,
    StateMismatch,
    UnsupportedOperation,
)
from millstream.ha.records import JobRecords
from millstream.runtime.driver import epochs, outputs
from millstream.runtime.driver.local import InProcessRun
from millstream.runtime.driver.run import JobRun
from millstream.storage.storage import LocalStorage
from tests.crashes import (
    COUNT,
    EACH_ONCE,
    ByEpoch,
    ByName,
    Files,
    Numbers,
    Outlet,
    Seen,
    environment,
    latest,
    run,
)
from tests.waiting import until

TTL = 0.3
BY_FILE = {
    "high__availability_type": "file",
    "millstream_high__availability_lease__timeout": f"{int(TTL * 1000)} ms",
    "millstream_epoch_records": "10",
}
_MUTATORS = ("write", "publish", "open_write", "delete", "take", "delete_tree", "delete_hidden")


@dataclass
class Stop:
    """Where a driver is held: at its n-th step as a leader, and before the first one until others stand by."""

    at: int
    steps: int = 0
    leads: threading.Event = field(default_factory=threading.Event)
    watched: threading.Event = field(default_factory=threading.Event)
    run: JobRun | None = None
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    # What else stands still while the driver does.
    hold: Callable[[], None] = lambda: None

    def step(self) -> None:
        if not self.leads.is_set():
            if self.run is None or self.run.leading is None or self.run.leading.term is None:
                return
            self.leads.set()
            assert self.watched.wait(30), "nobody stands by"
        self.steps += 1
        if self.steps == self.at:
            self.hold()
            self.reached.set()
            assert self.released.wait(30), "nobody goes on"


class Drivers:
    """Drivers of one job in this process, each of which can be stopped at any step that writes or removes anything."""

    def __init__(self, folder: Path, outlet: Outlet) -> None:
        self.folder = folder
        self.outlet = outlet
        self.stops: dict[threading.Thread, Stop] = {}
        self.waiting: list[Stop | None] = []
        self.runs: list[JobRun] = []

    def start(self, stop: Stop | None = None, *, alone: bool = True, **options: Any) -> JobRun:
        """Start a driver; the next one only once this one takes part. If not `alone`, it waits for others."""
        if stop is not None and alone:
            stop.watched.set()
        env = environment(self.folder, **{**BY_FILE, **options})
        _build(env, self.outlet)
        before = len(self.runs)
        self.waiting.append(stop)
        client = env.execute_async("job")
        until(lambda: len(self.runs) > before)
        return client._run

    def _seen(self, run: JobRun) -> None:
        stop = self.waiting[len(self.runs)]
        if stop is not None:
            self.stops[threading.current_thread()] = stop
            stop.hold = lambda: _freeze(run)
            stop.run = run
        self.runs.append(run)

    def step(self) -> None:
        stop = self.stops.get(threading.current_thread())
        if stop is not None:
            stop.step()

    @contextlib.contextmanager
    def watched(self) -> Iterator[Drivers]:
        _run = InProcessRun._run

        def begin(run: JobRun) -> None:
            self._seen(run)
            _run(run)

        def reached(place: str) -> None:
            self.step()

        with contextlib.ExitStack() as stack:
            stack.enter_context(patch.object(InProcessRun, "_run", begin))
            stack.enter_context(patch.object(epochs, "reached", reached))
            stack.enter_context(patch.object(outputs, "reached", reached))
            for name in _MUTATORS:
                stack.enter_context(patch.object(LocalStorage, name, self._stepping(name)))
            try:
                yield self
            finally:
                for stop in self.waiting:
                    if stop is not None:
                        stop.watched.set()
                        stop.released.set()
                for run in self.runs:
                    if not run.done:
                        run.leave()

    def _stepping(self, name: str) -> Callable[..., Any]:
        mutate = getattr(LocalStorage, name)

        def stepping(storage: LocalStorage, *arguments: Any, **more: Any) -> Any:
            self.step()
            return mutate(storage, *arguments, **more)

        return stepping


def _freeze(run: JobRun) -> None:
    """Have the threads of a driver that renew its leases stand still too, as those of a paused process do."""
    leading = run.leading
    assert leading is not None
    leases = [leading._election._lease]
    if run._driver is not None:
        leases.append(run._driver.folder.lease)
    for lease in leases:
        if lease is not None:
            lease._stopped.set()


def _build(env: StreamExecutionEnvironment, outlet: Outlet) -> None:
    numbers = env.from_source(Numbers(), WatermarkStrategy.no_watermarks(), "numbers")
    stream = numbers.uid("numbers").key_by(lambda n: n % 7).process(Seen()).uid("each")
    stream.sink_to(outlet.sink()).name("out").uid("sink")


def _records(folder: Path) -> JobRecords:
    root = folder / "checkpoints" / ".high-availability" / "default" / "job"
    return JobRecords(LocalStorage(str(root)))


def _standing_by(run: JobRun) -> bool:
    return run.done or (run.leading is not None and run.leading.standing_by is not None)


# -- pauses --------------------------------------------------------------------------------------------------


def _paused_at(folder: Path, outlet: Outlet, step: int) -> bool:
    """A leader is paused at a step. Another takes over and comes to some step of its own, at which it is busy while the
    first one goes on with what it was about to do. False if the leader has ended before it came to the step."""
    paused, busy = Stop(step), Stop(random.Random(step).randint(2, 70))
    with Drivers(folder, outlet).watched() as drivers:
        first = drivers.start(paused, alone=False)
        assert paused.leads.wait(30)
        second = drivers.start(busy)
        busy.hold = lambda: None
        until(lambda: second.leading.standing_by)
        paused.watched.set()
        until(lambda: paused.reached.is_set() or first.done)
        if first.done:
            return False
        until(lambda: busy.reached.is_set() or second.done)
        paused.released.set()
        until(lambda: _standing_by(first))
        busy.released.set()
        for run in (first, second):
            assert run.wait(30)
            assert (run.status, run.error) == (JobStatus.FINISHED, None)
    assert outlet.read() == EACH_ONCE
    assert _records(folder).result().status == "FINISHED"
    return True


@pytest.mark.parametrize("step", range(1, 74, 6))
@pytest.mark.parametrize("kind", [Files, ByEpoch])
def test_a_leader_that_is_paused_at_a_step(tmp_path, kind, step):
    assert _paused_at(tmp_path, kind(tmp_path), step)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", [Files, ByName, ByEpoch])
def test_a_leader_that_is_paused_at_any_step(tmp_path, kind):
    for step in itertools.count(1):
        folder = tmp_path / str(step)
        folder.mkdir()
        if not _paused_at(folder, kind(folder), step):
            break
    assert step > 70


# -- how it ends -----------------------------------------------------------------------------------------------


def test_those_that_stand_by_end_with_the_job(tmp_path, capfd):
    outlet = Files(tmp_path)
    stop = Stop(20)
    with Drivers(tmp_path, outlet).watched() as drivers:
        leader = drivers.start(stop)
        stop.hold = lambda: None
        assert stop.reached.wait(30)
        standby = drivers.start()
        until(lambda: standby.leading.standing_by)
        assert standby.status is JobStatus.CREATED
        with pytest.raises(JobError, match="standing by, leader is"):
            standby.savepoint(str(tmp_path))
        stop.released.set()
        assert leader.wait(30)
        assert standby.wait(30)
    assert (leader.status, standby.status) == (JobStatus.FINISHED, JobStatus.FINISHED)
    assert outlet.read() == EACH_ONCE
    assert "job: standing by, leader is" in capfd.readouterr().err


def test_those_that_stand_by_are_cancelled_with_the_job(tmp_path):
    stop = Stop(20)
    with Drivers(tmp_path, Files(tmp_path)).watched() as drivers:
        leader = drivers.start(stop)
        stop.hold = lambda: None
        assert stop.reached.wait(30)
        standby = drivers.start()
        until(lambda: standby.leading.standing_by)
        threading.Thread(target=leader.cancel).start()
        until(lambda: leader.cancelled)
        stop.released.set()
        assert standby.wait(30)
    assert (leader.status, standby.status) == (JobStatus.CANCELED, JobStatus.CANCELED)
    assert Path(latest(tmp_path)).exists()


def test_those_that_stand_by_fail_with_the_job(tmp_path):
    go = tmp_path / "go"

    def fail(value):
        until(go.exists)
        if value == 30:
            raise ValueError("thirty")
        return value

    def start():
        env = environment(tmp_path, **BY_FILE, restart__strategy_type="none")
        numbers = env.from_source(Numbers(), WatermarkStrategy.no_watermarks(), "numbers")
        numbers.map(fail).print()
        return env.execute_async("job")._run

    leader = start()
    until(lambda: leader.leading.term)
    standby = start()
    until(lambda: standby.leading.standing_by)
    go.touch()
    assert leader.wait(30)
    assert standby.wait(30)
    assert (leader.status, standby.status) == (JobStatus.FAILED, JobStatus.FAILED)
    assert type(standby.error) is type(leader.error)
    assert "thirty" in str(standby.error)
    assert standby.error.evidence["leader"] in _records(tmp_path).result().leader


def test_a_driver_that_leaves_leaves_the_job_to_the_others(tmp_path):
    outlet = Files(tmp_path)
    stop = Stop(40)
    with Drivers(tmp_path, outlet).watched() as drivers:
        leader = drivers.start(stop)
        stop.hold = lambda: None
        assert stop.reached.wait(30)
        standby = drivers.start()
        until(lambda: standby.leading.standing_by)
        threading.Thread(target=leader.leave).start()
        until(lambda: leader.leading.left)
        stop.released.set()
        assert leader.wait(30)
        assert standby.wait(30)
    assert (leader.status, standby.status) == (JobStatus.SUSPENDED, JobStatus.FINISHED)
    assert outlet.read() == EACH_ONCE


def test_an_old_result_does_not_end_a_new_run(tmp_path):
    outlet = Files(tmp_path)
    run(tmp_path, outlet.sink(), **BY_FILE)
    first = _records(tmp_path).result()
    run(tmp_path, outlet.sink(), **BY_FILE)
    second = _records(tmp_path).result()
    assert first.id != second.id
    assert outlet.read() == EACH_ONCE + EACH_ONCE


def test_what_a_leader_has_left_to_clean_up_is_cleaned_up(tmp_path):
    """It was lost between the result and the end of its cleaning up: the job is over, and not begun anew."""
    outlet = Files(tmp_path)
    stop = Stop(10_000)
    with Drivers(tmp_path, outlet).watched() as drivers:
        leader = drivers.start(stop)
        until(lambda: leader.leading is not None)
        original = JobRecords.end

        def end(records, result):
            original(records, result)
            stop.at = stop.steps + 1

        with patch.object(JobRecords, "end", end):
            assert stop.reached.wait(30)
        assert _records(tmp_path).result().dirty
        standby = drivers.start()
        # It has found the result at its start, so the next run is its own.
        assert standby.wait(30)
        assert not _records(tmp_path).result().dirty
        stop.released.set()
        assert leader.wait(30)
    assert outlet.read().total() in (COUNT, 2 * COUNT)
    assert set(outlet.read().values()) in ({1}, {2})


# -- how a run begins -------------------------------------------------------------------------------------------


def test_who_takes_over_does_not_begin_anew(tmp_path):
    """What the user says about the start is for whoever begins the run."""
    outlet = ByEpoch(tmp_path)
    fresh = {"millstream_recovery_resume": "never"}
    stop = Stop(50)
    with Drivers(tmp_path, outlet).watched() as drivers:
        first = drivers.start(stop, **fresh)
        assert stop.reached.wait(30)
        assert 0 < outlet.read().total() < COUNT
        second = drivers.start(**fresh)
        assert second.wait(30)
        stop.released.set()
        assert first.wait(30)
    assert second.status is JobStatus.FINISHED
    assert outlet.read() == EACH_ONCE


# -- what is refused ---------------------------------------------------------------------------------------------


def test_high_availability_needs_checkpoints():
    env = StreamExecutionEnvironment.get_execution_environment("in-process")
    env.get_configuration().set_string("high-availability.type", "file")
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match="needs checkpoints"):
        env.execute()


def test_zookeeper_needs_servers(tmp_path):
    with pytest.raises(ConfigurationError, match="needs to know its servers"):
        run(tmp_path, Files(tmp_path).sink(), high__availability_type="zookeeper")


@pytest.mark.parametrize("place", ["a file", "/proc/nothing", "n" * 300])
def test_a_folder_that_cannot_be_used(tmp_path, place):
    (tmp_path / "a file").touch()
    options = {**BY_FILE, "high__availability_storageDir": str(tmp_path / place)}
    with pytest.raises(ConfigurationError, match="folder of high availability cannot be used"):
        run(tmp_path, Files(tmp_path).sink(), **options)


def test_who_looks_for_checkpoints_elsewhere_does_not_begin_anew(tmp_path):
    outlet = Files(tmp_path)
    stop = Stop(40)
    shared = {"high__availability_storageDir": str(tmp_path / "shared")}
    with Drivers(tmp_path, outlet).watched() as drivers:
        drivers.start(stop, **shared)
        assert stop.reached.wait(30)
        other = drivers.start(execution_checkpointing_dir=str(tmp_path / "other"), **shared)
        assert other.wait(30)
        assert isinstance(other.error, ConfigurationError)
        assert "none of the job's checkpoints" in str(other.error)
        # It has not ended the job for the others.
        third = drivers.start(**shared)
        stop.released.set()
        assert third.wait(30)
    assert outlet.read() == EACH_ONCE


@pytest.mark.parametrize("beside", [True, False])
def test_who_takes_over_waits_for_checkpoints_that_are_away(tmp_path, beside, capfd):
    """Nothing is begun in the place of a folder that is not mounted."""
    outlet = Files(tmp_path)
    folder, away = tmp_path / "checkpoints", tmp_path / "away"
    shared = {} if beside else {"high__availability_storageDir": str(tmp_path / "shared")}
    stop = Stop(40)
    with Drivers(tmp_path, outlet).watched() as drivers:
        drivers.start(stop, alone=False, **shared)
        assert stop.leads.wait(30)
        second = drivers.start(**shared)
        until(lambda: second.leading.standing_by)
        stop.watched.set()
        assert stop.reached.wait(30)
        folder.rename(away)
        before = outlet.read()
        assert 0 < before.total() < COUNT
        if beside:
            # The election is away too: nobody is elected. Long enough for somebody who would be.
            assert not second.wait(4 * TTL)
        else:
            until(lambda: "waiting for the folder of its checkpoints" in capfd.readouterr().err)
        assert outlet.read() == before
        shutil.rmtree(folder, ignore_errors=True)
        away.rename(folder)
        assert second.wait(30)
        stop.released.set()
    assert outlet.read() == EACH_ONCE


class Other(KeyedProcessFunction):
    """Has state of another kind under the name that `Seen` gives its own."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def process_element(self, value, ctx):
        self.seen.add(value)
        yield value


def test_a_driver_of_another_program_leaves_the_job_to_the_others(tmp_path):
    outlet = Files(tmp_path)
    stop = Stop(40)
    with Drivers(tmp_path, outlet).watched() as drivers:
        drivers.start(stop)
        assert stop.reached.wait(30)
        env = environment(tmp_path, **BY_FILE)
        numbers = env.from_source(Numbers(), WatermarkStrategy.no_watermarks(), "numbers")
        stream = numbers.uid("numbers").key_by(lambda n: n % 7).process(Other()).uid("each")
        stream.sink_to(outlet.sink()).name("out").uid("sink")
        drivers.waiting.append(None)
        other = env.execute_async("job")._run
        assert other.wait(30)
        assert isinstance(other.error, StateMismatch)
        assert _records(tmp_path).result() is None
        third = drivers.start()
        stop.released.set()
        assert third.wait(30)
        assert third.status is JobStatus.FINISHED
    assert outlet.read() == EACH_ONCE


def test_a_batch_job_has_nothing_to_go_on_from(tmp_path):
    with pytest.raises(UnsupportedOperation, match="BATCH"):
        run(tmp_path, Files(tmp_path).sink(), **BY_FILE, execution_runtime__mode="BATCH")


def test_a_driver_that_takes_no_part_is_left_alone(tmp_path):
    """Nobody has elected it, and nobody has said that it may go."""
    storage = LocalStorage(str(tmp_path / "checkpoints" / "job"))
    alone = Lease.acquire(storage, "job", ttl=0.4)
    alone.keep()
    with pytest.raises(JobLocked, match="another driver runs the job"):
        run(tmp_path, Files(tmp_path).sink(), **BY_FILE)
    alone.check()
    alone.release()
