"""The archive of Spark's classes: written by the first program, used by the second."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.integration.processes import ROOT, quick_environment
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_the_second_start_uses_what_the_first_has_written(tmp_path):
    environment = quick_environment(
        XDG_CACHE_HOME=str(tmp_path), SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1"
    )
    command = [sys.executable, "examples/word_count.py"]

    def run():
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        return sorted(done.stdout.splitlines())

    first = run()
    folder = tmp_path / "millstream"
    # Java writes it on its way out, its first bytes last.
    until(lambda: any(new.read_bytes()[:4].strip(b"\0") for new in folder.glob("*.new")))
    assert run() == first
    (archive,) = folder.glob("*.jsa")
    assert archive.stat().st_size > 10_000_000
    assert not os.listdir(folder)[1:]
