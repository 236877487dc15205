"""Drivers on Spark that die between a checkpoint and its commit: file sink, Spark writer and `print` in one job."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream.connectors.spark import SparkSink
from millstream.errors import MillstreamError
from tests.crashes import COUNT, EACH_ONCE, Files, Numbers, Seen, dying_at, environment, latest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_started_by_path_on_spark(spark: Any, tmp_path: Path, capfd: Any) -> None:
    outlet, written = Files(tmp_path), str(tmp_path / "written")

    def run(name: str, parallelism: int, **options: Any) -> None:
        env = environment(tmp_path, target="spark", parallelism=parallelism, **options)
        numbers = env.from_source(Numbers(), WatermarkStrategy.no_watermarks(), "numbers")
        each = numbers.uid("numbers").key_by(lambda n: n % 7).process(Seen()).uid("each")
        each.sink_to(outlet.sink()).uid("sink")
        each.map(lambda n: (n,)).sink_to(
            SparkSink(lambda df, epoch: df.write.mode("append").parquet(written), "n long")
        )
        each.map(lambda n: f"printed {n}").print()
        env.execute(name)

    with dying_at("after manifest", 2), pytest.raises(MillstreamError):
        run("job", 2)
    before = outlet.read()
    assert 0 < before.total() < COUNT
    outlet.take()
    run("second", 3, execution_state__recovery_path=latest(tmp_path))
    assert outlet.read() == EACH_ONCE
    # Written before the checkpoint, so nothing of it was left to commit.
    assert Counter(row.n for row in spark.read.parquet(written).collect()) == EACH_ONCE
    # What the first driver had not printed when it died went with it.
    lines = capfd.readouterr().out.splitlines()
    printed = Counter(int(line.rpartition(" ")[2]) for line in lines if "printed " in line)
    assert printed < EACH_ONCE
    assert printed >= before
