"""What doctor says of a cluster, from facts."""

from __future__ import annotations

from dataclasses import replace

from millstream.cli import cluster_checks as checks
from millstream.spark.executors import ExecutorFacts

HERE = ExecutorFacts(
    executor="0",
    host="a",
    python="/usr/bin/python3",
    version=(3, 11, 7),
    skew=0.0,
    versions={"millstream": "1.0", "pyarrow": "20.0"},
)
THERE = replace(HERE, executor="1", host="b")


def test_executors() -> None:
    assert checks.check_executors(["a", "a", "b"], 3, "d:1").status == "ok"
    none = checks.check_executors([], 0, "d:1")
    assert none.status == "fail"
    assert "spark.driver.host" in none.fix
    assert "the driver is at d:1" in none.found


def test_pythons() -> None:
    assert checks.check_pythons((3, 11, 2), [HERE, THERE]).found == "/usr/bin/python3 (3.11.7)"
    other = checks.check_pythons((3, 11, 2), [HERE, replace(THERE, version=(3, 12, 1))])
    assert other.status == "fail"
    assert "b (executor 1): /usr/bin/python3 is 3.12.1; the driver is 3.11.2" in other.found
    assert other.fix == "-Dspark.pyspark.python=/path/to/python3.11"
    assert checks.check_pythons((3, 11), [HERE], unseen=1).status == "warn"


def test_packages() -> None:
    assert checks.check_packages("1.0", [HERE, THERE]).found == "millstream 1.0, pyarrow 20.0"
    bare = replace(THERE, missing={"pyarrow": "No module named 'pyarrow'"}, versions={})
    finding = checks.check_packages("1.0", [HERE, bare])
    assert finding.status == "fail"
    assert finding.found == "b (executor 1) has no pyarrow (/usr/bin/python3)"
    assert "--ship-environment" in finding.fix
    assert "pip install millstream==1.0" in finding.fix
    older = checks.check_packages("1.0", [replace(HERE, versions={"millstream": "0.9"})])
    assert "has Millstream 0.9, not 1.0" in older.found
    mixed = replace(THERE, versions={"millstream": "1.0", "pyarrow": "19.0"})
    assert checks.check_packages("1.0", [HERE, mixed]).status == "warn"


def test_clocks() -> None:
    assert checks.check_clocks([HERE]).status == "ok"
    late = checks.check_clocks([HERE, replace(THERE, skew=3.4)])
    assert (late.status, late.found) == (
        "warn",
        "b (executor 1) is off the driver's clock by at least 3.4 s",
    )
    assert checks.check_clocks([replace(HERE, skew=90)]).status == "fail"
    assert checks.check_clocks([]).status == "warn"


def test_folder() -> None:
    assert checks.check_folder(None, [HERE], []).status == "warn"
    assert checks.check_folder("/c", [HERE, THERE], []).status == "ok"
    own = checks.check_folder("/c", [HERE], [], "PermissionError: no")
    assert own.found == "the driver cannot use /c: PermissionError: no"
    blind = replace(THERE, folder_problem="FileNotFoundError: /c")
    finding = checks.check_folder("/c", [HERE, blind], ["a (executor 0)"])
    assert finding.status == "fail"
    assert "b (executor 1): FileNotFoundError: /c" in finding.found
    assert "a (executor 0) wrote a file that the driver does not see" in finding.found


def test_security() -> None:
    bare = checks.check_security({})
    assert bare.status == "warn"
    assert "-Dspark.authenticate=true" in bare.fix
    safe = {
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
    }
    assert checks.check_security(safe).status == "ok"


def test_master() -> None:
    assert checks.check_master("spark://a:1").status == "ok"
    assert checks.check_master("spark://a:1", "no", "do").fix == "do"
