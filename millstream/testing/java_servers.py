"""Servers that are written in Java, for tests: their jars from Maven, and a process that does not outlive this one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from millstream.errors import RuntimeUnusable

__all__ = ["JavaProcess", "fetched_jars", "free_ports", "java_command", "missing_tools", "tail"]


def java_command() -> str | None:
    """The Java to run, None if there is none."""
    home = os.environ.get("JAVA_HOME")
    own = Path(home, "bin", "java") if home else None
    return str(own) if own is not None and own.exists() else shutil.which("java")


def missing_tools(name: str, version: str) -> str | None:
    """What a machine lacks to run a server, or None. Jars that are cached need no Maven."""
    if java_command() is None:
        return "Java is missing: install a JDK or JRE of version 17 or later, or set JAVA_HOME"
    if shutil.which("mvn") is None and not _libraries(name, version).is_dir():
        return f"Maven is missing, which fetches {name}'s jars: install it (apt-get install maven, brew install maven)"
    return None


def fetched_jars(name: str, version: str, artifacts: Mapping[str, str]) -> Path:
    """The folder of a server's jars; Maven fetches them the first time. `artifacts` are group:name to version, the
    server's own first."""
    missing = missing_tools(name, version)
    if missing is not None:
        msg = f"{name} cannot be started on this machine"
        raise RuntimeUnusable(msg, hint=missing, version=version)
    found = _libraries(name, version)
    if found.is_dir():
        return found
    found.parent.mkdir(parents=True, exist_ok=True)
    with (found.parent / "lock").open("w") as lock:
        # Tests in several processes may want them at the same time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.is_dir():
            _fetch(name, artifacts, found)
    return found


def _fetch(name: str, artifacts: Mapping[str, str], target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        pom = Path(folder, "pom.xml")
        pom.write_text(_pom(name, artifacts))
        jars = Path(folder, "libs")
        done = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
             f"-DoutputDirectory={jars}", "-DincludeScope=runtime"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        wanted, version = next(iter(artifacts.items()))
        if done.returncode != 0 or not any(jars.glob(f"{wanted.rpartition(':')[2]}-*.jar")):
            raise RuntimeUnusable(
                f"Maven could not fetch {name}'s jars",
                said=tail(done.stdout + done.stderr),
                hint="look at Maven's settings (proxy, mirror), and try: mvn dependency:get "
                f"-Dartifact={wanted}:{version}",
            )
        # All of them, or none.
        jars.rename(target)


def _pom(name: str, artifacts: Mapping[str, str]) -> str:
    needed = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>\n"
        for (group, _, artifact), version in (
            (key.partition(":"), version) for key, version in artifacts.items()
        )
    )
    return f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>millstream</groupId><artifactId>{name.lower()}</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{needed}</dependencies>
</project>
"""


def _libraries(name: str, version: str) -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "millstream", f"{name.lower()}-{version}", "libs")


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    held = [socket.socket() for _ in range(count)]
    try:
        for opened in held:
            opened.bind(("127.0.0.1", 0))
        return [opened.getsockname()[1] for opened in held]
    finally:
        for opened in held:
            opened.close()


def tail(text: str) -> str:
    """The last lines of a log."""
    return "\n".join(text.strip().splitlines()[-15:])


class JavaProcess:
    """A process that ends with this one, whatever ends that."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        with log.open("ab") as output:
            # A session of its own: Ctrl-C at the terminal is for the program that uses the server.
            self._java = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        # The pipe ends with this process, also if that is killed; then the server is.
        self._guard = subprocess.Popen(
            [
                "/bin/sh",
                "-c",
                'cat >/dev/null; kill -9 "$1" 2>/dev/null',
                "sh",
                str(self._java.pid),
            ],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._java.pid

    @property
    def running(self) -> bool:
        """False once it has ended."""
        return self._java.poll() is None

    def wait(self, seconds: float) -> None:
        """Wait until it has ended by itself."""
        self._java.wait(seconds)

    def listens(self, port: int, seconds: float) -> bool:
        """Wait until it answers at a port; False if it ends or does not in that time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.running:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return True
            time.sleep(0.05)
        return False

    def end(self, how: signal.Signals = signal.SIGKILL, seconds: float = 30.0) -> None:
        """End the process by a signal, and if that does not help in time, by SIGKILL."""
        self._guard.kill()
        self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        self._java.send_signal(how)
        try:
            self._java.wait(seconds)
        except subprocess.TimeoutExpired:
            self._java.kill()
            self._java.wait()
