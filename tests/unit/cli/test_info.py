"""`millstream info`: the plan is shown and nothing runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from millstream.cli import main
from millstream.cli.info import draw
from tests.unit.cli.conftest import FakeOverrides


def node(identity: int, contents: str, *inputs: tuple[int, str], pact: str = "Operator") -> Any:
    found: dict[str, Any] = {
        "id": identity,
        "type": contents,
        "pact": pact,
        "contents": contents,
        "parallelism": 2,
    }
    if inputs:
        found["predecessors"] = [
            {"id": source, "ship_strategy": strategy, "side": "second"}
            for source, strategy in inputs
        ]
    return found


PLAN = {
    "nodes": [
        node(1, "Source: words", pact="Data Source"),
        node(2, "Count", (1, "HASH")),
        {
            **node(3, "Sink: [files]", (2, "FORWARD"), pact="Data Sink"),
            "guarantee": "exactly-once",
            "uid": "out",
        },
    ]
}

PROGRAM = """
import sys
from millstream.datastream import overrides
print("building", *sys.argv[1:])
overrides.execute(PLAN)
raise SystemExit("it went on after execute()")
"""


@pytest.fixture
def job(tmp_path: Path, overrides: FakeOverrides) -> Path:
    path = tmp_path / "job.py"
    path.write_text(PROGRAM.replace("PLAN", repr(PLAN)))
    return path


def test_the_plan_is_drawn(job: Path, overrides: FakeOverrides) -> None:
    result = CliRunner().invoke(main, ["info", "-p", "2", "-Da=b", str(job), "x"])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "1: Source: words  (Data Source, parallelism 2)",
        "└── HASH → 2: Count  (Operator, parallelism 2)",
        "    └── FORWARD → 3: Sink: [files]  (Data Sink, parallelism 2, uid out, exactly-once)",
    ]
    assert result.stderr == "building x\n"
    assert overrides.history == [{"a": "b", "parallelism.default": "2"}, {}]
    assert overrides.callback is None


def test_json_is_the_plan_alone(job: Path) -> None:
    result = CliRunner().invoke(main, ["info", "--json", str(job)])
    assert json.loads(result.stdout) == PLAN


def test_a_program_without_execute_is_told_so(job: Path) -> None:
    job.write_text("print('nothing')\n")
    result = CliRunner().invoke(main, ["info", str(job)])
    assert result.exit_code == 1
    assert "[EMPTY_PROGRAM]" in result.stderr
    assert "env.execute()" in result.stderr


def test_an_operator_with_two_inputs_is_drawn_out_once() -> None:
    plan = {
        "nodes": [
            node(1, "a", pact="Data Source"),
            node(2, "b", pact="Data Source"),
            node(3, "join", (1, "HASH"), (2, "HASH")),
            node(4, "out", (3, "FORWARD"), pact="Data Sink"),
        ]
    }
    assert draw(plan).splitlines() == [
        "1: a  (Data Source, parallelism 2)",
        "└── HASH → 3: join  (Operator, parallelism 2)",
        "    └── FORWARD → 4: out  (Data Sink, parallelism 2)",
        "2: b  (Data Source, parallelism 2)",
        "└── HASH → 3: join  (drawn above)",
    ]
