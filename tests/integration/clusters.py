"""Spark clusters for tests, on the loopback interface alone.

Run as a program, this module is a standalone cluster: a master and two workers. It says its URL, and takes everything
down when its standard input ends, so that nothing outlives the tests however they end.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.waiting import until

__all__ = ["spark_home", "standalone"]

_ROOT = Path(__file__).parents[2]
_MASTER = "127.0.0.1"
# Workers with addresses of their own are two machines as far as Spark can tell; not every system has these.
_WORKERS = ("127.0.0.2", "127.0.0.3") if sys.platform == "linux" else ("127.0.0.1", "127.0.0.1")
_SECONDS = 90


def _pyspark() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def spark_home(folder: Path) -> Path:
    """The installed Spark by another path: a local cluster writes its executors' logs into Spark's home."""
    home = folder / "spark"
    home.mkdir()
    for name in ("bin", "jars", "python"):
        (home / name).symlink_to(_pyspark() / name)
    return home


@contextlib.contextmanager
def standalone(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """A cluster of two workers with one core each; its URL."""
    cluster = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.clusters", str(folder)],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
        start_new_session=True,
    )
    try:
        assert cluster.stdout is not None
        url = cluster.stdout.readline().strip()
        logs = {log.name: log.read_text()[-2000:] for log in folder.glob("*.log")}
        assert url, f"the cluster did not start: {logs}"
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(cluster.pid, signal.SIGKILL)
        cluster.communicate()


def _start(folder: Path, name: str, kind: str, host: str, *arguments: str) -> Path:
    """Start one of Spark's services; the file that it logs to."""
    log = folder / f"{name}.log"
    environment = {**os.environ, "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"}
    quick = environment.get("SPARK_SUBMIT_OPTS", "")
    # The master's REST server would take a fixed port.
    environment["SPARK_DAEMON_JAVA_OPTS"] = f"{quick} -Dspark.master.rest.enabled=false"
    with log.open("w") as file:
        subprocess.Popen(
            [
                str(_pyspark() / "bin" / "spark-class"),
                f"org.apache.spark.deploy.{kind}",
                *("--host", host, "--port", "0", "--webui-port", "0"),
                *arguments,
            ],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    return log


def _wait_for(log: Path, pattern: str) -> str:
    words = re.compile(pattern)
    found = until(
        lambda: words.search(log.read_text()), _SECONDS, lambda: f"no {pattern!r} in {log}"
    )
    assert found is not None
    return found.group(1)


def _serve(folder: Path) -> None:
    master = _start(folder, "master", "master.Master", _MASTER)
    url = _wait_for(master, r"Starting Spark master at (spark://\S+)")
    for number, host in enumerate(_WORKERS):
        home = folder / f"worker-{number}"
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(home))
        _start(folder, f"worker-{number}", "worker.Worker", host, *size, url)
    for number in range(len(_WORKERS)):
        _wait_for(folder / f"worker-{number}.log", r"(Successfully registered) with master")
    print(url, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    try:
        _serve(Path(sys.argv[1]))
    finally:
        # Executors are in the same group; their Python workers end with them.
        os.killpg(0, signal.SIGKILL)
