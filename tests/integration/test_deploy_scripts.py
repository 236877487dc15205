"""`deploy/standalone/cluster.sh` makes a cluster that a job runs on, and takes it down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millstream.testing.java_servers import free_ports
from tests.integration.processes import MILLSTREAM, ROOT, quick_environment
from tests.integration.test_examples import EXPECTED

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SCRIPT = ROOT / "deploy/standalone/cluster.sh"


def test_a_cluster_by_script(tmp_path: Path) -> None:
    port, page, other = free_ports(3)
    folder = tmp_path / "cluster"
    environment = {
        **quick_environment(),
        "FOLDER": str(folder),
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "UI_PORT": str(page),
        "CORES": "2",
        "MEMORY": "1g",
        "PATH": f"{Path(sys.executable).parent}:{quick_environment()['PATH']}",
    }

    def script(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(SCRIPT), *words],
            env=environment | more,
            capture_output=True,
            text=True,
            check=False,
        )

    try:
        assert script("start", "worker").stderr.strip().endswith("MASTER=spark://10.0.0.1:7077")
        master = script("start", "master")
        assert master.stdout == f"spark://127.0.0.1:{port}\n", master.stderr
        again = script("start", "master")
        assert (again.returncode, "runs already" in again.stderr) == (1, True)
        url = master.stdout.strip()
        worker = script("start", "worker", MASTER=url, UI_PORT=str(other))
        assert worker.stdout == f"a worker of {url}\n", worker.stderr
        assert script("status").stdout.count("runs (process") == 2
        done = subprocess.run(
            [*MILLSTREAM, "run", f"-Dspark.master={url}", "-Dspark.executor.memory=512m",
             "-Dspark.driver.host=127.0.0.1", str(ROOT / "examples/word_count.py")],
            env=environment, capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert sorted(done.stdout.splitlines()) == sorted(EXPECTED["word_count.py"])
    finally:
        stopped = script("stop")
    assert stopped.stdout == "the worker has ended\nthe master has ended\n"
    assert script("status").stdout == "master: does not run\nworker: does not run\n"
    assert script("nonsense").returncode == 2
