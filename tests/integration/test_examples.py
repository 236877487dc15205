"""Every script in `examples/`, and the README's, run on Spark and print what they should."""

from __future__ import annotations

import re
import runpy
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from millstream.testing.kafka import missing_tools
from tests import cookbook
from tests.integration.processes import Program

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
EXAMPLES = {path.name for path in (ROOT / "examples").glob("*.py")}
TIME_GUIDE = (ROOT / "docs" / "time.md").read_text()
JOIN_GUIDE = (ROOT / "docs" / "joins.md").read_text()
# [name](../examples/name): some words, and the block with its output.
SHOWN = re.findall(
    r"\(\.\./examples/(\w+\.py)\): [^`]*```\n(.*?)```", TIME_GUIDE + JOIN_GUIDE, re.DOTALL
)
# Programs with a test of their own.
APART = {
    "async_enrichment.py",
    "fault_tolerant_kafka.py",
    "fault_tolerant_word_count.py",
    "hashtag_count.py",
    "idle_source.py",
    "kafka_word_count.py",
}

# What each script prints, in any order; `...` stands for a line that is not compared.
EXPECTED: dict[str, list[str]] = {
    "word_count.py": [
        *[f"1> ('{word}', 1)" for word in ("grinds", "grain", "water")],
        *[f"2> ('the', {n})" for n in (1, 2, 3)],
        *["2> ('mill', 1)", "2> ('mill', 2)", "2> ('turns', 1)"],
    ],
    "side_outputs.py": [
        "broken> b=",
        "broken> c=hot",
        "hottest> ('a', 20.5)",
        "hottest> ('a', 21.0)",
        "hottest> ('b', 19.5)",
    ],
    "connected_streams.py": ["apple passes", "avocado passes", "cheese passes"],
    "files.py": [
        *[f"status> ('200', {n})" for n in (1, 2, 3)],
        "status> ('404', 1)",
        "status> ('500', 1)",
        "errors on disk: ['GET /x 404', 'POST /y 500']",
    ],
    "parquet_to_delta.py": ["2026-11-16 2.5", "2026-11-17 1.0", "2026-11-17 5.0"],
    "custom_source.py": [
        "1> ('north', 3.5)",
        "1> ('north', 4.0)",
        "1> ('south', 21.0)",
        "1> ('south', 21.0)",
        "1> ('south', 22.0)",
    ],
    "shortest_paths.py": ["bridge: 5", "harbour: 10", "lock: 1", "mill: 0", "weir: 7"],
    "spark_frames.py": [
        "+--------+----------+",
        "|customer|max(total)|",
        "+--------+----------+",
        "|     ann|        17|",
        "|     bob|         5|",
        "+--------+----------+",
    ],
    # The guides show what they print.
    **{name: output.splitlines() for name, output in SHOWN if name not in APART},
}


def run(script: Path, arguments: list[str], monkeypatch: Any, capfd: Any) -> list[str]:
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    capfd.readouterr()
    runpy.run_path(str(script), run_name="__main__")
    return [line for line in capfd.readouterr().out.splitlines() if line.strip()]


def test_every_example_is_run() -> None:
    assert EXPECTED.keys() | APART == EXAMPLES


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_example(name: str, spark: Any, monkeypatch: Any, capfd: Any, tmp_path: Path) -> None:
    arguments = [str(tmp_path)] if name == "files.py" else []
    lines = run(ROOT / "examples" / name, arguments, monkeypatch, capfd)
    assert Counter(lines) == Counter(EXPECTED[name])


# Of the cookbook, what is most unlike a run in one process: a restart with files, a sink of workers, a savepoint.
ON_SPARK = {"cdc_to_table.py", "hourly_files.py", "savepoint_as_frame.py"}


@pytest.mark.parametrize(
    "name",
    [
        name if name in ON_SPARK else pytest.param(name, marks=pytest.mark.nightly)
        for name in cookbook.PROGRAMS
    ],
)
def test_cookbook(name: str, spark: Any, monkeypatch: Any, capfd: Any, tmp_path: Path) -> None:
    lines = cookbook.printed_by(name, tmp_path, monkeypatch, capfd)
    assert Counter(lines) == Counter(cookbook.SHOWN[name])


@pytest.mark.timeout(300)
def test_demo(tmp_path: Path) -> None:
    script = ROOT / "examples" / "fault_tolerant_word_count.py"
    with Program([sys.executable, str(script), "--words", "20000"], tmp_path) as demo:
        assert demo.end(280) == 0, (demo.lines, demo.errors)
        assert demo.lines[-1] == "20,000 words, 200 distinct, 4 kills: all counts equal"


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_demo_with_kafka(tmp_path: Path) -> None:
    missing = missing_tools()
    if missing is not None:
        pytest.skip(missing)
    script = ROOT / "examples" / "fault_tolerant_kafka.py"
    command = [sys.executable, str(script), "--orders", "12000", "--kills", "2", "--seed", "5"]
    with Program(command, tmp_path) as demo:
        assert demo.end(380) == 0, (demo.lines, demo.errors)
        assert demo.lines[-1] == "exactly once"
        assert "0 lost, 0 doubled, 0 customers miscounted" in demo.lines[-2]


def test_kafka_word_count(spark: Any, monkeypatch: Any, capfd: Any) -> None:
    missing = missing_tools()
    if missing is not None:
        pytest.skip(missing)
    lines = run(ROOT / "examples" / "kafka_word_count.py", [], monkeypatch, capfd)
    wanted = {"the": 4, "mill": 2, "turns": 2, "stream": 2}
    assert sorted(lines) == sorted(
        f"{w} {n}" for w, most in wanted.items() for n in range(1, most + 1)
    )


def test_hashtag_count(spark: Any, monkeypatch: Any, capfd: Any) -> None:
    arguments = ["--messages", "5000", "--rate", "5000"]
    with pytest.raises(SystemExit) as ended:
        run(ROOT / "examples" / "hashtag_count.py", arguments, monkeypatch, capfd)
    assert ended.value.code == 0
    assert "every count is exact" in capfd.readouterr().out


@pytest.mark.timeout(300)
def test_idle_source(spark: Any, monkeypatch: Any, capfd: Any) -> None:
    lines = run(ROOT / "examples" / "idle_source.py", [], monkeypatch, capfd)
    shown = dict(SHOWN)["idle_source.py"].splitlines()
    # How many ticks there are and when they are counted differs from run to run.
    assert [re.sub(r"[\d.]+", "n", line) for line in lines] == [
        re.sub(r"[\d.]+", "n", line) for line in shown
    ]


@pytest.mark.parametrize("guide", [TIME_GUIDE, JOIN_GUIDE], ids=["time", "joins"])
def test_guide(guide: str) -> None:
    """Its snippets build a program, together; nothing is run."""
    snippets = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    assert snippets
    exec("\n".join(snippets), {})


def test_readme(spark: Any, monkeypatch: Any, capfd: Any, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    program, output = re.search(r"```python\n(.*?)```\s+```\n(.*?)```", text, re.DOTALL).groups()
    script = tmp_path / "readme.py"
    script.write_text(program)
    assert program in (ROOT / "docs" / "index.md").read_text()
    assert Counter(run(script, [], monkeypatch, capfd)) == Counter(output.splitlines())
