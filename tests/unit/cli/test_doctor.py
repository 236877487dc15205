"""The doctor's facts, its report and its exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from millstream.cli import doctor as doctor_module
from millstream.cli import facts, main
from millstream.cli.checks import Finding
from millstream.errors import ClusterUnreachable


def _script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def _report(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    def examine(
        *, spark: bool = False, pipelined: bool = False, settings: Mapping[str, str] | None = None
    ) -> Iterator[Finding]:
        yield from findings
        if spark:
            yield Finding("Spark job", "ok", "ran")

    monkeypatch.setattr(doctor_module, "examine", examine)


def test_java_is_asked_for_its_home_and_version(tmp_path: Path) -> None:
    _script(
        tmp_path / "bin" / "java",
        "echo '    java.home = /real/jdk' >&2; echo '    java.version = 21.0.2' >&2",
    )
    java = facts.find_java(str(tmp_path))
    assert java is not None
    assert (java.home, java.version, java.found_by) == ("/real/jdk", "21.0.2", "JAVA_HOME")


def test_a_java_home_without_java_is_not_replaced_by_another(tmp_path: Path) -> None:
    assert facts.find_java(str(tmp_path)) is None


def test_a_java_that_fails_is_no_java(tmp_path: Path) -> None:
    _script(tmp_path / "bin" / "java", "echo broken; exit 1")
    assert facts.find_java(str(tmp_path)) is None


def test_python_version_is_asked_of_the_program(tmp_path: Path) -> None:
    assert facts.python_version(sys.executable) == tuple(sys.version_info[:3])
    assert facts.python_version(str(tmp_path / "gone")) is None
    assert facts.python_version(str(_script(tmp_path / "odd", "echo hello"))) is None


def test_packages() -> None:
    assert facts.package("click").version == facts.installed("click")
    assert facts.package("click").import_error is None
    assert facts.package("no-such-distribution").version is None


def test_spark_version_is_read_from_the_jars(tmp_path: Path) -> None:
    assert facts.spark_version(str(tmp_path)) is None
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.3.0.jar").touch()
    assert facts.spark_version(str(tmp_path)) == "4.3.0"


def test_loopback_disk_and_memory_of_this_machine(tmp_path: Path) -> None:
    port, error = facts.loopback_port()
    assert error is None
    assert port
    folder, free, writable = facts.free_disk(str(tmp_path))
    assert (folder, writable) == (str(tmp_path), True)
    assert free
    assert list(tmp_path.iterdir()) == []
    assert facts.free_disk(str(tmp_path / "gone"))[1:] == (None, False)
    memory = facts.available_memory()
    # Only Linux tells it.
    assert memory is None if sys.platform != "linux" else memory
    assert facts.resolve("no-such-host.invalid") is None


def test_all_well_is_exit_0(monkeypatch: pytest.MonkeyPatch) -> None:
    _report(monkeypatch, Finding("Java", "ok", "Java 17"), Finding("memory", "warn", "1 GiB", "x"))
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 0
    assert "Fit to run." in result.output
    assert "fix: x" in result.output
    assert "Spark job" not in result.output


def test_a_failure_is_exit_1_and_named_with_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    _report(monkeypatch, Finding("Java", "fail", "no Java found", "install java"))
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 1
    assert "fix: install java" in result.output
    assert "Not fit yet: Java." in result.output


def test_json_is_json_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _report(monkeypatch, Finding("Java", "fail", "no Java found", "install java"))
    result = CliRunner().invoke(main, ["doctor", "--json", "--spark"])
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["ok"] is False
    assert report["findings"][0] == {
        "name": "Java",
        "status": "fail",
        "found": "no Java found",
        "fix": "install java",
    }
    assert report["findings"][-1]["name"] == "Spark job"


def test_this_machine_is_examined_without_spark() -> None:
    names = [finding.name for finding in doctor_module.examine()]
    assert names[:3] == ["Java", "Python", "Python of the workers"]
    assert {"pyspark", "pyarrow", "pandas", "loopback", "temporary disk"} <= set(names)
    assert "Spark job" not in names


def test_a_cluster_that_cannot_be_reached_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(settings: Mapping[str, str]) -> None:
        assert settings["spark.master"] == "spark://nowhere:7077"
        raise ClusterUnreachable("no master there", tried="nowhere:7077: refused", hint="start it")

    monkeypatch.setattr("millstream.spark.session.make_session", unreachable)
    words = ["doctor", "--json", "-Dspark.master=spark://nowhere:7077"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    findings = {finding["name"]: finding for finding in json.loads(result.output)["findings"]}
    assert findings["master"] == {
        "name": "master",
        "status": "fail",
        "found": "no master there (nowhere:7077: refused)",
        "fix": "start it",
    }
    assert "executors" not in findings
