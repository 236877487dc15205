"""Reactive mode on a standalone cluster: a worker joins and is killed, and the job follows, with exact results."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import uuid
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner

from millstream.checkpoint.manifest import list_epochs, read_manifest
from millstream.cli import main
from millstream.errors import ConfigurationError, StateError
from millstream.storage.storage import LocalStorage
from tests.chaos import scaling_job
from tests.chaos.scaling import PROGRAM, judge
from tests.integration.clusters import standalone
from tests.integration.processes import (
    MARK,
    MILLSTREAM,
    QUICK_JAVA,
    ROOT,
    Program,
    quick_environment,
)
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SETTINGS = {
    "scheduler-mode": "reactive",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "1 s",
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "1 s",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.pyspark.python": sys.executable,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
}


def test_a_local_master_is_refused(make_env):
    env = make_env(options={"scheduler-mode": "reactive"})
    env.enable_checkpointing(100)
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match="executors that come and go"):
        env.execute()


def worker(folder: Path, url: str) -> Program:
    """One more host, with one core."""
    return Program(
        [
            str(Path(pyspark.__file__).parent / "bin" / "spark-class"),
            "org.apache.spark.deploy.worker.Worker",
            *("--host", "127.0.0.4", "--port", "0", "--webui-port", "0"),
            *("--cores", "1", "--memory", "1g", "--work-dir", str(folder / "worker-2"), url),
        ],
        folder,
        SPARK_LOCAL_IP="127.0.0.4",
        SPARK_DAEMON_MEMORY="256m",
        PYTHONPATH=str(ROOT),
    )


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="needs several loopback addresses")
def test_a_worker_joins_and_another_time_is_killed(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path / "checkpoints" / scaling_job.JOB))

    def parallelism() -> int:
        # Checkpoints are removed while one looks.
        with contextlib.suppress(StateError, IndexError):
            return read_manifest(storage, list_epochs(storage)[-1]).operators["count"].parallelism
        return 0

    environment = quick_environment(**{MARK: uuid.uuid4().hex, "PYTHONPATH": str(ROOT)})
    with standalone(tmp_path, environment) as url:
        settings = {**SETTINGS, "spark.master": url}
        words = [f"-D{key}={value}" for key, value in settings.items()]
        command = [*MILLSTREAM, "run", "-p", "7", *words, PROGRAM, str(tmp_path), "1", "200"]
        with Program(command, tmp_path, PYTHONPATH=str(ROOT)) as driver:

            def at(wanted: int) -> None:
                until(
                    lambda: parallelism() == wanted or driver.process.poll() is not None,
                    200,
                    lambda: (wanted, parallelism(), driver.errors[-3000:]),
                )
                assert driver.process.poll() is None, driver.errors[-3000:]

            at(2)
            with worker(tmp_path, url) as third:
                at(3)
                for pid in third.family():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                at(2)
            directory = str(tmp_path / "checkpoints")
            refused = CliRunner().invoke(
                main, ["rescale", scaling_job.JOB, "-p", "1", "--dir", directory]
            )
            assert "follows the slots that there are" in refused.output
            done = CliRunner().invoke(main, ["stop", scaling_job.JOB, "--dir", directory])
            assert done.exit_code == 0, done.output
            assert driver.end(60) == 0, driver.errors[-3000:]
    assert judge(tmp_path / "out") > 0
