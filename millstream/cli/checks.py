"""What `millstream doctor` checks: each check is a pure function from facts to a finding.

The facts are gathered in `millstream.cli.facts`; here they are only judged, so every verdict can be
tested on any machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Finding",
    "Java",
    "Package",
    "check_disk",
    "check_extra",
    "check_hostname",
    "check_java",
    "check_loopback",
    "check_memory",
    "check_package",
    "check_python",
    "check_slots",
    "check_spark_home",
    "check_spark_run",
    "check_worker_python",
    "release",
]

Status = Literal["ok", "warn", "fail"]

MINIMUM_JAVA = 17
# The Java releases that Spark's own documentation names; others may work.
NAMED_JAVA = (17, 21, 25)
MINIMUM_PYTHON = (3, 11)
MINIMUM_DISK = 1 << 30
# Spark's driver takes a heap of 1 GiB by default, and each Python worker its share besides.
COMFORTABLE_MEMORY = 2 << 30

_JAVA_FIX = "sudo apt-get install -y openjdk-17-jre-headless   # or: export JAVA_HOME=/path/to/jdk"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `fix` is a command to type; empty when there is nothing to do."""

    name: str
    status: Status
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs: its home, its full version, and how it was found."""

    home: str
    version: str
    found_by: str


@dataclass(frozen=True, slots=True)
class Package:
    """An installed distribution: its version, or None; and why its import fails, if it does."""

    version: str | None
    import_error: str | None = None


def release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, for comparing.

    >>> release("4.3.0.dev1"), release("25-ea"), release("1.8.0_392")
    ((4, 3, 0), (25,), (1, 8, 0))
    """
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def _java_major(version: str) -> int:
    numbers = release(version) or (0,)
    # Until Java 8 the major version came second: 1.8.0.
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def check_java(java: Java | None, java_home: str | None = None) -> Finding:
    """Java is there and new enough. `java_home` is what the variable JAVA_HOME says.

    >>> check_java(Java("/usr/lib/jvm/java-17", "17.0.15", "PATH")).found
    'Java 17.0.15 in /usr/lib/jvm/java-17 (by PATH)'
    """
    if java is None:
        where = f"no Java runs from JAVA_HOME={java_home}" if java_home else "no Java found"
        return Finding("Java", "fail", where, _JAVA_FIX)
    finding = f"Java {java.version} in {java.home} (by {java.found_by})"
    major = _java_major(java.version)
    if major < MINIMUM_JAVA:
        finding += f"; {MINIMUM_JAVA} or newer is needed"
        return Finding("Java", "fail", finding, _JAVA_FIX)
    if java.found_by == "/usr/lib/jvm":
        # Spark looks at JAVA_HOME and at PATH, and nowhere else.
        finding += "; Spark will not look there by itself"
        return Finding("Java", "warn", finding, f"export JAVA_HOME={java.home}")
    if major not in NAMED_JAVA:
        named = ", ".join(map(str, NAMED_JAVA))
        return Finding("Java", "warn", f"{finding}; Spark names {named}", _JAVA_FIX)
    return Finding("Java", "ok", finding)


def check_python(version: tuple[int, ...], executable: str, millstream: str) -> Finding:
    """This Python is new enough. `millstream` is what pip is to be given to install it.

    >>> check_python((3, 10, 2), "/usr/bin/python3", "millstream").status
    'fail'
    """
    finding = f"Python {'.'.join(map(str, version[:3]))} ({executable})"
    if version[:2] < MINIMUM_PYTHON:
        needed = ".".join(map(str, MINIMUM_PYTHON))
        fix = f"python{needed} -m venv .venv && .venv/bin/pip install '{millstream}'"
        return Finding("Python", "fail", f"{finding}; {needed} or newer is needed", fix)
    return Finding("Python", "ok", finding)


