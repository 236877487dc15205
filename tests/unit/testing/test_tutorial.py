"""The tutorial, typed word for word in an empty folder; what needs Spark is left to tests/integration."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from millstream.cli import main
from tests.documents import Block, blocks_in

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial"
PAGES = sorted(TUTORIAL.glob("*.md"))
IN_PROCESS = "-Dexecution.target=in-process"


class Reader:
    """Does what the pages say, in the folder that it is in, and compares what it sees with what they show."""

    def __init__(self) -> None:
        self.saved = Path()
        self.seen: str | None = None
        self.errors = ""
        self.compared = 0

    def read(self, block: Block) -> None:
        file = re.search(r"this as `([\w.]+)`[^`]*$", re.sub(r"`\w+`", "", block.before))
        if file is None:
            file = re.search(r"this as `([\w.]+\.\w+)`", block.before)
        if file is not None:
            self.saved = Path(file[1])
            self.saved.write_text(block.text)
        elif block.text.startswith("    "):
            self.change(block.text)
        elif re.match(r"(cat|cd|millstream|mkdir|python|sort) ", block.text):
            for line in block.text.splitlines():
                self.type(shlex.split(line))
        elif block.text.startswith("["):
            told = [line for line in block.text.splitlines() if line.strip() != "..."]
            assert set(told) <= set(self.errors.splitlines())
            self.compared += 1
        elif self.seen is not None:
            assert without_seconds(self.seen) == without_seconds(block.text)
            self.compared += 1

    def change(self, line: str) -> None:
        """Put a line into the place of the one that begins in the same way."""
        before = self.saved.read_text().splitlines(keepends=True)
        places = [n for n, old in enumerate(before) if old[:20] == line[:20]]
        assert len(places) == 1
        before[places[0]] = line
        self.saved.write_text("".join(before))

    def type(self, words: list[str]) -> None:
        self.seen = None
        match words:
            case ["mkdir" | "cd", _]:
                pass
            case ["cat" | "sort" as how, pattern] if list(Path().glob(pattern)):
                lines = [
                    line
                    for path in sorted(Path().glob(pattern))
                    for line in path.read_text().splitlines(keepends=True)
                ]
                self.seen = "".join(sorted(lines) if how == "sort" else lines)
            case ["python", "-m", "pytest", "-q", file]:
                self.seen = passed(Path(file))
            case ["millstream", *rest] if "info" in rest or IN_PROCESS in rest:
                result = CliRunner().invoke(main, rest)
                self.seen, self.errors = result.stdout, result.stderr


def passed(file: Path) -> str:
    """What pytest says of tests that pass; they run here, since another Python takes long to start."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        tests = [
            test for name, test in runpy.run_path(str(file)).items() if name.startswith("test_")
        ]
    finally:
        sys.path.remove(str(Path.cwd()))
        sys.modules.pop("mill", None)
    for test in tests:
        test()
    return f"{'.' * len(tests):<73}[100%]\n{len(tests)} passed in 0.1s\n"


def without_seconds(text: str) -> str:
    return re.sub(r"in [\d.]+s", "in a moment", text)


def test_the_tutorial_word_for_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Reader()
    for page in PAGES:
        for block in blocks_in(page.read_text()):
            reader.read(block)
    files = {path.name for path in tmp_path.iterdir() if path.is_file()}
    programs = {"mill.py", "minutes.py", "pallets.py", "safe.py", "sacks.py", "test_mill.py"}
    assert files == {*programs, "day.jsonl", "sacks.jsonl"}
    assert reader.compared == 9
