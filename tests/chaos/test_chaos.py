"""No kill of a driver or of a worker loses, repeats or changes anything. A longer series: `make chaos N=200`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.chaos import WHILE_ENDING, Chaos

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.timeout(1500)
def test_kills(tmp_path: Path) -> None:
    chaos = Chaos(kills=20, worker_kills=40, seed=7, folder=tmp_path)
    chaos.run()
    report = _checked(chaos)
    # A kill while the job ends may come too late: then it has ended by itself.
    assert set(chaos.missing("driver")) <= {WHILE_ENDING}, report
    assert chaos.rescales > 0, report


@pytest.mark.timeout(900)
def test_kills_with_time(tmp_path: Path) -> None:
    """Timers, windows, sessions and late records; a worker dies also while they fire."""
    chaos = Chaos(kills=6, worker_kills=12, seed=7, folder=tmp_path, job="time")
    chaos.run()
    report = _checked(chaos)
    assert chaos.rescales > 0, report
    for kind in ("results", "late", "fired again", "by the clock"):
        assert chaos.verdict.facts[kind] > 0, report


def _checked(chaos: Chaos) -> str:
    """Nothing is wrong, and workers were killed at all points; the report."""
    report = chaos.table()
    print(report)
    assert chaos.failures == [], report
    assert chaos.verdict.clean, report
    assert chaos.missing("worker") == [], report
    assert chaos.left("driver") == chaos.left("worker") == 0
    assert chaos.verdict.records > 0
    return report
