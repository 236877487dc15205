"""Metrics of users' functions, from `get_metrics_group()` to what the driver has of them."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from millstream.api.functions import (
    FilterFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
)
from millstream.api.metrics import Meter, MetricGroup
from millstream.api.trigger import Trigger, TriggerResult
from millstream.common import WatermarkStrategy
from millstream.errors import InvalidArgument
from millstream.graph.operators import CollectOp
from millstream.runtime.codegen.user_metrics import UserMetrics
from millstream.runtime.driver.metrics import OperatorMetrics
from tests.inprocess.test_damage import Numbers
from tests.support import environment
from tests.waiting import until

COUNT = 500


def finished(env):
    run = env.execute_async()._run
    run.result()
    return run


def users(run, name):
    """The metrics of an operator's functions in each subtask, by groups and name."""
    uid = next(node.uid for node in run.job.graph.nodes.values() if node.name == name)
    vertex = next(v for v in run.metrics.vertices.values() if uid in v.operators)
    return [operator.user for operator in vertex.operators[uid]]


def total(run, name, metric, groups=()):
    return sum(user[groups, metric].count for user in users(run, name) if (groups, metric) in user)


class Counting(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self.seen = group.counter("seen")
        self.even = group.add_group("parity", "even").counter("seen")
        self.sizes = group.add_group("of").add_group("values").distribution("sizes")
        self.events = group.meter("events", 10)
        self.last = -1
        group.gauge("last", lambda: self.last)

    def map(self, value):
        self.seen.inc()
        self.even.inc(value % 2 == 0)
        self.sizes.update(value)
        self.events.mark_event()
        self.last = value
        return value


class Keyed(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def process_element(self, value, ctx):
        self.seen.inc()
        yield value


def program(env, count=COUNT):
    env.from_collection(list(range(count))).map(Counting()).name("Count").key_by(
        lambda n: n % 7
    ).process(Keyed()).name("Keyed")._sink("out", CollectOp(lambda rows: None))
    return env


@pytest.mark.parametrize("epoch", [None, 10, 77])
def test_what_was_counted_is_what_there_was(epoch):
    run = finished(program(environment(2, epoch)))
    both = users(run, "Count")
    assert total(run, "Count", "seen") == total(run, "Count", "events") == COUNT
    assert total(run, "Count", "seen", (("parity", "even"),)) == COUNT // 2
    sizes = [user[(("of",), ("values",)), "sizes"] for user in both]
    assert sum(size.count for size in sizes) == COUNT
    assert sum(size.value for size in sizes) == sum(range(COUNT))
    assert (min(s.least for s in sizes), max(s.largest for s in sizes)) == (0, COUNT - 1)
    assert max(user[(), "last"].value for user in both) == COUNT - 1
    assert all(user[(), "events"].value > 0 for user in both)
    by_subtask = [user[(), "seen"].count for user in users(run, "Keyed")]
    assert sum(by_subtask) == COUNT
    assert all(by_subtask)


FAILED: set[str] = set()


class FailsOnce(MapFunction):
    def __init__(self, at, once):
        self.at, self.once = at, once

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def map(self, value):
        self.seen.inc()
        if value == self.at and self.once not in FAILED:
            FAILED.add(self.once)
            raise ValueError("just now")
        return value


def test_what_a_failed_attempt_counted_does_not_count(tmp_path):
    FAILED.discard("restart")
    env = environment(
        2,
        10,
        execution__checkpointing__dir=tmp_path,
        restart_strategy__type="fixed-delay",
        restart_strategy__fixed_delay__delay="1 ms",
    )
    env.enable_checkpointing(1000)
    stream = env.from_collection(list(range(COUNT))).map(Counting()).name("Count")
    # What fails is another task than the first: that one has done its part, and does it again.
    stream.rebalance().map(FailsOnce(COUNT // 2 + 3, "restart")).name("Fail")._sink(
        "out", CollectOp(lambda rows: None)
    )
    run = finished(env)
    assert run.metrics.restarts == 1
    assert total(run, "Count", "seen") == total(run, "Fail", "seen") == COUNT


def test_rescaled(tmp_path):
    """A driver counts what it has run: two of them, of other parallelism, together have counted everything once."""
    out: list = []
    counted = []
    path = None
    for parallelism, until_there_are in ((1, 100), (3, 3000)):
        env = environment(parallelism, 50)
        if path is not None:
            env._configuration.set_string("execution.state-recovery.path", path)
        numbers = env.from_source(
            Numbers(3000, bounded=False), WatermarkStrategy.no_watermarks(), "numbers"
        )
        keyed = numbers.uid("numbers").key_by(lambda n: n % 7).process(Keyed()).uid("keyed")
        keyed.name("Keyed")._sink("out", CollectOp(out.extend))
        client = env.execute_async()
        until(lambda most=until_there_are: len(out) >= most)
        if path is None:
            path = client.stop_with_savepoint(False, str(tmp_path)).result(60)
            client.get_job_execution_result().result(60)
            assert len(out) < 3000, "the job was too fast to be stopped on the way"
        else:
            client.cancel().result(60)
        counted.append(total(client._run, "Keyed", "seen"))
    assert sum(counted) == len(out) == 3000
    assert len(users(client._run, "Keyed")) == 3


class Twice(FilterFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        group.gauge("broken", lambda: 1 // 0)
        group.gauge("text", lambda: "much")
        group.gauge("endless", lambda: float("inf"))
        group.gauge("fine", lambda: True)
        group.counter("half").inc(0.5)
        group.counter("huge").inc(1 << 80)
        group.add_group("from \udce4 data").counter("odd").inc()

    def filter(self, value):
        return True


def test_what_has_no_value_is_left_out_with_one_warning(caplog):
    env = environment(1, 10)
    stream = env.from_collection(list(range(50))).filter(Twice()).name("Twice")
    stream._sink("out", CollectOp(lambda rows: None))
    run = finished(env)
    (user,) = users(run, "Twice")
    assert user[(), "fine"].value == 1
    assert user[(("from \\udce4 data",),), "odd"].count == 1
    assert len(user) == 2
    told = [r.getMessage() for r in caplog.records if "has no value" in r.getMessage()]
    assert len(told) == 5
    assert "the gauge 'broken' of 'Twice'" in told[0]
    assert "ZeroDivisionError" in told[0]


class Once(Trigger):
    def on_element(self, element, timestamp, window, ctx):
        ctx.get_metric_group().counter("asked").inc()
        return TriggerResult.FIRE_AND_PURGE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_merge(self, window, ctx):
        pass

    def clear(self, window, ctx):
        pass


def test_a_trigger_counts_in_its_operator():
    env = environment(1, 10)
    windowed = env.from_collection(list(range(30))).key_by(lambda n: n % 2)
    windowed.count_window(5).trigger(Once()).reduce(max).name("Largest")._sink(
        "out", CollectOp(lambda rows: None)
    )
    assert total(finished(env), "Largest", "asked") == 30


# -- groups, one by one -----------------------------------------------------------------------------------------


def test_one_name_is_one_metric(caplog):
    group = MetricGroup()
    assert group.counter("a") is group.counter("a")
    assert group.add_group("x", "y") is group.add_group("x", "y")
    assert group.add_group("x") is not group.add_group("x", "y")
    with caplog.at_level(logging.WARNING):
        other = group.meter("a")
        assert other is group.meter("a")
    assert caplog.text.count("the meter 'a' is not shown: a counter has that name") == 1
    other.mark_event()
    group.counter("a").inc(2)
    metrics = UserMetrics("Map")
    metrics.group = group
    assert [(m.kind, m.name, m.count) for m in metrics.take()] == [("counter", "a", 2)]


def test_the_last_gauge_of_a_name_is_asked():
    metrics = UserMetrics("Map")
    metrics.group.gauge("g", lambda: 1)
    metrics.group.gauge("g", lambda: 2)
    assert [m.value for m in metrics.take()] == [2]


@pytest.mark.parametrize("name", ["", None, 3, b"bytes"])
def test_what_is_no_name(name):
    with pytest.raises(InvalidArgument):
        MetricGroup().counter(name)
    with pytest.raises(InvalidArgument):
        MetricGroup().add_group("group", name if name is not None else "")


def test_a_meter_without_a_time_span():
    with pytest.raises(InvalidArgument):
        Meter(0)


def test_only_what_is_new_is_told():
    metrics = UserMetrics("Map")
    counter, sizes = metrics.group.counter("c"), metrics.group.distribution("d")
    # That they are there is news, even if nothing was counted.
    assert [(m.name, m.count) for m in metrics.take()] == [("c", 0), ("d", 0)]
    assert metrics.take() == []
    counter.inc(3)
    counter.dec(5)
    sizes.update(7)
    assert [(m.name, m.count, m.value) for m in metrics.take()] == [("c", -2, 0), ("d", 1, 7)]
    assert metrics.take() == []


def test_a_subtask_that_moves_between_processes():
    """Each process knows what it has seen itself; the driver adds it up."""
    totals, processes = OperatorMetrics(), [UserMetrics("Map"), UserMetrics("Map")]
    for size, process in enumerate([processes[0], processes[1], processes[0]], 1):
        process.group.distribution("d").update(size)
        process.group.gauge("g", partial(int, size))
        totals.add(process.take())
    sizes = totals.user[(), "d"]
    assert (sizes.count, sizes.value, sizes.least, sizes.largest) == (3, 6, 1, 3)
    assert totals.user[(), "g"].value == 3


def test_a_gauge_that_fails_later_is_gone():
    totals, metrics = OperatorMetrics(), UserMetrics("Map")
    values = [1, None]
    metrics.group.gauge("g", lambda: values.pop(0))
    totals.add(metrics.take())
    assert totals.user[(), "g"].value == 1
    totals.add(metrics.take())
    assert totals.user == {}


def test_metrics_that_another_thread_adds_meanwhile():
    group = UserMetrics("Map").group
    group.counter("first")
    group.add_group("group").counter("inner")
    found = group._all()
    assert next(found)[1] == "first"
    group.counter("second")
    (_, inner, _) = next(found)
    group.add_group("more")
    assert [inner, *(name for _, name, _ in found)] == ["inner"]
