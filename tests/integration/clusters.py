"""Spark clusters for tests, on the loopback interface alone.

Run as a program, this module is a standalone cluster: a master and some workers. It says its URL, does what it is told
by lines of its standard input, and takes everything down when that ends, so that nothing outlives the tests however
they end.
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

__all__ = ["Standalone", "spark_home", "standalone", "standalone_cluster"]

_ROOT = Path(__file__).parents[2]
_MASTER = "127.0.0.1"
_SECONDS = 90


def _host(number: int) -> str:
    """Workers with addresses of their own are machines of their own as far as Spark can tell; not every system has
    these."""
    return f"127.0.0.{number + 2}" if sys.platform == "linux" else "127.0.0.1"


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


class Standalone:
    """A running cluster, whose parts can be killed and started again one by one."""

    def __init__(self, process: subprocess.Popen[str], url: str, folder: Path) -> None:
        self._process = process
        self.url = url
        self.folder = folder

    def tell(self, *words: object) -> None:
        """`kill worker 0` is the loss of a host: the worker, its executors and their Python; `kill executor 0` that of
        its executors alone; `kill master`. `start worker 0` and `start master` wait until they serve."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().strip()
        assert answer == "done", f"{words}: {answer!r}"


@contextlib.contextmanager
def standalone_cluster(
    folder: Path, environment: dict[str, str], *, workers: int = 3
) -> Iterator[Standalone]:
    """A cluster of workers with one core each."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.clusters", str(folder), str(workers)],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        logs = {log.name: log.read_text()[-2000:] for log in folder.glob("*.log")}
        assert url, f"the cluster did not start: {logs}"
        yield Standalone(process, url, folder)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@contextlib.contextmanager
def standalone(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """A cluster of two workers with one core each; its URL."""
    with standalone_cluster(folder, environment, workers=2) as cluster:
        yield cluster.url


# -- the program -----------------------------------------------------------------------------------------------------


class _Cluster:
    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._workers = workers
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._starts = 0
        self.url = ""

    def start_all(self) -> None:
        self.start_master()
        for number in range(self._workers):
            self._start_worker(number)
        for number in range(self._workers):
            self._await_worker(number)

    def start_master(self) -> None:
        port = self.url.rpartition(":")[2] or "0"
        self._start("master", "master.Master", _MASTER, port)
        self.url = self._wait_for("master", r"Starting Spark master at (spark://\S+)")
        # The one that was lost has left a note of its applications; this one leads once it has read it.
        self._wait_for("master", r"(I have been elected leader)")

    def start_worker(self, number: int) -> None:
        self._start_worker(number)
        self._await_worker(number)

    def _start_worker(self, number: int) -> None:
        home = self._folder / f"worker-{number}"
        size = ("--cores", "1", "--memory", "1g", "--work-dir", str(home))
        name = f"worker-{number}"
        self._start(name, "worker.Worker", _host(number), "0", *size, self.url)

    def _await_worker(self, number: int) -> None:
        self._wait_for(f"worker-{number}", r"(Successfully registered) with master")

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def kill_executors(self, number: int) -> None:
        """What runs on a host beside its worker: executors, and their Python, which holds their working folder."""
        home = str(self._folder / f"worker-{number}") + "/"
        group = os.getpgid(0)
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if (
                    entry.name.isdigit()
                    and os.getpgid(int(entry.name)) == group
                    and str((entry / "cwd").readlink()).startswith(home)
                ):
                    os.kill(int(entry.name), signal.SIGKILL)

    def obey(self, words: list[str]) -> None:
        match words:
            case ["kill", "master"]:
                self.kill("master")
            case ["kill", "worker", number]:
                self.kill(f"worker-{number}")
                self.kill_executors(int(number))
            case ["kill", "executor", number]:
                self.kill_executors(int(number))
            case ["start", "master"]:
                self.start_master()
            case ["start", "worker", number]:
                self.start_worker(int(number))
            case _:
                raise AssertionError(words)

    def _start(self, name: str, kind: str, host: str, port: str, *arguments: str) -> None:
        """Start one of Spark's services; it logs to a file of its own."""
        self._starts += 1
        log = self._folder / f"{name}.log"
        environment = {**os.environ, "SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"}
        settings = {
            # The master's REST server would take a fixed port.
            "spark.master.rest.enabled": "false",
            "spark.deploy.recoveryMode": "FILESYSTEM",
            "spark.deploy.recoveryDirectory": str(self._folder / "recovery"),
            # How soon a host that is silent is taken for lost, and how often one looks for its master.
            "spark.worker.timeout": "6",
        }
        options = [environment.get("SPARK_SUBMIT_OPTS", "")]
        options += [f"-D{key}={value}" for key, value in settings.items()]
        environment["SPARK_DAEMON_JAVA_OPTS"] = " ".join(options)
        with log.open("w") as file:
            self._running[name] = subprocess.Popen(
                [
                    str(_pyspark() / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{kind}",
                    *("--host", host, "--port", port, "--webui-port", "0"),
                    *arguments,
                ],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def _wait_for(self, name: str, pattern: str) -> str:
        log, words = self._folder / f"{name}.log", re.compile(pattern)
        found = until(
            lambda: words.search(log.read_text()), _SECONDS, lambda: f"no {pattern!r} in {log}"
        )
        assert found is not None
        return found.group(1)


def _serve(folder: Path, workers: int) -> None:
    cluster = _Cluster(folder, workers)
    cluster.start_all()
    print(cluster.url, flush=True)
    for line in sys.stdin:
        cluster.obey(line.split())
        print("done", flush=True)


if __name__ == "__main__":
    try:
        _serve(Path(sys.argv[1]), int(sys.argv[2]))
    finally:
        # Executors are in the same group; their Python workers end with them.
        os.killpg(0, signal.SIGKILL)
