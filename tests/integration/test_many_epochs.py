"""An unbounded keyed count over thousands of epochs, cancelled in the middle: exact, nothing lost or doubled."""

from __future__ import annotations

import collections
import os
import time
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Encoder, JobStatus, WatermarkStrategy
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

EPOCHS = int(os.environ.get("MILLSTREAM_EPOCHS", "2000"))
PER_EPOCH = 40
KEYS = 17


def test_exact_counts_over_thousands_of_epochs(make_env: Any, tmp_path: Path) -> None:
    env = make_env(
        options={
            "millstream.epoch.records": str(PER_EPOCH),
            "millstream.state.dir": str(tmp_path / "state"),
        }
    )
    source = DataGeneratorSource(lambda n: (f"key-{n % KEYS}", 1))
    sink = (
        FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").set_parallelism(1)
    events.key_by(lambda pair: pair[0]).sum(1).map(lambda pair: f"{pair[0]} {pair[1]}").sink_to(
        sink
    )

    client = env.execute_async("count for ever")
    while client.get_metrics() is None or client.get_metrics().epoch < EPOCHS:
        assert client.get_job_status().result() in (JobStatus.CREATED, JobStatus.RUNNING)
        time.sleep(0.2)
    client.cancel().result()
    assert client.get_job_status().result() is JobStatus.CANCELED

    metrics = client.get_metrics()
    assert metrics.epoch >= EPOCHS
    total = metrics.records
    assert total == (metrics.epoch + 1) * PER_EPOCH

    counted: dict[str, list[int]] = collections.defaultdict(list)
    for part in (tmp_path / "out").iterdir():
        if not part.name.startswith("."):
            for line in part.read_text().splitlines():
                key, _, count = line.partition(" ")
                counted[key].append(int(count))
    expected = collections.Counter(f"key-{n % KEYS}" for n in range(total))
    # Every key has counted 1, 2, 3, ... up to exactly its share of the committed records.
    assert {key: sorted(counts) for key, counts in counted.items()} == {
        key: list(range(1, count + 1)) for key, count in expected.items()
    }
    # Old state files are removed on the way: what is left does not grow with the epochs.
    left = [file for file in (tmp_path / "state" / "state").rglob("*") if file.is_file()]
    assert len(left) < 100
