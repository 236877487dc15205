"""Programs in processes of their own: what they print, how they end, and what is left of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

from tests.waiting import eventually

__all__ = [
    "MARK",
    "MILLSTREAM",
    "QUICK_JAVA",
    "ROOT",
    "Program",
    "marked",
    "quick_environment",
]

ROOT = Path(__file__).parents[2]
MILLSTREAM = [sys.executable, "-m", "millstream"]

# A JVM that lives for seconds starts in two thirds of the time if it never optimizes.
# No archive of classes is written for these: it would keep a Java alive for seconds after its program.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
MARK = "MILLSTREAM_TEST_MARK"


def quick_environment(**more: str) -> dict[str, str]:
    """This process's environment for programs that start Spark."""
    quick = {"SPARK_LAUNCHER_OPTS": QUICK_JAVA, "SPARK_SUBMIT_OPTS": QUICK_JAVA}
    # What a session in this process has set must not reach the programs.
    own = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYSPARK_", "SPARK_"))
    }
    return {**own, **quick, **more}


def marked(mark: str) -> dict[int, str]:
    """The processes that bear a mark in their environment, with their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        # Processes come and go, and not all are ours to look at.
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
    return found


def _hear_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Program:
    """A process and whatever it starts, all of which bear a mark in their environment.

    They get a temporary folder of their own, so that what they leave there can be seen.
    """

    def __init__(self, command: list[str], folder: Path, **environment: str) -> None:
        self.mark = uuid.uuid4().hex
        self.temporary = folder / f"tmp-{self.mark[:8]}"
        self.temporary.mkdir()
        self.lines: list[str] = []
        self._errors = folder / f"stderr-{self.mark[:8]}"
        env = quick_environment(TMPDIR=str(self.temporary), **environment)
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env={**env, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                # A shell starts what runs in the background deaf to Ctrl-C, and children inherit that.
                preexec_fn=_hear_ctrl_c,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def errors(self) -> str:
        """What it has written to standard error so far."""
        return self._errors.read_text()

    def wait_for(self, text: str, seconds: float = 100) -> None:
        """Wait until it has printed a line that contains a text."""

        def seen() -> bool:
            return any(text in line for line in self.lines)

        eventually(lambda: seen() or self.process.poll() is not None, seconds)
        assert seen(), f"{text!r} is not in {self.lines} and the errors are:\n{self.errors}"

    def end(self, seconds: float = 100) -> int:
        """Wait for its end; the exit code."""
        code = self.process.wait(seconds)
        self._reader.join(seconds)
        return code

    def family(self) -> dict[int, str]:
        """It and what it has started: the processes there are, with their command lines."""
        return marked(self.mark)

    def assert_gone(self, seconds: float = 30) -> None:
        """Nothing of it is left, or soon will be."""
        assert eventually(lambda: not self.family(), seconds), self.family()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(30)
        if self.process.stdout is not None:
            self._reader.join(30)
            self.process.stdout.close()
