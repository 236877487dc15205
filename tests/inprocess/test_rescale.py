"""Rescaling in mid-stream a job with every kind of state, and checkpoints on several kinds of storage."""

from __future__ import annotations

import pytest

from tests.compat.programs import start, wait_for
from tests.inprocess.test_state import BY_SPLIT, environment, expected, run_to
from tests.inprocess.test_state import wait_for as wait_for_results
from tests.waiting import until

COUNT = 3000


def without_rules(out):
    """Which records meet which rule depends on the order of two streams; everything else does not."""
    return sorted(map(repr, (one for one in out if one[0] != "ruled")))


@pytest.fixture(scope="module")
def uninterrupted():
    out: list[object] = []
    client = start(COUNT, out, 2)
    wait_for(out, COUNT)
    client.cancel().result(60)
    return without_rules(out)


def test_1_4_2_3_under_load(tmp_path, uninterrupted):
    """Each stop is in the middle of the stream: there is always more to read."""
    out: list[object] = []
    path = None
    for stage, parallelism in enumerate((1, 4, 2, 3), 1):
        client = start(COUNT, out, parallelism, path)
        if stage < 4:
            until(lambda stage=stage: len(out) >= stage * 4 * 300, saying=lambda: len(out))
            path = client.stop_with_savepoint(False, str(tmp_path)).result(60)
            client.get_job_execution_result().result(60)
            assert len(out) < 4 * COUNT, "the job was too fast to be stopped on the way"
        else:
            wait_for(out, COUNT)
            client.cancel().result(60)
    assert without_rules(out) == uninterrupted
    assert len(out) == 4 * COUNT


@pytest.mark.parametrize("scheme", ["arrow+file://{}", "memory://{}", "file://{}"])
def test_checkpoints_and_savepoints_elsewhere(tmp_path, scheme):
    if scheme.startswith("memory"):
        pytest.importorskip("fsspec")
    root = scheme.format(tmp_path)
    out, path = [], None
    for count, parallelism in ((100, 2), (200, 3), (300, 2)):
        env = environment(parallelism, millstream_epoch_records=30)
        config = env.get_configuration()
        config.set_string("execution.checkpointing.dir", f"{root}/chk")
        if path is not None:
            config.set_string("execution.state-recovery.path", path)
        client = run_to(env, count, out)
        wait_for_results(out, count)
        if path is None:
            path = client.stop_with_savepoint(False, f"{root}/sp").result(60)
            client.get_job_execution_result().result(60)
        else:
            path = None
            client.cancel().result(60)
    assert sorted(out, key=repr) == expected(300, BY_SPLIT)
