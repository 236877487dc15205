"""Figures of a job whose true numbers are known."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from millstream.api.error_policy import ErrorPolicy
from millstream.common import Types, WatermarkStrategy
from millstream.common.time import Time
from millstream.datastream import (
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.runtime.base.histogram import Histogram
from millstream.runtime.driver.metrics import LAGS_KEPT, JobMetrics
from millstream.runtime.wire.reports import SplitProgress, TaskReport
from tests.support import environment

ODD = OutputTag("odd", Types.INT())


def run(env: StreamExecutionEnvironment) -> JobMetrics:
    client = env.execute_async("figures")
    client.get_job_execution_result().result(timeout=60)
    metrics = client.get_metrics()
    assert isinstance(metrics, JobMetrics)
    return metrics


def numbers(metrics: JobMetrics) -> dict[str, tuple[int, int]]:
    """By the uid of each operator, records in and out of all subtasks."""
    return {
        uid: (sum(o.records_in for o in subtasks), sum(o.records_out for o in subtasks))
        for vertex in metrics.vertices.values()
        for uid, subtasks in vertex.operators.items()
    }


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("epoch", [7, 1000])
def test_records_of_every_operator_of_a_chain(parallelism, epoch):
    env = environment(parallelism, epoch=epoch)
    stream = env.from_collection(range(100)).uid("source").rebalance()
    doubled = stream.flat_map(lambda n: [n, n]).uid("flat")
    kept = doubled.filter(lambda n: n % 5 == 0).uid("filter")
    mapped = kept.map(lambda n: n + 1).uid("map")
    mapped.filter(lambda n: n > 50).uid("second").add_sink(lambda n: None).uid("sink")
    summed = mapped.map(lambda n: (n % 3, n)).uid("pair").key_by(lambda p: p[0]).sum(1).uid("sum")
    summed.print().uid("print")
    assert numbers(run(env)) == {
        "source": (100, 100),
        "flat": (100, 200),
        "filter": (200, 40),
        "map": (40, 40),
        "second": (40, 20),
        "sink": (20, 0),
        "pair": (40, 40),
        "sum": (40, 40),
        "print": (40, 0),
    }


class Split(ProcessFunction):
    def process_element(self, value, ctx):
        if value % 2:
            yield ODD, value
        if value % 10 == 0:
            yield value


def test_records_of_side_outputs_and_of_operators_with_an_error_policy():
    env = environment(1, epoch=10)
    split = env.from_collection(range(60)).uid("source").process(Split()).uid("split")
    odd = split.get_side_output(ODD)
    odd.add_sink(lambda n: None).uid("odd sink")
    split.map(lambda n: 1 // n).uid("divide").on_error(ErrorPolicy.skip()).add_sink(
        lambda n: None
    ).uid("sink")
    metrics = run(env)
    assert numbers(metrics) == {
        "source": (60, 60),
        "split": (60, 36),
        "odd sink": (30, 0),
        "divide": (6, 5),
        "sink": (5, 0),
    }
    assert metrics.bad_records == {"divide": (1, 6)}
    [vertex] = [v for v in metrics.vertices.values() if "divide" in v.operators]
    assert [operator.bad for operator in vertex.operators["divide"]] == [1]


class Sizes(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, len(list(elements))


@pytest.mark.parametrize("parallelism", [1, 2])
def test_windows_late_records_watermarks_and_subtasks(parallelism):
    env = environment(parallelism, epoch=50)
    times = [*range(0, 10_000, 100), 5, 15, 25]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Time())
    windows = (
        env.from_collection([(t % 300, t) for t in times])
        .assign_timestamps_and_watermarks(strategy)
        .key_by(lambda pair: pair[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(1000)))
        .process(Sizes())
        .uid("windows")
    )
    windows.add_sink(lambda pair: None).uid("sink")
    metrics = run(env)
    [vertex] = [v for v in metrics.vertices.values() if "windows" in v.operators]
    operators = vertex.operators["windows"]
    assert sum(operator.records_in for operator in operators) == len(times)
    late = sum(operator.late for operator in operators)
    assert late == 3 == metrics.late_records["windows"]
    # Ten seconds of three keys each.
    fired = len(
        {(t // 1000, t % 300) for t in times if t >= 100 or t == 0} - {(0, 5), (0, 15), (0, 25)}
    )
    assert sum(operator.records_out for operator in operators) == fired
    assert sum(operator.records_in for operator in vertex.operators["sink"]) == fired
    assert vertex.num_records_in == [operator.records_in for operator in operators]
    assert {subtask.watermark for subtask in vertex.subtasks} == {2**63 - 1}


class _Time:
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


def test_latency_has_the_time_that_an_operator_sleeps():
    env = environment(1, epoch=1)
    stream = env.from_collection(range(4)).rebalance()
    stream.map(_slowly).add_sink(lambda n: None).uid("sink")
    metrics = run(env)
    histogram = metrics.latency["sink"]
    assert histogram.count >= 1
    assert histogram.largest >= 0.05


def _slowly(value):
    time.sleep(0.05)
    return value


def test_who_is_behind_a_slow_operator_is_busy_and_who_is_before_it_held_back():
    env = environment(1, epoch=2)
    stream = env.from_collection(range(12)).uid("source").rebalance()
    stream.map(_slowly).uid("slow").add_sink(lambda n: None)
    metrics = run(env)
    source, slow = metrics.vertices.values()
    assert source.subtasks[0].back_pressured > slow.subtasks[0].busy / 2
    assert slow.subtasks[0].busy >= 12 * 0.05
    assert slow.subtasks[0].back_pressured == 0
    assert source.subtasks[0].busy < slow.subtasks[0].busy / 2


def test_nobody_is_held_back_who_reads_all_there_is():
    env = environment(1, millstream__epoch__interval="5 ms")
    source = DataGeneratorSource(lambda n: n, 40, 400)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "paced").rebalance()
    stream.map(lambda n: n).add_sink(lambda n: None)
    metrics = run(env)
    assert metrics.epoch > 1
    assert {s.back_pressured for v in metrics.vertices.values() for s in v.subtasks} == {0}


def test_state_and_checkpoints_are_told_of(tmp_path):
    env = environment(2, epoch=20, execution__checkpointing__dir=tmp_path)
    pairs = env.from_collection([(n % 10, 1) for n in range(100)])
    pairs.key_by(lambda pair: pair[0]).sum(1).uid("sum").add_sink(lambda pair: None)
    metrics = run(env)
    log = metrics.checkpoint_log
    assert log.completed == metrics.checkpoints == len(log.records)
    assert log.failed == 0
    assert {record.status for record in log.records} == {"COMPLETED"}
    assert all(record.tasks and record.path for record in log.records)
    [vertex] = [v for v in metrics.vertices.values() if "sum" in v.operators]
    held = sum(subtask.state_bytes for subtask in vertex.subtasks)
    assert 0 < held < metrics.last_checkpoint_full_size
    times, series = metrics.history.read()
    assert times
    assert {len(line) for line in series.values()} == {len(times)}


def test_a_histogram_is_within_its_bounds():
    histogram = Histogram()
    values = [n / 997 for n in range(1, 1000)]
    for value in values:
        histogram.add(value)
    for share in (0.5, 0.95, 0.99):
        exact = values[int(share * len(values))]
        assert abs(histogram.quantile(share) - exact) < exact * 0.03
    other = Histogram()
    other.merge(histogram.buckets, histogram.total, histogram.largest)
    assert (other.count, other.quantile(0.9), other.mean) == (
        histogram.count,
        histogram.quantile(0.9),
        histogram.mean,
    )
    assert Counter(other.buckets) == Counter(histogram.buckets)


def test_the_lag_of_two_sources_of_one_name():
    env = environment(1, epoch=5)
    first, second = (env.from_collection(range(20)).uid(uid) for uid in ("a", "b"))
    first.union(second).add_sink(lambda n: None)
    lag = run(env).lag
    assert {name.rpartition(" ")[2]: list(of) for name, of in lag.items()} == {
        "(a)": ["collection"],
        "(b)": ["collection"],
    }


def test_what_goes_round_has_no_lag():
    env = environment(1, epoch=5)
    loop = env.from_collection(range(10)).iterate()
    less = loop.map(lambda n: n - 1)
    loop.close_with(less.filter(lambda n: n > 0))
    less.filter(lambda n: n <= 0).add_sink(lambda n: None)
    metrics = run(env)
    # The files of a loop are others in each epoch: a job would tell of ever more.
    assert metrics.lag == {"Source: Collection Source": {"collection": 0}}
    assert metrics.records == 10


def test_splits_that_were_read_long_ago_are_not_told_of_for_ever():
    env = environment(1)
    env.from_collection(range(3)).uid("files").add_sink(lambda n: None)
    metrics = run(env)
    for number in range(3):
        splits = [
            SplitProgress("files", f"{number}-{n}", 0, 1, True, n == 0) for n in range(LAGS_KEPT)
        ]
        report = TaskReport(
            epoch=number + 1, level=0, subtask=0, attempt="", seconds=0.0, splits=splits
        )
        metrics.update(number + 1, [report])
        (lag,) = metrics.lag.values()
        assert len(lag) == LAGS_KEPT
        assert lag[f"{number}-0"] == 1
        assert lag[f"{number}-{LAGS_KEPT - 1}"] == 0


def test_the_rate_of_a_job_is_that_of_seconds_not_of_the_last_round() -> None:
    """The round that ends an epoch often has nothing to read: the job is not slower for it."""
    now = [100.0]
    env = environment()
    env.from_collection([1]).print()
    plan = env._take_job(None).plan
    metrics = JobMetrics(plan, clock=lambda: now[0])
    source = plan.sources[0].id

    def after(seconds: float, records: int) -> float:
        now[0] += seconds
        report = TaskReport(
            epoch=0, level=0, subtask=0, attempt="a", seconds=1.0, records_in={source: records}
        )
        metrics.update(metrics.epoch + 1, [report])
        return metrics.records_per_second

    assert after(1.0, 1000) == 1000
    assert after(0.01, 0) == pytest.approx(1000, rel=0.02)
    assert after(1.0, 500) == pytest.approx(750, rel=0.02)
    # What was long ago does not count.
    for _ in range(10):
        rate = after(1.0, 200)
    assert rate == pytest.approx(200, rel=0.02)
    # Neither does what an attempt has read that is run again.
    metrics.update_round([], held_back=False)
    metrics.take_back()
    assert after(1.0, 200) == pytest.approx(200, rel=0.02)
