"""One start of the checker job in a process of its own: what it publishes, how it is killed, what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from tests.chaos import checker
from tests.integration.processes import MARK, ROOT, marked, quick_environment
from tests.waiting import eventually

__all__ = ["Driver", "archive_classes"]


class Driver:
    """A driver process with its JVM and its Python workers."""

    def __init__(
        self,
        folder: Path,
        number: int,
        *,
        module: str,
        parallelism: int,
        backend: str = "hashmap",
        savepoint: str | None = None,
        point: str | None = None,
        java: str = "",
        options: Mapping[str, str] | None = None,
        interval: int = 100,
        planted: str = "",
    ) -> None:
        """`module` is the program, `backend` that of its state. `point`, as in "before manifest:3", is where the driver
        kills itself; without one, workers can be told to do so with `arm`. `java` is more options for the JVM,
        `options` more of the job's configuration, `interval` how often it takes checkpoints, in milliseconds.
        `planted` is a bug that the driver and its workers have."""
        self.folder = folder
        self.job = folder / "checkpoints" / checker.JOB
        self.mark = uuid.uuid4().hex
        self.armed = folder / f"armed-{number}"
        self.struck = folder / f"struck-{number}"
        self._errors = folder / f"stderr-{number}"
        temporary = folder / "tmp"
        temporary.mkdir(exist_ok=True)
        command = [sys.executable, "-m", module, str(folder)]
        command += ["--parallelism", str(parallelism), "--backend", backend]
        command += ["--interval", str(interval)]
        for key, value in (options or {}).items():
            command += ["-D", f"{key}={value}"]
        if savepoint is not None:
            command += ["-s", savepoint]
        environment = quick_environment(
            TMPDIR=str(temporary),
            MILLSTREAM_FAILPOINT=point or f"@{self.armed}",
            MILLSTREAM_FAILPOINT_ONCE=str(self.struck),
            MILLSTREAM_FAILPOINT_ROLE="driver" if point else "worker",
        )
        environment["SPARK_SUBMIT_OPTS"] += f" {java}"
        if planted:
            environment["MILLSTREAM_PLANTED"] = planted
            path = [str(Path(__file__).with_name("planting")), str(ROOT)]
            environment["PYTHONPATH"] = os.pathsep.join([*path, os.environ.get("PYTHONPATH", "")])
        self.started = time.time()
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**environment, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                start_new_session=True,
            )

    # -- how it does ------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def errors(self) -> str:
        return self._errors.read_text()[-4000:]

    @property
    def said(self) -> str:
        """All that it has printed."""
        return self._errors.read_text()

    def latest(self) -> int:
        """The newest checkpoint, -1 if there is none."""
        try:
            names = os.listdir(self.job)
        except FileNotFoundError:
            return -1
        epochs = [int(name[4:]) for name in names if name.startswith("chk-")]
        # Its folder comes before its manifest.
        return max(
            (n for n in epochs if (self.job / f"chk-{n}" / "_metadata").exists()), default=-1
        )

    def wait_for(self, epoch: int, seconds: float) -> bool:
        """Wait for a checkpoint, as long as the driver lives."""
        eventually(lambda: self.latest() >= epoch or not self.running, seconds)
        return self.latest() >= epoch

    def end(self, seconds: float) -> None:
        """Wait for its end; whoever asks next sees whether it has come."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def ask(self, action: str, savepoints: Path) -> None:
        """Ask for a savepoint ("savepoint"), or to stop with one ("stop")."""
        control = self.job / "control"
        control.mkdir(parents=True, exist_ok=True)
        hidden = control / f".{uuid.uuid4().hex}"
        owner = json.loads((self.job / "lease.json").read_text())["owner"]
        request = {
            "action": action, "owner": owner, "asked_at": time.time(), "valid_for": 600.0,
            "path": str(savepoints),
        }  # fmt: skip
        hidden.write_text(json.dumps(request))
        hidden.rename(control / f"{uuid.uuid4().hex}.json")

    # -- its end ----------------------------------------------------------------------------------------

    def kill(self) -> bool:
        """SIGKILL to the driver, and to nothing else: its JVM must see for itself that it is gone."""
        if not self.running:
            return False
        self.process.kill()
        self.process.wait(30)
        return True

    def arm(self, place: str, count: int) -> None:
        """Have the next worker killed that comes to a place for the n-th time."""
        hidden = self.armed.with_name(f".{self.armed.name}")
        hidden.write_text(f"{place}:{count}")
        self.struck.unlink(missing_ok=True)
        hidden.rename(self.armed)

    def disarm(self) -> None:
        self.armed.unlink(missing_ok=True)

    def kill_worker(self, rng: random.Random, *, daemon: bool) -> bool:
        """SIGKILL to a Python worker, or to the process that makes them; False if there is none."""
        pythons = [
            pid for pid, command in self.family().items() if ".daemon pyspark.worker" in command
        ]
        wanted = [pid for pid in pythons if (_parent(pid) in pythons) is not daemon]
        if not wanted:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(wanted), signal.SIGKILL)
            return True
        return False

    def family(self) -> dict[int, str]:
        """What there is of it: the driver, the JVM, the workers."""
        return marked(self.mark)

    def remove(self) -> None:
        """Kill whatever is left."""
        for pid in self.family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(30)


def archive_classes(folder: Path, module: str) -> str:
    """Options with which a JVM starts in half the time: they name an archive of the classes that a job needs."""
    archive = folder / "classes.jsa"
    work = folder / "archive"
    work.mkdir()
    (work / "stop").touch()
    writing = f"-Xlog:disable -XX:ArchiveClassesAtExit={archive}"
    driver = Driver(work, 0, module=module, parallelism=2, java=writing)
    try:
        driver.end(120)
        # The JVM writes it on its way out.
        eventually(lambda: not driver.family(), 120)
    finally:
        driver.remove()
    return f"-Xlog:disable -XX:SharedArchiveFile={archive}"


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])
