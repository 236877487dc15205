"""Where a job starts: what its folder, the path it is given and its own past decide together."""

from __future__ import annotations

import itertools
import logging

import pytest

from millstream.checkpoint.claim import remove_claimed
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import JobError, JobLocked, StateNotFound
from millstream.graph.operators import CollectOp
from millstream.runtime.driver import job_folder
from tests.inprocess.test_state import BY_SPLIT, Numbers, environment, wait_for

_numbers = itertools.count()
_failed: set[int] = set()


class Count(KeyedProcessFunction):
    """Counts by key; fails the first time that it sees a certain number."""

    def __init__(self, fails_at=None):
        self.fails_at, self.number = fails_at, next(_numbers)

    def open(self, ctx):
        self.state = ctx.get_state(ValueStateDescriptor("count"))

    def process_element(self, value, ctx):
        if value == self.fails_at and self.number not in _failed:
            _failed.add(self.number)
            raise ValueError("for once")
        self.state.update((self.state.value() or 0) + 1)
        yield ctx.get_current_key(), self.state.value()


def start(out, count, *, folder=None, path=None, parallelism=2, fails_at=None, **options):
    env = environment(parallelism, millstream_epoch_records=20, **options)
    config = env.get_configuration()
    if folder is not None:
        config.set_string("execution.checkpointing.dir", str(folder))
    if path is not None:
        config.set_string("execution.state-recovery.path", path)
    config.set_string("restart-strategy.type", "fixed-delay")
    config.set_string("restart-strategy.fixed-delay.attempts", "3")
    config.set_string("restart-strategy.fixed-delay.delay", "0 s")
    numbers = env.from_source(Numbers(count, unbounded=True), None, "numbers").uid("numbers")
    counted = numbers.key_by(BY_SPLIT).process(Count(fails_at)).uid("count")
    counted._sink("out", CollectOp(out.extend))
    return env.execute_async("counting")


def counts(total):
    """What a run over 0..total-1 gives, in any order."""
    return sorted((f"k{k}", n + 1) for k in range(6) for n in range(len(range(k, total, 6))))


def savepoint(tmp_path, count, **options):
    out = []
    client = start(out, count, **options)
    wait_for(out, count)
    return client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result(30), out


@pytest.mark.parametrize("own_folder", [True, False])
def test_after_a_failure_a_job_that_was_started_from_a_path_goes_on_from_what_it_has_done(
    tmp_path, own_folder
):
    path, out = savepoint(tmp_path, 60)
    folder = tmp_path / "checkpoints" if own_folder else None
    client = start(out, 160, folder=folder, path=path, fails_at=130)
    wait_for(out, 160)
    client.cancel().result(30)
    assert sorted(out) == counts(160)


@pytest.mark.parametrize("by", ["name", "path"])
def test_an_open_maximum_parallelism_is_that_of_the_checkpoint(tmp_path, by):
    # Of 90 subtasks the maximum would be 256, of one it is 128.
    folder = tmp_path / "checkpoints"
    if by == "name":
        out = []
        client = start(out, 60, folder=folder, parallelism=1)
        wait_for(out, 60)
        client.cancel().result(30)
        path = None
    else:
        path, out = savepoint(tmp_path, 60, parallelism=1)
    client = start(out, 120, folder=folder, path=path, parallelism=90)
    wait_for(out, 120)
    client.cancel().result(30)
    assert sorted(out) == counts(120)


def test_of_two_places_to_begin_the_path_decides_on_the_maximum_parallelism(tmp_path):
    """The folder holds a checkpoint of the same name with other key groups than the savepoint's."""
    path, out = savepoint(tmp_path, 60, parallelism=1)
    other = []
    client = start(other, 60, folder=tmp_path / "checkpoints", parallelism=90)
    wait_for(other, 60)
    client.cancel().result(30)
    client = start(out, 120, folder=tmp_path / "checkpoints", path=path, parallelism=2)
    wait_for(out, 120)
    client.cancel().result(30)
    assert sorted(out) == counts(120)


def test_a_job_that_has_finished_is_not_run_again_because_its_driver_died_tidying_up(
    tmp_path, monkeypatch
):
    """The mark that it has finished outlives the checkpoints; whoever finds it has nothing to do."""

    class Died(BaseException):
        pass

    def run(folder):
        env = environment(2)
        env.get_configuration().set_string("execution.checkpointing.dir", str(folder))
        out = []
        numbers = env.from_source(Numbers(60), None, "numbers").uid("numbers")
        numbers.key_by(BY_SPLIT).process(Count()).uid("count")._sink("out", CollectOp(out.extend))
        env.execute("counting")
        return out

    def dies(self):
        raise Died

    # Between the removal of the checkpoints and the release of the lease.
    monkeypatch.setattr(job_folder.JobFolder, "remove_claimed", dies)
    monkeypatch.setattr(job_folder.Lease, "acquire", _unlocked(job_folder.Lease.acquire))
    with pytest.raises(JobError, match="Died"):
        run(tmp_path)
    monkeypatch.undo()
    assert (tmp_path / "counting" / "finished").exists()
    (tmp_path / "counting" / "lease.json").unlink(missing_ok=True)
    assert run(tmp_path) == []
    # From then on the name is free again.
    assert sorted(run(tmp_path)) == counts(60)


def _unlocked(acquire):
    def quietly(*args, **kwargs):
        lease = acquire(*args, **kwargs)
        lease.keep = lambda: None
        return lease

    return quietly


@pytest.mark.parametrize("error", [OSError("read-only"), JobLocked("held by another")])
def test_what_was_claimed_and_cannot_be_removed_is_told_of(tmp_path, monkeypatch, caplog, error):
    path, out = savepoint(tmp_path, 60)

    def refuses(*_):
        raise error

    monkeypatch.setattr(job_folder, "remove_claimed", refuses)
    caplog.set_level(logging.INFO, logger="millstream")
    options = {"execution_state__recovery_claim__mode": "CLAIM"}
    client = start(out, 120, folder=tmp_path / "checkpoints", path=path, **options)
    wait_for(out, 120)
    client.cancel().result(30)
    assert sorted(out) == counts(120)
    assert any("was claimed, and stays" in one.message for one in caplog.records)
    monkeypatch.undo()
    remove_claimed(path, None)


def test_a_job_without_its_checkpoint_is_refused_when_it_is_asked_for_by_name(tmp_path):
    out = []
    client = start(out, 60, folder=tmp_path, millstream_recovery_resume="somebody")
    with pytest.raises(StateNotFound, match="no checkpoint of the job 'somebody'"):
        client.get_job_execution_result().result(30)
    assert out == []
