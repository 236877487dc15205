"""What people do after a driver has died between a checkpoint and its commit, for every kind of sink.

Each test is a situation; each runs with each outlet. What has come out in the end is each record once.
"""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import pytest

import millstream.state
from millstream.api.sink import SinkWriter
from millstream.checkpoint.claim import remove_claimed
from millstream.checkpoint.manifest import read_manifest
from millstream.checkpoint.savepoint import open_checkpoint
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.errors import JobError, JobLocked, MillstreamError, StateMismatch, StateNotFound
from millstream.graph.operators import CollectOp
from millstream.storage.storage import LocalStorage
from tests.crashes import (
    COUNT,
    EACH_ONCE,
    EPOCH,
    ByEpoch,
    ByName,
    BySink,
    FailsOnce,
    Files,
    Numbers,
    Removed,
    Seen,
    dying_at,
    environment,
    latest,
    run,
)
from tests.waiting import until

RECOVERY = "execution_state__recovery_path"
ALLOW = {"execution_state__recovery_ignore__unclaimed__state": "true"}
CLAIM = "execution_state__recovery_claim__mode"


@pytest.fixture(params=[Files, Removed, ByName, ByEpoch])
def outlet(request, tmp_path):
    return request.param(tmp_path)


def die(folder, outlet, *, place="after manifest", times=2, **options):
    with dying_at(place, times), pytest.raises(JobError, match="Died"):
        run(folder, outlet.sink(), **options)


def test_it_dies_where_it_is_told_to(tmp_path, outlet):
    die(tmp_path, outlet)
    assert outlet.read().total() < COUNT


@pytest.mark.parametrize("place", ["after manifest", "after commit", "cleaning up"])
@pytest.mark.parametrize("parallelism", [2, 3])
def test_started_again_by_name(tmp_path, outlet, place, parallelism):
    die(tmp_path, outlet, place=place)
    outlet.take()
    run(tmp_path, outlet.sink(), parallelism=parallelism)
    assert outlet.read() == EACH_ONCE


@pytest.mark.parametrize("place", ["after manifest", "after commit", "cleaning up"])
@pytest.mark.parametrize("parallelism", [2, 3])
@pytest.mark.parametrize("name", ["job", "another job"])
def test_started_by_path(tmp_path, outlet, place, parallelism, name):
    die(tmp_path, outlet, place=place)
    outlet.take()
    path = {RECOVERY: latest(tmp_path)}
    run(tmp_path, outlet.sink(), parallelism=parallelism, name=name, **path)
    assert outlet.read() == EACH_ONCE


@pytest.mark.parametrize("place", ["after manifest", "restore", "after commit"])
def test_started_by_path_and_died_again_at_the_start(tmp_path, outlet, place):
    """The second driver dies before or after it has committed; the third is started in the same words, by name, or
    once more by path under yet another name."""
    die(tmp_path, outlet)
    path = {RECOVERY: latest(tmp_path)}
    die(tmp_path, outlet, name="second", place=place, times=1, parallelism=1, **path)
    outlet.take()
    run(tmp_path, outlet.sink(), name="second", parallelism=3)
    assert outlet.read() == EACH_ONCE


