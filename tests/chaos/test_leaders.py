"""No leader that is killed or paused loses or repeats anything. Longer: `make chaos JOB=ha N=50`."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.testing.zookeeper import missing_tools
from tests.chaos.leaders import LeaderChaos

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.timeout(600)
def test_leaders_elected_by_zookeeper(tmp_path: Path) -> None:
    _run(LeaderChaos(1, 1, 1, seed=3, folder=tmp_path, timeout=2.0, standbys=1))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("election", ["zookeeper", "file"])
def test_leaders(tmp_path: Path, election: str) -> None:
    _run(LeaderChaos(6, 4, 2, seed=5, folder=tmp_path, election=election))


def _run(chaos: LeaderChaos) -> None:
    missing = missing_tools()
    if chaos.election == "zookeeper" and missing:
        pytest.skip(missing)
    chaos.run()
    assert chaos.clean, chaos.table()
    assert len(chaos.done) == chaos.kills + chaos.pauses + chaos.restarts
    assert chaos.verdict.records > 0
