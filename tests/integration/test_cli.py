"""The command `millstream` as a user types it, with a real Spark behind it."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.processes import MILLSTREAM, ROOT, Program, quick_environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

FLAGS = """
import sys

from millstream.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
print("arguments:", sys.argv[1:])
print("parallelism:", env.get_parallelism())
print("name:", env.get_configuration().get_string("pipeline.name", ""))
factor = int(sys.argv[2])
env.from_collection([1, 2, 3, 4]).rebalance().map(lambda n: n * factor).print()
env.execute()
"""
FAILING = """
from millstream.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([4, 2, 0]).map(lambda n: 8 // n).name("divide").print()
env.execute("failing")
"""
LOCAL = "-Dspark.master=local[2]"


def scripts(folder: Path) -> dict[str, str]:
    texts = {"flags.py": FLAGS, "failing.py": FAILING}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: str(folder / name) for name in texts}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Program]]:
    """All that start Spark begin at once, which takes half as long as one after the other."""
    folder = tmp_path_factory.mktemp("cli")
    paths = scripts(folder)
    flags = ("-p", "2", LOCAL, "-Dpipeline.name=four numbers", "-Dparalellism.default=3")
    commands = {
        "flags": ["run", *flags, paths["flags.py"], "--factor", "10", "-p", "x"],
        "failing": ["run", LOCAL, paths["failing.py"]],
        "doctor": ["doctor", "--spark", "--pipelined", "--json"],
    }
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(Program([*MILLSTREAM, *command], folder))
            for name, command in commands.items()
        }


def complaints(errors: str) -> list[str]:
    """Standard error, without the word that Java itself says of its incubator."""
    return [line for line in errors.splitlines() if "incubator modules" not in line]


def test_run_passes_everything_on(programs: dict[str, Program]) -> None:
    program = programs["flags"]
    assert program.end(200) == 0, program.errors
    head, results = program.lines[:3], program.lines[3:]
    assert head == [
        "arguments: ['--factor', '10', '-p', 'x']",
        "parallelism: 2",
        "name: four numbers",
    ]
    assert sorted(line.partition("> ")[2] for line in results) == ["10", "20", "30", "40"]
    assert {line.partition("> ")[0] for line in results} == {"1", "2"}
    # Nothing but the warning: there is no terminal to show progress on.
    text = "\n".join(complaints(program.errors))
    assert "unknown configuration key 'paralellism.default'" in text
    assert "did you mean 'parallelism.default'?" in text
    assert len(text.splitlines()) <= 2, text


def test_run_explains_a_failure(programs: dict[str, Program]) -> None:
    program = programs["failing"]
    assert program.end(200) == 1
    lines = complaints(program.errors)
    assert lines[0].startswith("[USER_FUNCTION_FAILED]"), program.errors
    text = "\n".join(lines)
    assert "ZeroDivisionError" in text
    assert "divide" in text
    assert "failing.py:5" in text
    # The user's own frames are evidence; ours, Spark's and Java's are not.
    assert "site-packages" not in text
    assert "\tat " not in text
    assert "millstream/runtime" not in text
    program.assert_gone()


def test_doctor_runs_a_job(programs: dict[str, Program]) -> None:
    program = programs["doctor"]
    assert program.end(200) == 0, program.lines
    report = json.loads("\n".join(program.lines))
    assert report["ok"] is True
    findings = {finding["name"]: finding for finding in report["findings"]}
    assert {finding["status"] for finding in findings.values()} <= {"ok", "warn"}
    assert {"Java", "Python", "pyspark"} < findings.keys()
    # The jobs are the last things that are checked: one as Spark has them, one in pipelined mode.
    plain, pipelined = report["findings"][-2:]
    assert "job" in plain["found"]
    assert pipelined["name"] == "pipelined mode"
    assert "ms from source to keyed operator" in pipelined["found"]
    program.assert_gone()


def quick(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MILLSTREAM, *arguments],
        env=quick_environment(**environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


# With these, Spark could not even begin.
NO_JAVA = {"PATH": "/nowhere", "JAVA_HOME": "/nowhere"}


def test_info_needs_no_java() -> None:
    script = str(ROOT / "examples" / "word_count.py")
    done = quick("info", script, **NO_JAVA)
    assert (done.returncode, done.stderr) == (0, "")
    first, *rest = done.stdout.splitlines()
    assert "Source: Collection Source" in first
    assert "parallelism 1" in first
    assert any("HASH" in line and "parallelism 2" in line for line in rest)

    done = quick("info", "--json", script, **NO_JAVA)
    assert (done.returncode, done.stderr) == (0, "")
    nodes = json.loads(done.stdout)["nodes"]
    assert {node["pact"] for node in nodes} == {"Data Source", "Operator", "Data Sink"}
    assert [node["parallelism"] for node in nodes] == [1, *[2] * (len(nodes) - 1)]


def test_run_and_doctor_without_java() -> None:
    done = quick("run", str(ROOT / "examples" / "word_count.py"), **NO_JAVA)
    assert done.returncode == 1
    assert done.stderr.startswith("[ENVIRONMENT_UNUSABLE] Spark needs Java 17")
    assert "Traceback" not in done.stderr

    done = quick("doctor", "--json", **NO_JAVA)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert [f["name"] for f in report["findings"] if f["status"] == "fail"] == ["Java"]
