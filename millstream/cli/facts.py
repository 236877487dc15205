"""The facts `millstream doctor` judges: what this machine says about itself.

Nothing here decides whether a fact is good; that is `millstream.cli.checks`. A fact that cannot be
learned is None, never an exception.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path

from millstream.cli.checks import Java, Package

__all__ = [
    "available_memory",
    "find_java",
    "free_disk",
    "installed",
    "loopback_port",
    "package",
    "python_version",
    "resolve",
    "spark_version",
]

_COMMAND_SECONDS = 20


def _output(*command: str) -> str | None:
    """What a command prints, on either stream; None when it does not run."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None


def _ask_java(executable: str, found_by: str) -> Java | None:
    text = _output(executable, "-XshowSettings:properties", "-version") or ""
    version = re.search(r"^\s*java\.version = (\S+)", text, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+)$", text, re.MULTILINE)
    return Java(home.group(1), version.group(1), found_by) if version and home else None


def find_java(java_home: str | None) -> Java | None:
    """The Java that Spark would take; failing that, one that could be pointed to.

    Spark takes JAVA_HOME without looking further, so neither does this when it is set.
    """
    if java_home:
        return _ask_java(str(Path(java_home) / "bin" / "java"), "JAVA_HOME")
    on_path = shutil.which("java")
    if on_path and (java := _ask_java(on_path, "PATH")):
        return java
    for executable in sorted(Path("/usr/lib/jvm").glob("*/bin/java")):
        if java := _ask_java(str(executable), "/usr/lib/jvm"):
            return java
    return None


def python_version(executable: str) -> tuple[int, ...] | None:
    """The version of another Python, by running it."""
    text = _output(executable, "-c", "import sys; print(*sys.version_info[:3])")
    try:
        return tuple(int(part) for part in text.split()) if text else None
    except ValueError:
        return None


def installed(distribution: str) -> str | None:
    """The installed version of a distribution, without importing it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def package(name: str) -> Package:
    """The version of a distribution whose module has the same name, and whether it imports."""
    version = installed(name)
    if version is None:
        return Package(None)
    try:
        import_module(name.replace("-", "_"))
    except Exception as error:
        return Package(version, f"{type(error).__name__}: {error}".splitlines()[0])
    return Package(version)


def spark_version(home: str) -> str | None:
    """The version of the Spark unpacked in a folder, by the name of its core library."""
    for jar in Path(home).glob("jars/spark-core_*.jar"):
        if match := re.search(r"spark-core_[\d.]+-(.+)\.jar$", jar.name):
            return match.group(1)
    return None


def loopback_port() -> tuple[int | None, str | None]:
    """A port of 127.0.0.1 that took a connection just now; or None and the reason."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port: int = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                return port, None
    except OSError as error:
        return None, str(error)


def resolve(hostname: str) -> str | None:
    """The address of a host name."""
    try:
        return socket.gethostbyname(hostname)
    except OSError:
        return None


def free_disk(folder: str | None = None) -> tuple[str, int | None, bool]:
    """The temporary folder, its free bytes, and whether a file could be written there."""
    try:
        folder = folder or tempfile.gettempdir()
    except FileNotFoundError:
        # Python found no folder that it may write to.
        return os.environ.get("TMPDIR", "/tmp"), None, False
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix="millstream-doctor-"):
            return folder, shutil.disk_usage(folder).free, True
    except OSError:
        return folder, None, False


def _memory_limits() -> Iterator[int]:
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024
    with contextlib.suppress(OSError, ValueError):
        # In a container the group's limit counts, not the machine's memory; "max" is no number.
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text(encoding="ascii"))
        used = int((group / "memory.current").read_text(encoding="ascii"))
        # Cached files count as used but are given back on demand.
        cached = re.search(
            r"^inactive_file (\d+)", (group / "memory.stat").read_text("ascii"), re.MULTILINE
        )
        yield max(0, limit - used + (int(cached.group(1)) if cached else 0))


def available_memory() -> int | None:
    """Bytes this process could still take, as far as the system says."""
    return min(_memory_limits(), default=None)