def check_worker_python(
    driver: tuple[int, ...], setting: str | None, worker: tuple[int, ...] | None
) -> Finding:
    """The workers' Python, if PYSPARK_PYTHON sets one, has the driver's minor version.

    Spark refuses to run a job when they differ, because pickled code does not travel.

    >>> check_worker_python((3, 11), "python3.12", (3, 12)).fix
    'unset PYSPARK_PYTHON'
    """
    name = "Python of the workers"
    if setting is None:
        return Finding(name, "ok", "PYSPARK_PYTHON is not set: the same Python")
    if worker is None:
        finding = f"PYSPARK_PYTHON={setting} does not run"
        return Finding(name, "fail", finding, "unset PYSPARK_PYTHON")
    finding = f"PYSPARK_PYTHON={setting} is Python {'.'.join(map(str, worker[:3]))}"
    if worker[:2] != driver[:2]:
        finding += f", the driver {'.'.join(map(str, driver[:2]))}"
        return Finding(name, "fail", finding, "unset PYSPARK_PYTHON")
    return Finding(name, "ok", finding)


def check_package(
    name: str,
    package: Package,
    *,
    minimum: str,
    below: str | None = None,
    untested_from: str | None = None,
    why: str = "",
) -> Finding:
    """A package that must be there, import, and be in its range.

    From `below` on it fails; from `untested_from` on it may work, and is warned of.

    >>> check_package("pyspark", Package("4.2.1"), minimum="4.3", below="4.4").fix
    "pip install 'pyspark>=4.3,<4.4'"
    """
    limit = below or untested_from
    wanted = f"{name}>={minimum}" + (f",<{limit}" if limit else "")
    fix = f"pip install '{wanted}'"
    reason = f" ({why})" if why else ""
    if package.version is None:
        return Finding(name, "fail", f"not installed{reason}", fix)
    if package.import_error is not None:
        finding = f"{package.version}, and its import fails: {package.import_error}"
        return Finding(name, "fail", finding, f"pip install --force-reinstall '{wanted}'")
    version = release(package.version)
    if version < release(minimum) or (below is not None and version >= release(below)):
        finding = f"{package.version}; {wanted.removeprefix(name)} is needed{reason}"
        return Finding(name, "fail", finding, fix)
    if untested_from is not None and version >= release(untested_from):
        finding = f"{package.version}; from {untested_from} on it is not fully supported{reason}"
        return Finding(name, "warn", finding, fix)
    return Finding(name, "ok", package.version)


def check_extra(
    extra: str, distribution: str, version: str | None, brings: Sequence[str] = ()
) -> Finding:
    """An optional package. Its absence is no fault, but the report says how to get it: by what the extra brings.

    >>> check_extra("s3", "s3fs", None, ["botocore>=1.35", "s3fs>=2024.10"]).fix
    "pip install 'botocore>=1.35' 's3fs>=2024.10'"
    """
    name = f"extra {extra}"
    if version is None:
        fix = " ".join(["pip install", *(f"'{wanted}'" for wanted in brings or [distribution])])
        return Finding(name, "ok", f"{distribution} is not installed (optional)", fix)
    return Finding(name, "ok", f"{distribution} {version}")


def check_spark_home(setting: str | None, version: str | None, pyspark: str | None) -> Finding:
    """SPARK_HOME, if set, holds the same Spark as the installed PySpark.

    >>> check_spark_home("/opt/spark", "3.5.1", "4.3.0").status
    'fail'
    """
    name = "SPARK_HOME"
    if setting is None:
        return Finding(name, "ok", "not set: the Spark inside PySpark is used")
    if version is None:
        return Finding(name, "fail", f"{setting} holds no Spark", "unset SPARK_HOME")
    if pyspark is not None and release(version)[:3] != release(pyspark)[:3]:
        finding = f"{setting} holds Spark {version}, PySpark is {pyspark}"
        return Finding(name, "fail", finding, "unset SPARK_HOME")
    return Finding(name, "ok", f"{setting} (Spark {version})")


def check_loopback(port: int | None, error: str | None = None) -> Finding:
    """A port of 127.0.0.1 can be bound and reached: driver and workers talk over it.

    >>> check_loopback(40123).found
    '127.0.0.1:40123 could be bound and reached'
    """
    if port is None:
        fix = "sudo ip link set lo up   # and let no firewall rule drop 127.0.0.1"
        return Finding("loopback", "fail", f"127.0.0.1 cannot be used: {error}", fix)
    return Finding("loopback", "ok", f"127.0.0.1:{port} could be bound and reached")


