"""Figures of a job on Spark whose true numbers are known: records by operator and subtask, late and bad records, the
watermark, state, latency behind an operator that takes a known time, back pressure before it and none behind."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Time, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import ProcessWindowFunction
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.reporters.moment import id_of, look
from millstream.reporters.samples import samples_of
from millstream.rest.document import document
from millstream.rest.jobs import ShownJob
from millstream.rest.values import task_values
from millstream.runtime.driver.metrics import JobMetrics
from millstream.runtime.wire.keys import key_group
from tests.integration.conftest import MakeEnv

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

RECORDS, KEYS, NAP = 4_000, 16, 0.02


class At(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        # Every hundredth comes ten seconds late.
        number = int(value[1])
        return number * 10 - (10_000 if number % 100 == 99 and number > 2_000 else 0)


class Sizes(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, len(list(elements))


def number(text: str) -> int:
    return int(text)


def test_all_of_them(make_env: MakeEnv, tmp_path: Path) -> None:
    env = make_env(
        options={
            "millstream.epoch.records": "500",
            "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
            "metrics.latency.interval": "10 ms",
        },
    )
    source = DataGeneratorSource(lambda n: "bad" if n % 1000 == 500 else str(n), RECORDS)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(At())
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "texts")
        .uid("texts")
        .set_parallelism(1)
        .map(number)
        .uid("parse")
        .on_error("skip")
        .set_parallelism(1)
        .map(lambda n: (n % KEYS, n))
        .uid("pair")
        .set_parallelism(1)
        .assign_timestamps_and_watermarks(strategy)
        .uid("times")
        .set_parallelism(1)
        .key_by(lambda pair: pair[0])
        .window(TumblingEventTimeWindows.of(Time.seconds(1)))
        .process(Sizes())
        .uid("windows")
        .map(lambda pair: pair)
        .uid("same")
        .add_sink(lambda pair: time.sleep(NAP / 10))
        .uid("sink")
    )
    client = env.execute_async("figures")
    client.get_job_execution_result().result(120)
    metrics = client.get_metrics()
    assert isinstance(metrics, JobMetrics)

    good = [n for n in range(RECORDS) if n % 1000 != 500]
    late = {n for n in good if n % 100 == 99 and n > 2_000}
    fired = Counter((n * 10 // 1000, n % KEYS) for n in good if n not in late)
    windows = next(v for v in metrics.vertices.values() if "windows" in v.operators)
    reading = next(v for v in metrics.vertices.values() if "texts" in v.operators)

    def of(vertex: Any, uid: str) -> list[tuple[int, int]]:
        return [(o.records_in, o.records_out) for o in vertex.operators[uid]]

    assert of(reading, "texts") == [(RECORDS, RECORDS)]
    assert of(reading, "parse") == [(RECORDS, len(good))]
    assert of(reading, "pair") == of(reading, "times") == [(len(good), len(good))]
    maximum = 128
    owner = {key: key_group(key, maximum) * 2 // maximum for key in range(KEYS)}
    assert of(windows, "windows") == [
        (
            sum(owner[n % KEYS] == subtask for n in good),
            sum(owner[key] == subtask for _, key in fired),
        )
        for subtask in range(2)
    ]
    assert of(windows, "sink") == [
        (sum(owner[key] == subtask for _, key in fired), 0) for subtask in range(2)
    ]
    assert metrics.late_records == {"windows": len(late)}
    assert metrics.bad_records == {"parse": (RECORDS - len(good), RECORDS)}
    assert [o.bad for o in reading.operators["parse"]] == [RECORDS - len(good)]
    assert {subtask.watermark for subtask in windows.subtasks} == {2**63 - 1}
    assert metrics.records == RECORDS
    assert all(subtask.pid not in (0, os.getpid()) for subtask in windows.subtasks)
    assert metrics.latency["sink"].count > 0
    assert metrics.checkpoint_log.completed == metrics.checkpoints > 0
    assert metrics.checkpoint_log.failed == 0
    # What REST, the page's document and Prometheus say is the same.
    run = client._run
    page = document(ShownJob(run, {}), time.time())
    told = {
        (operator["uid"], name): operator[name]
        for vertex in page["vertices"]
        for operator in vertex["operators"]
        for name in ("records_in", "records_out", "late", "bad")
    }
    assert told["windows", "records_in"] == len(good)
    assert told["windows", "records_out"] == told["sink", "records_in"] == len(fired)
    assert told["windows", "late"] == len(late)
    assert told["parse", "bad"] == RECORDS - len(good)
    at = look(run)
    assert at is not None
    scraped: Counter[tuple[str, str]] = Counter()
    for sample in samples_of(at):
        if "operator_name" in sample.labels:
            name = sample.name.removeprefix("flink_taskmanager_job_task_operator_")
            scraped[sample.labels["operator_id"], name] += int(sample.value)
    assert scraped[id_of("windows"), "numRecordsIn"] == len(good)
    assert scraped[id_of("windows"), "numLateRecordsDropped"] == len(late)
    assert scraped[id_of("parse"), "numBadRecords"] == RECORDS - len(good)
    reading_id = next(i for i, v in metrics.vertices.items() if v is reading)
    assert task_values(run, reading_id, 0)["numRecordsIn"] == RECORDS


def test_back_pressure_and_latency(make_env: MakeEnv) -> None:
    env = make_env(options={"millstream.epoch.records": "20"})
    source = DataGeneratorSource(lambda n: n, 100)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    stream.rebalance().add_sink(lambda n: time.sleep(NAP)).uid("slow")
    client = env.execute_async("slow")
    client.get_job_execution_result().result(120)
    metrics = client.get_metrics()
    reading, writing = metrics.vertices.values()
    busy = sum(subtask.busy for subtask in writing.subtasks)
    assert busy >= 100 * NAP
    assert all(subtask.back_pressured == 0 for subtask in writing.subtasks)
    assert max(subtask.back_pressured for subtask in reading.subtasks) >= NAP * 20
    assert max(subtask.busy for subtask in reading.subtasks) < busy
    # A marker stands behind its buffer: whoever takes 10 records in an epoch takes that long at least.
    assert metrics.latency["slow"].largest >= 10 * NAP
