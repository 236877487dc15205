"""A job whose folder is gone for a while, as that of a network's disk: it waits, and goes on with exact results."""

from __future__ import annotations

import collections

import pytest

from millstream.common import Encoder
from millstream.common.job_status import JobStatus
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import FileSink
from millstream.errors import StorageAway
from tests.support import environment
from tests.waiting import until

RECORDS, EPOCH = 6000, 20


def start(folder, attempts, delay="1 ms"):
    env = environment(
        epoch=EPOCH,
        execution__checkpointing__dir=folder / "shared",
        execution__checkpointing__interval="1 ms",
        restart_strategy__type="fixed-delay",
        restart_strategy__fixed_delay__attempts=attempts,
        restart_strategy__fixed_delay__delay=delay,
    )
    numbers = DataGeneratorSource(lambda n: n, RECORDS)
    stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers")
    counted = stream.map(lambda n: (n % 7, 1)).key_by(lambda pair: pair[0]).sum(1)
    sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder()).build()
    counted.map(str).sink_to(sink)
    return env.execute_async("away")


def written(folder):
    lines = [
        line
        for file in (folder / "out").rglob("*")
        if file.is_file() and not file.name.startswith(".")
        for line in file.read_text().splitlines()
    ]
    return collections.Counter(lines)


def expected():
    return collections.Counter(
        str((key, n + 1)) for key in range(7) for n in range(len(range(key, RECORDS, 7)))
    )


def test_a_job_waits_for_its_folder_and_loses_nothing(tmp_path):
    client = start(tmp_path, 1000, "20 ms")
    run = client._run
    for times in (1, 2, 3):
        until(lambda seen=times: run.metrics is not None and run.metrics.epoch >= 30 * seen)
        (tmp_path / "shared").rename(tmp_path / "away")
        failed = len(run.failures)
        until(lambda seen=failed: len(run.failures) > seen + 1)
        assert run.status in (JobStatus.RESTARTING, JobStatus.RUNNING)
        assert not (tmp_path / "shared").exists()
        (tmp_path / "away").rename(tmp_path / "shared")
    client.get_job_execution_result().result()
    assert written(tmp_path) == expected()
    assert any(isinstance(failure.error, StorageAway) for failure in run.failures)


def test_it_fails_when_its_restart_strategy_is_used_up(tmp_path):
    client = start(tmp_path, 3)
    run = client._run
    until(lambda: run.metrics is not None and run.metrics.epoch >= 5)
    (tmp_path / "shared").rename(tmp_path / "away")
    with pytest.raises(StorageAway, match="not there any more"):
        client.get_job_execution_result().result()
    assert not (tmp_path / "shared").exists()
    # Whoever starts it again when the folder is back goes on where it stood.
    (tmp_path / "away").rename(tmp_path / "shared")
    start(tmp_path, 0).get_job_execution_result().result()
    assert written(tmp_path) == expected()
