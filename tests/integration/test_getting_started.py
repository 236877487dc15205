"""The newcomer's page: its programs print what it shows, and its commands exist."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from millstream.cli import main
from millstream.cli.init import project_files
from tests.documents import blocks_in

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "getting_started.md").read_text()
COMMANDS = ("make", "source", "export", "millstream", "python", "cd", "kill")

# Its blocks in their order: (is it Python?, text).
BLOCKS = [
    (kind == "python", text)
    for kind, text in re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
]
TYPED = [
    line.partition("#")[0].strip()
    for python, text in BLOCKS
    if not python and text.startswith(COMMANDS)
    for line in text.splitlines()
]


def shown_after(index: int) -> str:
    """The first block behind this one that is neither Python nor typed."""
    return next(
        text for python, text in BLOCKS[index + 1 :] if not python and not text.startswith(COMMANDS)
    )


PROGRAMS = [(text, shown_after(n)) for n, (python, text) in enumerate(BLOCKS) if python]


@pytest.fixture(params=range(len(PROGRAMS)))
def program(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    text, shown = PROGRAMS[request.param]
    script = tmp_path / "program.py"
    script.write_text(text)
    return str(script), shown


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_programs_in_process(program: tuple[str, str]) -> None:
    script, shown = program
    assert run("run", "-Dexecution.target=in-process", script) == shown


@pytest.mark.spark
def test_the_first_program_on_spark(spark: Any, tmp_path: Path) -> None:
    text, shown = PROGRAMS[0]
    script = tmp_path / "words.py"
    script.write_text(text)
    assert run("run", str(script)) == shown


@pytest.mark.spark
def test_the_tutorials_last_program_on_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other steps need none: tests/unit/testing/test_tutorial.py."""
    first, *_, last = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
    monkeypatch.chdir(tmp_path)
    data = next(b.text for b in blocks_in(first.read_text()) if b.text.startswith("{"))
    (tmp_path / "sacks.jsonl").write_text(data)
    blocks = blocks_in(last.read_text())
    (tmp_path / "mill.py").write_text(blocks[0].text)
    index = next(n for n, block in enumerate(blocks) if "sort pallets" in block.text)
    run("run", "-p", "2", "mill.py")
    lines = [line for path in Path("pallets").iterdir() for line in path.read_text().splitlines()]
    assert sorted(lines) == blocks[index + 1].text.splitlines()


def test_the_plan(tmp_path: Path) -> None:
    script = tmp_path / "words.py"
    script.write_text(PROGRAMS[0][0])
    index = next(n for n, (_, text) in enumerate(BLOCKS) if text.startswith("millstream info"))
    assert run("info", str(script)) == shown_after(index)


def test_what_init_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = next(n for n, (_, text) in enumerate(BLOCKS) if text.startswith("millstream init"))
    monkeypatch.chdir(tmp_path)
    assert run("init", "clicks") == shown_after(index)


def test_the_lines_of_the_job_are_those_of_the_project() -> None:
    shown = next(text for _, text in BLOCKS if text.startswith("config = "))
    job = project_files("clicks")["job.py"]
    assert all(line.strip() in job for line in shown.splitlines())


@pytest.mark.parametrize("line", TYPED)
def test_commands_exist(line: str) -> None:
    """That verbs, flags and targets are spelled right; what they do has tests of its own."""
    words = shlex.split(line, comments=True)
    if words[:1] == ["make"]:
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()
    elif words[:1] == ["millstream"]:
        verb = words[1:3] if words[1] == "savepoint" else words[1:2]
        told = CliRunner().invoke(main, [*verb, "--help"])
        assert told.exit_code == 0
        flags = {word.split("=")[0] for word in words if re.match(r"--|-[a-z]$", word)}
        assert all(flag in told.output for flag in flags), flags
    elif words[0] == "python":
        assert words[1] in ("words.py", "job.py", "-m"), sys.argv
