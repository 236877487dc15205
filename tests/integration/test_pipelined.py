"""Pipelined mode on Spark: programs in a process of their own, whose Spark is started for it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.integration.pipelined_programs import PROGRAMS
from tests.integration.processes import ROOT, quick_environment

pytestmark = [pytest.mark.spark]


def run(folder, cases):
    """What the programs say of themselves, by their names."""
    command = [
        sys.executable,
        "-m",
        "tests.integration.pipelined_programs",
        str(folder),
        str(cases),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=quick_environment(), capture_output=True, text=True, check=False
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"name"')]
    assert done.returncode == 0, done.stderr[-3000:]
    return {line["name"]: line["problem"] for line in lines}


@pytest.mark.timeout(600)
def test_programs_and_some_cases(tmp_path):
    found = run(tmp_path, 5)
    assert len(found) == len(PROGRAMS) + 5
    assert {name: problem for name, problem in found.items() if problem} == {}


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_all_cases(tmp_path):
    found = run(tmp_path, -1)
    assert len(found) >= len(PROGRAMS) + 60
    assert {name: problem for name, problem in found.items() if problem} == {}
