"""The doctor's verdicts, on facts of every kind of machine."""

from __future__ import annotations

import pytest

from millstream.cli import checks
from millstream.cli.checks import Finding, Java, Package

GIB = 1 << 30


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("17.0.15", (17, 0, 15)), ("25-ea", (25,)), ("1.8.0_392", (1, 8, 0)), ("none", ())],
)
def test_release_is_the_leading_numbers(version: str, numbers: tuple[int, ...]) -> None:
    assert checks.release(version) == numbers


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("1.8.0_392", "fail"),
        ("11.0.21", "fail"),
        ("17.0.15", "ok"),
        ("21.0.2", "ok"),
        ("25", "ok"),
        ("26-ea", "warn"),
        ("?", "fail"),
    ],
)
def test_java_by_version(version: str, status: str) -> None:
    finding = checks.check_java(Java("/jdk", version, "JAVA_HOME"))
    assert finding.status == status
    assert version in finding.found
    assert "/jdk" in finding.found
    assert bool(finding.fix) == (status != "ok")


def test_missing_java_says_how_to_install_one() -> None:
    finding = checks.check_java(None)
    assert finding.status == "fail"
    assert finding.fix.startswith("sudo apt-get install")


def test_a_wrong_java_home_is_named() -> None:
    assert "JAVA_HOME=/gone" in checks.check_java(None, "/gone").found


def test_a_java_that_spark_would_not_find_is_to_be_pointed_to() -> None:
    finding = checks.check_java(Java("/usr/lib/jvm/java-17", "17.0.1", "/usr/lib/jvm"))
    assert (finding.status, finding.fix) == ("warn", "export JAVA_HOME=/usr/lib/jvm/java-17")


@pytest.mark.parametrize(
    ("version", "status"), [((3, 10, 9), "fail"), ((3, 11, 0), "ok"), ((3, 14, 1), "ok")]
)
def test_python(version: tuple[int, ...], status: str) -> None:
    found = checks.check_python(version, "/usr/bin/python3", "millstream @ file:///home/me/m")
    assert found.status == status
    assert ("pip install 'millstream @ file:///home/me/m'" in found.fix) == (status == "fail")


@pytest.mark.parametrize(
    ("setting", "worker", "status"),
    [
        (None, None, "ok"),
        ("python3.11", (3, 11, 4), "ok"),
        ("python3.12", (3, 12, 1), "fail"),
        ("gone", None, "fail"),
    ],
)
def test_python_of_the_workers(
    setting: str | None, worker: tuple[int, ...] | None, status: str
) -> None:
    finding = checks.check_worker_python((3, 11, 7), setting, worker)
    assert finding.status == status
    assert bool(finding.fix) == (status == "fail")


@pytest.mark.parametrize(
    ("package", "status", "word"),
    [
        (Package(None), "fail", "not installed"),
        (Package("4.3.1"), "ok", "4.3.1"),
        (Package("4.2.9"), "fail", ">=4.3,<4.4"),
        (Package("4.4.0"), "fail", ">=4.3,<4.4"),
        (Package("4.3.0", "ImportError: no libjvm"), "fail", "no libjvm"),
    ],
)
def test_package(package: Package, status: str, word: str) -> None:
    finding = checks.check_package("pyspark", package, minimum="4.3", below="4.4")
    assert finding.status == status
    assert word in finding.found
    assert ("pyspark>=4.3,<4.4" in finding.fix) == (status == "fail")


def test_a_package_newer_than_tested_is_warned_of() -> None:
    finding = checks.check_package(
        "pandas", Package("3.1.1"), minimum="2.2", untested_from="3", why="by PySpark"
    )
    assert finding == Finding(
        "pandas",
        "warn",
        "3.1.1; from 3 on it is not fully supported (by PySpark)",
        "pip install 'pandas>=2.2,<3'",
    )


def test_a_missing_extra_is_no_fault() -> None:
    finding = checks.check_extra("s3", "s3fs", None, ["fsspec>=1", "s3fs>=2"])
    assert finding.status == "ok"
    assert finding.fix == "pip install 'fsspec>=1' 's3fs>=2'"
    assert checks.check_extra("lmdb", "lmdb", "3.0.0").fix == ""


@pytest.mark.parametrize(
    ("setting", "version", "status"),
    [
        (None, None, "ok"),
        ("/opt/spark", None, "fail"),
        ("/opt/spark", "4.3.0", "ok"),
        ("/opt/spark", "3.5.1", "fail"),
    ],
)
def test_spark_home(setting: str | None, version: str | None, status: str) -> None:
    assert checks.check_spark_home(setting, version, "4.3.0").status == status


def test_loopback() -> None:
    assert checks.check_loopback(4000).status == "ok"
    assert "denied" in checks.check_loopback(None, "permission denied").found


def test_hostname() -> None:
    assert checks.check_hostname("box", "10.0.0.7", None).status == "ok"
    assert checks.check_hostname("box", None, None).status == "warn"
    assert checks.check_hostname("box", None, "127.0.0.1").status == "ok"


@pytest.mark.parametrize(
    ("free", "writable", "status"),
    [
        (5 * GIB, True, "ok"),
        (GIB - 1, True, "fail"),
        (5 * GIB, False, "fail"),
        (None, False, "fail"),
    ],
)
def test_disk(free: int | None, writable: bool, status: str) -> None:
    assert checks.check_disk("/tmp", free, writable).status == status


@pytest.mark.parametrize(
    ("available", "status"), [(None, "ok"), (GIB, "warn"), (2 * GIB, "ok"), (64 * GIB, "ok")]
)
def test_memory(available: int | None, status: str) -> None:
    assert checks.check_memory(available).status == status


def test_spark_run() -> None:
    assert checks.check_spark_run(3.0).status == "ok"
    assert checks.check_spark_run(None, "Py4JError: gone").found == "Py4JError: gone"
