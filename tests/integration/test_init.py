"""What `millstream init` writes, on Spark: it runs, is killed, goes on, and ends."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from millstream.cli.init import write_project
from tests.integration.processes import Program
from tests.waiting import eventually

pytestmark = pytest.mark.spark


def windows(program: Program) -> list[tuple[str, str]]:
    """(window, page) of every line that has been printed."""
    found = re.findall(r"(\d+ s to +\d+ s)  (\w+) +\d+ clicks", "\n".join(program.lines))
    return [(window, page) for window, page in found]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_new_project_survives_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "clicks"
    write_project(folder)
    command = [sys.executable, str(folder / "job.py"), "--clicks", "600", "--rate", "20"]
    with Program(command, tmp_path) as job:
        assert eventually(lambda: windows(job), 180), job.errors
        job.process.kill()
        assert job.end(30) == -9
    with Program(command, tmp_path) as again:
        assert again.end(180) == 0, again.errors
    before, after = windows(job), windows(again)
    # What the first driver has shown the second does not show again, and nothing begins anew.
    assert not set(before) & set(after)
    assert len(set(after)) == len(after)
    assert {"25 s to   30 s", "30 s to   35 s"} & {window for window, _ in after}