def test_two_jobs_start_from_one_checkpoint_by_path(tmp_path, outlet):
    """What was left to commit is committed by the first of them; the second finds it, and so does the one that died."""
    die(tmp_path, outlet, times=COUNT // EPOCH)
    before, path = outlet.read(), {RECOVERY: latest(tmp_path)}
    assert before.total() < COUNT
    for name in ("second", "third"):
        run(tmp_path, outlet.sink(), name=name, **path)
        outlet.take()
        assert outlet.read() == EACH_ONCE
    run(tmp_path, outlet.sink(), parallelism=1)
    assert outlet.read() == EACH_ONCE


def test_an_older_checkpoint_was_committed_when_a_later_one_follows(tmp_path, outlet, caplog):
    die(tmp_path, outlet, times=3)
    older = latest(tmp_path).replace("chk-2", "chk-1")
    outlet.take()
    # With a sink that would commit twice if it were asked.
    with dying_at("after manifest"), pytest.raises(JobError, match="Died"):
        run(tmp_path, outlet.sink(), name="second", **{RECOVERY: older})
    assert outlet.read() == Counter(dict.fromkeys(outlet.read(), 1))
    assert "not there any more" not in caplog.text


def test_a_checkpoint_that_is_not_claimed_keeps_what_it_has_to_commit(tmp_path, outlet, caplog):
    die(tmp_path, outlet, times=COUNT // EPOCH)
    before = outlet.read()
    with caplog.at_level(logging.WARNING, "millstream.job"):
        run(
            tmp_path,
            outlet.sink(),
            name="second",
            **{RECOVERY: latest(tmp_path), CLAIM: "NO_CLAIM"},
        )
    assert outlet.read() == before
    assert "is left to that job" in caplog.text
    run(tmp_path, outlet.sink())
    assert outlet.read() == EACH_ONCE


@pytest.mark.parametrize("mode", ["LEGACY", "NO_CLAIM", "CLAIM"])
def test_the_job_that_wrote_a_checkpoint_commits_what_it_has_left_in_any_claim_mode(
    tmp_path, outlet, mode
):
    die(tmp_path, outlet)
    run(tmp_path, outlet.sink(), **{RECOVERY: latest(tmp_path), CLAIM: mode})
    assert outlet.read() == EACH_ONCE


@pytest.mark.parametrize("by_path", [False, True])
@pytest.mark.parametrize("change", ["another uid", "operator added", "sink removed"])
def test_a_sink_that_is_not_found_again_is_refused(tmp_path, outlet, by_path, change, caplog):
    uid = None if change == "operator added" else "sink"
    die(tmp_path, outlet, uid=uid)
    before = outlet.read()
    how = {RECOVERY: latest(tmp_path)} if by_path else {}
    name = "second" if by_path else "job"
    other = ByName(tmp_path / "other") if change == "sink removed" else outlet
    changed = {
        "another uid": {"uid": "renamed"},
        "operator added": {"uid": None, "added": True},
        "sink removed": {"uid": "something else"},
    }[change]
    with pytest.raises(StateMismatch, match="has output to commit") as refused:
        run(tmp_path, other.sink(), name=name, **changed, **how)
    assert refused.value.evidence["operator"].startswith("'Sink: out' (uid ")
    assert "allowNonRestoredState" in str(refused.value)
    assert outlet.read() == before
    # The way out: the program as it was.
    with dying_at("after commit"), pytest.raises(JobError, match="Died"):
        run(tmp_path, outlet.sink(), name=name, uid=uid, **how)
    assert outlet.read().total() == before.total() + EPOCH


@pytest.mark.parametrize("by_path", [False, True])
def test_output_of_a_sink_that_is_not_found_again_can_be_given_up(
    tmp_path, outlet, by_path, caplog
):
    die(tmp_path, outlet)
    before = outlet.read()
    how = {RECOVERY: latest(tmp_path)} if by_path else {}
    name = "second" if by_path else "job"
    with caplog.at_level(logging.WARNING, "millstream.job"):
        run(tmp_path, outlet.sink(), name=name, uid="renamed", **how, **ALLOW)
    assert "which is given up" in caplog.text
    assert outlet.read().total() == COUNT - EPOCH
    assert before < outlet.read() < EACH_ONCE


def test_a_sink_may_change_its_uid_when_all_is_committed(tmp_path, outlet):
    """The job has failed in an orderly way, so it is known."""
    with pytest.raises(MillstreamError, match="not this one"):
        run(tmp_path, Picky(outlet.sink(), 45))
    outlet.take()
    run(tmp_path, outlet.sink(), uid="renamed")
    assert outlet.read() == EACH_ONCE


class Picky(FailsOnce):
    """Any sink, whose writer does not like one record."""

    def __init__(self, sink, record):
        super().__init__(sink, at=0, after=False)
        self.record = record

    def create_writer(self, context):
        return _Picky(self.sink.create_writer(context), self.record)


class _Picky(SinkWriter):
    def __init__(self, writer, record):
        self.writer, self.record = writer, record

    def write(self, value):
        if value == self.record:
            raise ValueError("not this one")
        self.writer.write(value)

    def prepare_commit(self):
        return self.writer.prepare_commit()

    def abort(self):
        self.writer.abort()


def test_an_edited_checkpoint_keeps_what_it_has_to_commit(tmp_path, outlet):
    die(tmp_path, outlet)
    edited = millstream.state.edit(latest(tmp_path)).write(str(tmp_path / "edited"))
    run(tmp_path, outlet.sink(), name="second", **{RECOVERY: edited})
    assert outlet.read() == EACH_ONCE


def test_a_savepoint_has_nothing_to_commit(tmp_path, outlet):
    """Who starts from it twice repeats nothing of what came before."""
    path = saved(tmp_path, outlet.sink())
    for claim in ({}, {CLAIM: "NO_CLAIM"}, {CLAIM: "LEGACY"}):
        run(tmp_path, outlet.sink(), name="second", **{RECOVERY: path}, **claim)
        outlet.take()
    assert outlet.read() == EACH_ONCE


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_commit_that_fails_once(tmp_path, outlet, at, after):
    restart = {"restart__strategy_type": "fixed-delay", "restart__strategy_fixed__delay_delay": "0"}
    run(tmp_path, FailsOnce(outlet.sink(), at=at, after=after), **restart)
    assert outlet.read() == EACH_ONCE


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("kind", ["print", "collect"])
def test_what_is_for_the_driver_survives_a_failed_commit(tmp_path, outlet, at, after, kind, capsys):
    restart = {"restart__strategy_type": "fixed-delay", "restart__strategy_fixed__delay_delay": "0"}
    env = environment(tmp_path, **restart)
    numbers = env.from_source(Numbers(), None, "numbers").uid("numbers")
    numbers.sink_to(FailsOnce(outlet.sink(), at=at, after=after)).uid("sink")
    got = []
    if kind == "print":
        numbers.map(str).print()
    else:
        numbers._sink("out", CollectOp(got.extend))
    env.execute("job")
    if kind == "print":
        got = [
            int(line.rpartition("> ")[2]) for line in capsys.readouterr().out.split("\n") if line
        ]
    assert Counter(got) == EACH_ONCE
    assert outlet.read() == EACH_ONCE


def test_a_consumer_that_fails_once_gets_the_rest(tmp_path, outlet):
    restart = {"restart__strategy_type": "fixed-delay", "restart__strategy_fixed__delay_delay": "0"}
    env = environment(tmp_path, **restart)
    numbers = env.from_source(Numbers(), None, "numbers").uid("numbers")
    numbers.sink_to(outlet.sink()).uid("sink")
    got, calls = [], []

    def consume(records):
        calls.append(len(records))
        if len(calls) == 2:
            raise OSError("busy")
        got.extend(records)

    numbers._sink("out", CollectOp(consume))
    env.execute("job")
    assert Counter(got) == EACH_ONCE


# -- claimed or not ------------------------------------------------------------------------------------------------


def saved(folder, sink):
    """A savepoint of a job that has read everything and waits for more."""
    env = environment(folder)
    numbers = env.from_source(Numbers(unbounded=True), None, "numbers").uid("numbers")
    got = []
    each = numbers.key_by(lambda n: n % 7).process(Seen()).uid("each")
    each.sink_to(sink).uid("sink")
    each._sink("got", CollectOp(got.extend))
    client = env.execute_async("job")
    until(lambda: len(got) >= COUNT)
    path = client.stop_with_savepoint(False, str(folder / "savepoints")).result(30)
    client.get_job_execution_result().result(30)
    return path


def files_below(path):
    return sorted(str(one) for one in Path(path).rglob("*") if one.is_file())


@pytest.mark.parametrize("mode", [None, "LEGACY", "NO_CLAIM", "CLAIM"])
def test_only_a_claimed_savepoint_is_removed_by_the_job_that_was_started_from_it(tmp_path, mode):
    path = saved(tmp_path, ByName(tmp_path).sink())
    before = files_below(path)
    claim = {} if mode is None else {CLAIM: mode}
    run(tmp_path, ByName(tmp_path / "more").sink(), name="second", **{RECOVERY: path}, **claim)
    assert files_below(path) == ([] if mode == "CLAIM" else before)
    assert Path(path).exists() == (mode != "CLAIM")


def test_a_claimed_savepoint_leaves_what_somebody_has_put_beside_it(tmp_path):
    path = saved(tmp_path, ByName(tmp_path).sink())
    note = Path(path, "README")
    note.write_text("do not lose me")
    run(tmp_path, ByName(tmp_path / "m").sink(), name="second", **{RECOVERY: path, CLAIM: "CLAIM"})
    assert files_below(path) == [str(note)]


def test_a_claimed_checkpoint_goes_with_the_first_one_that_needs_nothing_of_it(tmp_path, outlet):
    die(tmp_path, outlet, times=1)
    path = latest(tmp_path)
    die(
        tmp_path,
        outlet,
        name="second",
        place="source read",
        times=3,
        **{RECOVERY: path, CLAIM: "CLAIM", "execution_checkpointing_num__retained": "1"},
    )
    assert not Path(path).exists()
    with pytest.raises(StateNotFound):
        run(tmp_path, outlet.sink(), name="third", **{RECOVERY: path})
    run(tmp_path, outlet.sink(), name="second")
    assert outlet.read() == EACH_ONCE


def test_when_a_claimed_checkpoint_goes_the_others_of_its_folder_stay(tmp_path, outlet):
    die(tmp_path, outlet, times=3)
    path = latest(tmp_path)
    assert path.endswith("chk-2")
    remove_claimed(path)
    remove_claimed(path)
    for epoch in (0, 1):
        # Looks for all the files.
        open_checkpoint(path.replace("chk-2", f"chk-{epoch}"))


def test_a_claim_outlives_a_driver_that_dies_before_it_has_a_checkpoint(tmp_path, outlet):
    die(tmp_path, outlet, times=2)
    path = latest(tmp_path)
    claim = {RECOVERY: path, CLAIM: "CLAIM"}
    die(tmp_path, outlet, name="second", place="restore", times=1, **claim)
    assert Path(path).exists()
    run(tmp_path, outlet.sink(), name="second")
    assert not Path(path).exists()
    assert outlet.read() == EACH_ONCE


def test_a_checkpoint_of_a_running_job_cannot_be_claimed(tmp_path):
    outlet = ByName(tmp_path)
    env = environment(tmp_path)
    numbers = env.from_source(Numbers(unbounded=True), None, "numbers").uid("numbers")
    each = numbers.key_by(lambda n: n % 7).process(Seen()).uid("each")
    each.sink_to(outlet.sink()).uid("sink")
    client = env.execute_async("job")
    until(lambda: outlet.read().total() >= COUNT)
    try:
        how = {RECOVERY: str(tmp_path / "checkpoints" / "job"), CLAIM: "CLAIM"}
        with pytest.raises(JobLocked, match="cannot be claimed"):
            run(tmp_path, outlet.sink(), name="second", **how)
    finally:
        client.cancel().result(30)


def test_a_job_that_starts_from_its_own_folder_by_path_keeps_the_files_it_needs(tmp_path, outlet):
    die(tmp_path, outlet, times=2)
    there = read_manifest(LocalStorage(str(tmp_path / "checkpoints" / "job")), 1)
    link = tmp_path / "by another name"
    link.symlink_to(tmp_path / "checkpoints" / "job")
    path = {RECOVERY: str(link / "chk-1"), CLAIM: "CLAIM"}
    die(tmp_path, outlet, place="restore", times=1, **path)
    begin = read_manifest(LocalStorage(str(tmp_path / "checkpoints" / "job")), 2)
    assert begin.files() == there.files() != set()
    assert begin.claims == ""
    run(tmp_path, outlet.sink(), parallelism=3)
    assert outlet.read() == EACH_ONCE


def test_one_file_sink_for_two_streams_keeps_what_each_of_them_has_to_commit(tmp_path):
    """The job fails when one of them has committed an epoch and the other has not; what ends the job sweeps nothing
    that is still to be committed."""
    files, other = Files(tmp_path), ByName(tmp_path)

    def execute(at):
        env = environment(tmp_path, restart__strategy_type="none")
        numbers = env.from_source(Numbers(), WatermarkStrategy.no_watermarks(), "numbers").uid("n")
        sink = files.sink()
        numbers.filter(lambda n: n % 2 == 0).sink_to(sink).uid("even")
        numbers.sink_to(FailsOnce(other.sink(), at=at, after=False)).uid("other")
        numbers.filter(lambda n: n % 2 == 1).sink_to(sink).uid("odd")
        env.execute("job")

    with pytest.raises(JobError, match="nothing done"):
        execute(at=2)
    execute(at=0)
    assert files.read() == other.read() == EACH_ONCE


def test_one_file_sink_for_two_jobs_keeps_what_each_of_them_has_to_commit(tmp_path):
    files = Files(tmp_path)
    sink = files.sink()
    with dying_at("after manifest", 2), pytest.raises(JobError, match="Died"):
        run(tmp_path, sink)
    run(tmp_path, sink, name="another job")
    run(tmp_path, sink)
    assert files.read() == EACH_ONCE + EACH_ONCE


def test_a_committer_is_told_which_sink_it_commits_for(tmp_path):
    """Two sinks of one program that keep one list of what they have committed."""
    outlet = BySink(tmp_path)
    env = environment(tmp_path)
    numbers = env.from_source(Numbers(), WatermarkStrategy.no_watermarks(), "numbers")
    sink = outlet.sink()
    numbers.filter(lambda n: n % 2 == 0).sink_to(sink).uid("even")
    numbers.filter(lambda n: n % 2 == 1).sink_to(sink).uid("odd")
    env.execute("job")
    assert outlet.read() == EACH_ONCE
