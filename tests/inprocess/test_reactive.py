"""Reactive mode without a cluster: whoever runs the job says how many slots there are."""

from __future__ import annotations

import pytest

from millstream.common.job_status import JobStatus
from millstream.common.restart_strategy import RestartStrategies
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.errors import ConfigurationError, UnsupportedOperation
from millstream.graph.operators import CollectOp
from millstream.runtime.driver.local import InProcessRun
from millstream.runtime.driver.reactive import SlotWatch
from tests.inprocess.test_control import Live
from tests.inprocess.test_rescaling import NotSoMany
from tests.support import environment
from tests.waiting import until

OPTIONS = {
    "scheduler_mode": "reactive",
    "jobmanager__adaptive_scheduler__executing__resource_stabilization_timeout": "0 ms",
    "jobmanager__adaptive_scheduler__executing__cooldown_after_rescaling": "0 ms",
}


@pytest.fixture
def slots(monkeypatch):
    """A number that a test changes."""
    there = [2]
    monkeypatch.setattr(InProcessRun, "slots", lambda self: there[0])
    return there


def start(out, function=None, **options):
    env = environment(7, 40, **OPTIONS, **options)
    stream = env.from_source(Live(), WatermarkStrategy.no_watermarks(), "live").uid("live")
    stream = stream.map(function or (lambda v: v)).uid("map").set_parallelism(5)
    stream = stream.set_max_parallelism(6).key_by(lambda v: v[1] % 11)
    stream.reduce(max).uid("max")._sink("out", CollectOp(out.extend))
    return env.execute_async("job")


def parallelisms(client):
    return {node.uid: node.parallelism for node in client._run.job.graph.nodes.values()}


def at(client, wanted):
    until(lambda: client._run.metrics is not None, 20)
    until(lambda: parallelisms(client)["max"] == wanted, 20, lambda: parallelisms(client))
    until(lambda: client._run._driver.rescales._change is None, 20)


def test_a_job_follows_its_slots(slots):
    out: list[object] = []
    client = start(out)
    at(client, 2)
    slots[0] = 4
    at(client, 4)
    # What the program has set does not count, its maximum does.
    assert parallelisms(client)["map"] == 4
    slots[0] = 9
    at(client, 9)
    assert parallelisms(client)["map"] == 6
    slots[0] = 0
    seen = len(out)
    until(lambda: len(out) > seen + 200)
    assert parallelisms(client)["max"] == 9
    slots[0] = 1
    at(client, 1)
    with pytest.raises(UnsupportedOperation, match="follows the slots that there are"):
        client.rescale(3)
    client.cancel().result(20)


def test_a_job_waits_for_its_first_slot(slots):
    out: list[object] = []
    slots[0] = 0
    client = start(out)
    assert client._run.metrics is None
    slots[0] = 3
    at(client, 3)
    client.cancel().result(20)


def test_a_job_that_waits_can_be_cancelled(slots):
    slots[0] = 0
    client = start([])
    client.cancel().result(20)
    assert client.get_job_status().result() is JobStatus.CANCELED


def test_slots_that_a_job_cannot_use_leave_it_as_it_is(slots):
    out: list[object] = []
    client = start(out, NotSoMany())
    at(client, 2)
    slots[0] = 3
    until(lambda: len(out) > 500)
    seen = len(out)
    until(lambda: len(out) > seen + 200)
    at(client, 2)
    client.cancel().result(20)


def test_one_process_has_no_executors():
    with pytest.raises(ConfigurationError, match="executors that come and go"):
        start([])


@pytest.mark.parametrize("mode", ["BATCH", "STREAMING"])
def test_a_single_epoch_is_refused(slots, mode):
    env = environment(2, **OPTIONS, execution__runtime_mode=mode)
    env.configure(RestartStrategies.no_restart().to_configuration())
    env.from_collection([1, 2]).print()
    with pytest.raises(ConfigurationError, match="is for jobs that have checkpoints"):
        env.execute()


def test_slots_have_to_settle():
    watch = SlotWatch(2, settle=10, pause=30)
    assert watch.look(2, 0) is None
    assert watch.look(4, 100) is None
    # An executor flickers: from the beginning.
    assert watch.look(2, 105) is None
    assert watch.look(4, 106) is None
    assert watch.look(4, 115.9) is None
    assert watch.look(4, 116) == 4
    watch.changed(4, 118)
    # The next change has to wait for the one before it, however long the slots have been there.
    assert watch.look(3, 119) is None
    assert watch.look(3, 147) is None
    assert watch.look(3, 148) == 3
