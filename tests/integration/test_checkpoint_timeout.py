"""An epoch that takes longer than a checkpoint may is cancelled on Spark, and tried again if that is tolerable."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from millstream.errors import CheckpointFailed
from tests.integration.conftest import MakeEnv

pytestmark = pytest.mark.spark


class Slow:
    """Takes long as often as there are fewer than so many files in a folder."""

    def __init__(self, folder: Path, times: int) -> None:
        self.folder, self.times = folder, times

    def __call__(self, value: int) -> int:
        seen = len(list(self.folder.iterdir()))
        (self.folder / str(seen)).touch()
        time.sleep(60 if seen < self.times else 0)
        return value


def options(tmp_path: Path, tolerable: int) -> dict[str, str]:
    return {
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.timeout": "8 s",
        "execution.checkpointing.dir": str(tmp_path / f"checkpoints-{tolerable}"),
        "execution.checkpointing.tolerable-failed-checkpoints": str(tolerable),
        "restart-strategy.type": "none",
    }


@pytest.mark.parametrize("tolerable", [0, 1])
def test_a_slow_epoch_is_cancelled(make_env: MakeEnv, tmp_path: Path, tolerable: int) -> None:
    calls = tmp_path / "calls"
    calls.mkdir()
    env = make_env(parallelism=1, options=options(tmp_path, tolerable))
    stream = env.from_collection([1]).map(Slow(calls, 1))
    started = time.monotonic()
    if tolerable:
        assert list(stream.execute_and_collect()) == [1]
    else:
        with pytest.raises(CheckpointFailed, match="took longer than a checkpoint may"):
            list(stream.execute_and_collect())
    assert time.monotonic() - started < 55