def check_hostname(hostname: str, address: str | None, spark_local_ip: str | None) -> Finding:
    """The machine's own name resolves; else Spark's driver cannot name its address.

    >>> check_hostname("box", None, None).fix
    'export SPARK_LOCAL_IP=127.0.0.1'
    """
    if spark_local_ip is not None:
        return Finding("host name", "ok", f"SPARK_LOCAL_IP={spark_local_ip} is used instead")
    if address is None:
        finding = f"{hostname} does not resolve"
        return Finding("host name", "warn", finding, "export SPARK_LOCAL_IP=127.0.0.1")
    return Finding("host name", "ok", f"{hostname} is {address}")


def _gib(amount: int) -> str:
    return f"{amount / (1 << 30):.1f} GiB"


def check_disk(folder: str, free: int | None, writable: bool) -> Finding:
    """The temporary folder can be written and has room for shuffles and snapshots.

    >>> check_disk("/tmp", 5 << 30, True).found
    '5.0 GiB free in /tmp'
    """
    name = "temporary disk"
    fix = "export TMPDIR=/path/with/room SPARK_LOCAL_DIRS=/path/with/room"
    if free is None or not writable:
        return Finding(name, "fail", f"{folder} cannot be written", fix)
    finding = f"{_gib(free)} free in {folder}"
    if free < MINIMUM_DISK:
        return Finding(name, "fail", f"{finding}; {_gib(MINIMUM_DISK)} is needed", fix)
    return Finding(name, "ok", finding)


def check_memory(available: int | None) -> Finding:
    """There is memory for a driver and its workers.

    >>> check_memory(512 << 20).status
    'warn'
    """
    if available is None:
        return Finding("memory", "ok", "unknown on this system")
    finding = f"{_gib(available)} available"
    if available < COMFORTABLE_MEMORY:
        finding += f"; {_gib(COMFORTABLE_MEMORY)} is comfortable"
        fix = "millstream run -p 1 job.py   # fewer workers; or end other programs"
        return Finding("memory", "warn", finding, fix)
    return Finding("memory", "ok", finding)


def check_slots(*, usable: bool) -> Finding:
    """Subtasks can stay in their processes.

    >>> check_slots(usable=True).found
    'a subtask stays in its Python process (millstream.slots.enabled)'
    """
    name = "slots"
    if not usable:
        found = "cannot be used here, for want of what the system, PySpark or the workers' Python would need"
        return Finding(name, "ok", found)
    return Finding(name, "ok", "a subtask stays in its Python process (millstream.slots.enabled)")


def check_spark_run(seconds: float | None, error: str | None = None) -> Finding:
    """A real local Spark ran a small Python job.

    >>> check_spark_run(4.21).found
    'a local session ran a mapInArrow job in 4.2 s'
    """
    if seconds is None:
        fix = "put the failures above right first; then: millstream doctor --spark"
        return Finding("Spark job", "fail", error or "it failed without a word", fix)
    return Finding("Spark job", "ok", f"a local session ran a mapInArrow job in {seconds:.1f} s")


def check_pipelined(latencies: Sequence[float], error: str | None = None) -> Finding:
    """A job ran in pipelined mode; how long its records took, in milliseconds.

    >>> check_pipelined([2.0, 3.0, 40.0]).found
    'records took 3.0 ms from source to keyed operator at the median, 40.0 ms at most'
    """
    name = "pipelined mode"
    if error is not None or not latencies:
        fix = "use execution.mode: micro-batch, or see docs/pipelined.md"
        return Finding(name, "fail", error or "no record came through", fix)
    median = sorted(latencies)[len(latencies) // 2]
    found = f"records took {median:.1f} ms from source to keyed operator at the median, {max(latencies):.1f} ms at most"
    return Finding(name, "ok", found)
