"""An unbounded keyed count over many epochs, cancelled in the middle: exact, nothing lost or doubled."""

from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Encoder, JobStatus, WatermarkStrategy
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

PER_EPOCH = 40
KEYS = 17


@pytest.mark.parametrize("epochs", [120, pytest.param(2000, marks=pytest.mark.nightly)])
def test_exact_counts_over_many_epochs(make_env: Any, tmp_path: Path, epochs: int) -> None:
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

    def enough() -> bool:
        assert client.get_job_status().result() in (JobStatus.CREATED, JobStatus.RUNNING)
        return client.get_metrics() is not None and client.get_metrics().epoch >= epochs

    until(enough, 850)
    client.cancel().result()
    assert client.get_job_status().result() is JobStatus.CANCELED

    metrics = client.get_metrics()
    assert metrics.epoch >= epochs
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
