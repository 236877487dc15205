"""No kill of a driver or of a worker loses, repeats or changes anything. Longer: `make nightly`, `make chaos N=200`."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.testing.kafka import missing_tools
from tests.chaos.chaos import WHILE_ENDING, Chaos
from tests.chaos.planted import PLANTED, found

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.timeout(900)
def test_kills(tmp_path: Path) -> None:
    chaos = Chaos(kills=2, worker_kills=12, seed=7, folder=tmp_path)
    chaos.run()
    _checked(chaos)


@pytest.mark.timeout(900)
def test_kills_between_rounds(tmp_path: Path) -> None:
    """Workers die with what they have not written yet."""
    _clean(Chaos(kills=1, worker_kills=4, seed=7, folder=tmp_path, job="time", rounds=True))


@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_kills_at_every_point(tmp_path: Path) -> None:
    chaos = Chaos(kills=20, worker_kills=40, seed=7, folder=tmp_path)
    chaos.run()
    report = _checked(chaos)
    # A kill while the job ends may come too late: then it has ended by itself.
    assert set(chaos.missing("driver")) <= {WHILE_ENDING}, report
    assert chaos.rescales > 0, report


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [3, pytest.param(6, marks=pytest.mark.nightly)])
def test_kills_with_time(tmp_path: Path, kills: int) -> None:
    """Timers, windows, sessions and late records; a worker dies also while they fire."""
    chaos = Chaos(kills=kills, worker_kills=12, seed=7, folder=tmp_path, job="time")
    chaos.run()
    report = _checked(chaos)
    # A driver starts again from a savepoint too, and with more of them with another parallelism.
    assert chaos.savepoints > 0, report
    assert kills < 6 or chaos.rescales > 0, report
    for kind in ("results", "late", "fired again", "by the clock"):
        assert chaos.verdict.facts[kind] > 0, report


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(tmp_path: Path, name: str) -> None:
    """A kill test that finds none of these would find no real one either."""
    seen, kills = found(name, tmp_path, kills=20)
    assert seen, f"nothing was seen in {kills} kills"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("job", "kills"),
    [
        pytest.param("delta", 1, marks=pytest.mark.nightly),
        *(
            pytest.param(job, 3, marks=pytest.mark.nightly)
            for job in ("compact", "delta", "iceberg", "postgres", "s3")
        ),
    ],
)
def test_kills_with_output_elsewhere(tmp_path: Path, job: str, kills: int) -> None:
    """A longer series: `python -m tests.chaos --job delta --kills 20`."""
    # A single kill is to come between a manifest and its commit: it does with this seed.
    seed = 13 if kills == 1 else 7
    chaos = Chaos(kills=kills, worker_kills=kills + 1, seed=seed, folder=tmp_path, job=job)
    _clean(chaos)
    assert kills > 1 or {kill.point for kill in chaos.done if kill.role == "driver"} == {
        "after manifest"
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kills", "restarts"), [(2, 1), pytest.param(5, 2, marks=pytest.mark.nightly)]
)
def test_kills_from_kafka_to_kafka(tmp_path: Path, kills: int, restarts: int) -> None:
    """Driver, workers and broker; what was committed is read back with a plain client."""
    missing = missing_tools()
    if missing is not None:
        pytest.skip(missing)
    chaos = Chaos(kills, kills, 7, tmp_path, "kafka", broker_restarts=restarts)
    _clean(chaos)
    assert chaos.verdict.facts["copies"] == chaos.verdict.records


def _clean(chaos: Chaos) -> None:
    """Nothing is wrong after all kills."""
    chaos.run()
    report = chaos.table()
    print(report)
    assert chaos.clean, report
    assert [*map(chaos.left, ("driver", "worker", "broker"))] == [0, 0, 0]
    assert chaos.verdict.records > 0


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
