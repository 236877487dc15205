"""Rescaling on Spark: under load, from the command line, and with a streaming frame of the user's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from millstream.cli import main
from millstream.common.rescale_result import RescaleResult
from millstream.graph.operators import CollectOp
from tests.integration.test_recovery import Count, expected, numbers
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_2_4_1_3_under_load(make_env, tmp_path):
    out: list[tuple[int, int]] = []
    env = make_env(
        options={
            "millstream.epoch.records": "500",
            "execution.checkpointing.dir": str(tmp_path / "chk"),
        }
    )
    env.enable_checkpointing(50)
    # One source subtask, so that each key's numbers come in order.
    stream = numbers(env, 8_000, 4000.0).set_parallelism(1).key_by(lambda n: n % 7)
    stream.process(Count()).uid("count")._sink("out", CollectOp(out.extend))
    client = env.execute_async("rescaled")
    results: list[RescaleResult] = []
    for seen, wanted in ((500, 4), (2000, 1), (3500, 3)):
        until(lambda seen=seen: len(out) >= seen, 120)
        results.append(client.rescale(wanted).result(120))
    words = ["rescale", "rescaled", "-p", "3", "--dir", str(tmp_path / "chk")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert "nothing has changed" in done.output
    assert len(out) < 8_000, "the job was too fast to be rescaled on the way"
    client.get_job_execution_result().result(120)
    assert [(result.before, result.after) for result in results] == [(2, 4), (4, 1), (1, 3)]
    assert Counter(map(tuple, out)) == expected(8_000)


def test_a_streaming_frame_goes_on_where_it_was(make_env, spark, tmp_path):
    """Spark's own log of the frame is cut back and kept."""
    folder = tmp_path / "in"
    folder.mkdir()
    out: list[int] = []
    env = make_env(options={"execution.checkpointing.dir": str(tmp_path / "chk")})
    env.enable_checkpointing(100)
    frame = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).csv(str(folder))
    stream = env.from_dataframe(frame).map(lambda row: row["n"]).key_by(lambda n: n % 5)
    stream.reduce(max).uid("max")._sink("out", CollectOp(out.extend))
    for n in range(6):
        _add(folder, n)
    client = env.execute_async("frames")
    until(lambda: len(out) >= 20, 120)
    assert client.rescale(3).result(120).after == 3
    for n in range(6, 9):
        _add(folder, n)
    until(lambda: len(out) >= 90, 120)
    client.cancel().result(60)
    assert len(out) == 90


def _add(folder: Path, number: int) -> None:
    hidden = folder / f".{number}"
    hidden.write_text("".join(f"{10 * number + n}\n" for n in range(10)))
    hidden.rename(folder / f"{number}.csv")
