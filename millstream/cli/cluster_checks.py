"""What `millstream doctor` checks of a cluster: each check is a pure function from facts to a finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from millstream.cli.checks import Finding

__all__ = [
    "Executor",
    "check_clocks",
    "check_executors",
    "check_folder",
    "check_master",
    "check_packages",
    "check_pythons",
    "check_security",
]

# Processing time is the driver's; logs and timestamps of records are the hosts' own.
_SKEW_WARNS = 1.0
_SKEW_FAILS = 60.0
_SHIP = "millstream run --ship-environment ...   # or on each host: pip install millstream=={}"
_SECURE = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "true",
}


class Executor(Protocol):
    """What is asked of an executor's facts (`millstream.spark.executors.ExecutorFacts`)."""

    @property
    def name(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def python(self) -> str: ...
    @property
    def version(self) -> tuple[int, ...]: ...
    @property
    def skew(self) -> float: ...
    @property
    def missing(self) -> Mapping[str, str]: ...
    @property
    def versions(self) -> Mapping[str, str]: ...
    @property
    def folder_problem(self) -> str | None: ...
    @property
    def wrote(self) -> str | None: ...


def check_master(master: str, problem: str | None = None, fix: str = "") -> Finding:
    """The master takes an application.

    >>> check_master("spark://a:7077").found
    'spark://a:7077 has taken an application'
    """
    if problem is not None:
        return Finding("master", "fail", problem, fix)
    return Finding("master", "ok", f"{master} has taken an application")


def check_executors(
    hosts: Sequence[str], slots: int, driver: str, problem: str | None = None
) -> Finding:
    """There are executors, which so have reached the driver, and slots on them.

    >>> check_executors(["b", "a"], 4, "10.0.0.1:4041").found
    '2 executors with 4 slots on 2 hosts (a, b); they reach the driver at 10.0.0.1:4041'
    """
    if not hosts:
        fix = (
            "free slots or ask for less (-Dspark.executor.memory=512m -Dspark.cores.max=1); if executors start and end "
            "again, they do not reach this machine: -Dspark.driver.host=ADDRESS and, through a firewall, "
            "-Dspark.driver.port=PORT -Dspark.blockManager.port=PORT"
        )
        found = problem or f"no executor has come; the driver is at {driver}"
        return Finding("executors", "fail", found, fix)
    places = sorted(set(hosts))
    shown = ", ".join(places[:6]) + (", ..." if len(places) > 6 else "")
    found = f"{len(hosts)} executors with {slots} slots on {len(places)} hosts ({shown}); "
    return Finding("executors", "ok", found + f"they reach the driver at {driver}")


def check_pythons(
    driver: tuple[int, ...], executors: Sequence[Executor], unseen: int = 0
) -> Finding:
    """Every executor's Python has the driver's minor version."""
    name = "Python there"
    others = [found for found in executors if found.version[:2] != driver[:2]]
    if others:
        told = "; ".join(
            f"{found.name}: {found.python} is {_dots(found.version)}" for found in others
        )
        fix = f"-Dspark.pyspark.python=/path/to/python{_dots(driver[:2])}"
        return Finding(name, "fail", f"{told}; the driver is {_dots(driver)}", fix)
    kinds = sorted({f"{found.python} ({_dots(found.version)})" for found in executors})
    if unseen:
        fix = "run it again when they are free"
        return Finding(
            name, "warn", f"{unseen} executors have not answered; {', '.join(kinds)}", fix
        )
    return Finding(name, "ok", ", ".join(kinds))


def check_packages(own: str, executors: Sequence[Executor]) -> Finding:
    """Every executor has what a worker imports, and Millstream in the driver's version."""
    name = "packages there"
    told = []
    for found in executors:
        if found.missing:
            told.append(f"{found.name} has no {', '.join(found.missing)} ({found.python})")
        elif found.versions.get("millstream") != own:
            told.append(
                f"{found.name} has Millstream {found.versions.get('millstream')}, not {own}"
            )
    if told:
        return Finding(name, "fail", "; ".join(told), _SHIP.format(own))
    kinds = {
        f"{package} {version}" for found in executors for package, version in found.versions.items()
    }
    several = sorted(kinds, key=str.lower)
    if len(several) > len({kind.partition(" ")[0] for kind in several}):
        fix = (
            "the same versions on all hosts: pip install -r requirements.txt, or --ship-environment"
        )
        return Finding(name, "warn", f"hosts differ: {', '.join(several)}", fix)
    return Finding(name, "ok", ", ".join(several))


def check_clocks(executors: Sequence[Executor]) -> Finding:
    """The clocks of driver and executors agree."""
    name = "clocks"
    if not executors:
        return Finding(name, "warn", "no executor could be asked")
    worst = max(executors, key=lambda found: found.skew)
    found = f"{worst.name} is off the driver's clock by at least {worst.skew:.1f} s"
    if worst.skew < _SKEW_WARNS:
        return Finding(name, "ok", f"less than {_SKEW_WARNS:g} s apart")
    status = "fail" if worst.skew >= _SKEW_FAILS else "warn"
    return Finding(
        name, "fail" if status == "fail" else "warn", found, "sudo systemctl enable --now chrony"
    )


def check_folder(
    folder: str | None,
    executors: Sequence[Executor],
    unread: Sequence[str],
    problem: str | None = None,
) -> Finding:
    """What the driver writes to the folder of the checkpoints every executor reads, and the other way round. `unread`
    are the executors whose files the driver has not found."""
    name = "checkpoint folder"
    if folder is None:
        fix = (
            "millstream doctor -Dspark.master=... -Dexecution.checkpointing.dir=/shared/checkpoints"
        )
        found = "not named: jobs with more than one epoch need one that every host sees"
        return Finding(name, "warn", found, fix)
    fix = "mount the same folder under the same path on every host, writable by the jobs' user; or use s3://"
    if problem is not None:
        return Finding(name, "fail", f"the driver cannot use {folder}: {problem}", fix)
    told = [f"{found.name}: {found.folder_problem}" for found in executors if found.folder_problem]
    told += [f"{executor} wrote a file that the driver does not see" for executor in unread]
    if told:
        return Finding(name, "fail", f"{folder}: {'; '.join(told)}", fix)
    return Finding(name, "ok", f"{folder} is seen by the driver and {len(executors)} executors")


def check_security(settings: Mapping[str, str]) -> Finding:
    """Whoever reaches the ports of an application can run code in it, unless it authenticates."""
    name = "security"
    left = {key: value for key, value in _SECURE.items() if settings.get(key) != value}
    if not left:
        return Finding(name, "ok", "authenticated and encrypted")
    found = f"not set: {', '.join(left)}; whoever reaches the driver's or an executor's ports can run code there"
    fix = " ".join(f"-D{key}={value}" for key, value in left.items())
    if "spark.authenticate" in left:
        fix += "   # and the same spark.authenticate.secret for master, workers and jobs (spark-defaults.conf)"
    return Finding(name, "warn", found, fix)


def _dots(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
