"""Code in the documentation is true: every block of Python is run, or says that it is not; commands exist.

A page's blocks are run one after the other in one namespace, without Spark. If a block of plain text stands directly
behind one, or behind the command that starts it, that is what it prints. Comments before a block, which readers of the
page do not see, say what else is to be known about it:

    <!-- given: code that runs before -->
    <!-- only built: why it is not executed, as a job without end is not -->
    <!-- run by: the test that runs it -->
    <!-- not run: why -->
"""

import ast
import contextlib
import doctest
import re
import shlex
from pathlib import Path

import click
import pytest
import yaml

from millstream.cli import main
from millstream.common import options
from millstream.datastream import overrides
from tests.documents import blocks_in, printed

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
FILES = [*ROOT.glob("*.md"), *sorted(DOCS.glob("**/*.md")), *ROOT.glob("benchmarks/*.md")]
PAGES = [path.relative_to(ROOT).as_posix() for path in FILES]
MARKS = {"given", "not run", "only built", "run by"}


BLOCKS = {page: blocks_in((ROOT / page).read_text()) for page in PAGES}
PROGRAMS = {
    page: [n for n, block in enumerate(found) if block.language == "python"]
    for page, found in BLOCKS.items()
}


# -- programs --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::UserWarning:pyiceberg.*")
@pytest.mark.parametrize("page", [page for page in PAGES if "\n>>> " in (ROOT / page).read_text()])
def test_dialogues(page):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, attempted = doctest.testfile(str(ROOT / page), module_relative=False, optionflags=flags)
    assert attempted > 0
    assert failed == 0


@pytest.fixture
def without_spark(tmp_path, monkeypatch):
    """Programs run in-process, and what they write without a path goes elsewhere."""
    monkeypatch.chdir(tmp_path)
    overrides.set_overrides({"execution.target": "in-process"})
    yield
    overrides.set_overrides({})
    overrides.set_plan_only(None)


@pytest.mark.parametrize("page", [page for page in PAGES if PROGRAMS[page]])
def test_programs(page, without_spark, capsys):
    names = {"__name__": "__main__"}
    wrong = []
    for n in PROGRAMS[page]:
        block = BLOCKS[page][n]
        if block.text.startswith(">>>") or block.marks.keys() & {"not run", "run by"}:
            continue
        exec(block.marks.get("given", ""), names)
        plans = []
        overrides.set_plan_only(plans.append if "only built" in block.marks else None)
        capsys.readouterr()
        with contextlib.suppress(overrides.PlanReady):
            exec(compile(block.text, f"{page}, block {n}", "exec"), names)
        came, shown = capsys.readouterr().out, printed(BLOCKS[page][n + 1 :])
        if "only built" in block.marks:
            wrong += [] if plans else ["never executed"]
        elif shown is not None and came != shown:
            wrong += [came]
    assert wrong == []


@pytest.mark.parametrize("page", [page for page in PAGES if PROGRAMS[page]])
def test_what_is_said_of_blocks(page):
    """Marks are known and have a reason; what is not run is Python at least; who runs a page knows it."""
    blocks = [BLOCKS[page][n] for n in PROGRAMS[page]]
    assert {mark for block in blocks for mark in block.marks} <= MARKS
    assert all(reason for block in blocks for reason in block.marks.values())
    assert all(ast.parse(b.text) for b in blocks if not b.text.startswith(">>>"))
    tests = [(ROOT / b.marks["run by"]).read_text() for b in blocks if "run by" in b.marks]
    words = {Path(page).name, f'"{Path(page).parent.name}"'}
    assert all(any(word in test for word in words) for test in tests)


def test_a_program_is_called_a_program():
    """A block without a language is a dialogue with a shell, or what something prints: it imports nothing of ours."""
    unmarked = [
        page
        for page, found in BLOCKS.items()
        for block in found
        if not block.language
        and re.search(r"^(from|import) millstream\b", block.text, re.MULTILINE)
    ]
    assert unmarked == []


def test_blocks_are_found_with_their_marks():
    text = """
<!-- given: a = 1 -->
<!-- not run: no time -->
```python
print(a)
```

```
python a.py
```

```
1
```

And then

```
2
```
"""
    program, command, output, other = blocks_in(text)
    assert program.marks == {"given": "a = 1", "not run": "no time"}
    assert printed([command, output]) == "1\n"
    assert printed([output]) == "1\n"
    assert printed([other]) is None
    assert printed([]) is None


def test_the_page_of_spark_frames_shows_the_example():
    (program,) = (b.text for b in BLOCKS["docs/connectors/spark_frames.md"] if b.language)
    example = (ROOT / "examples/spark_frames.py").read_text()
    assert example.endswith(program)


# -- commands and settings ---------------------------------------------------------------------------

CONTEXT = click.Context(main)
TYPED = sorted(
    {
        (page, line.strip().removeprefix("$ "))
        for page, found in BLOCKS.items()
        for block in found
        if not block.language
        for line in block.text.replace("\\\n", " ").splitlines()
        if re.match(r"(\$ )?(millstream|make) [a-z]", line)
    }
)


@pytest.mark.parametrize(("page", "line"), TYPED)
def test_commands_exist(page, line):
    """That verbs, flags and targets are spelled right; what they do has tests of its own."""
    words = shlex.split(line.split("    #")[0].split(" # ")[0].replace("...", ""))
    if words[0] == "make":
        assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()
        return
    command: click.Command = main
    for word in words[1:]:
        below = command.get_command(CONTEXT, word) if isinstance(command, click.Group) else None
        if below is None:
            break
        command = below
    assert command is not main
    # What stands behind a script is the script's.
    script = next((n for n, word in enumerate(words) if word.endswith(".py")), len(words))
    flags = {word.split("=")[0] for word in words[:script] if re.match(r"--?[a-z]", word)}
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    assert flags <= known


@pytest.mark.parametrize(
    ("page", "text"),
    [(page, b.text) for page, found in BLOCKS.items() for b in found if b.language == "yaml"],
)
def test_settings_can_be_read(page, text):
    assert yaml.safe_load(text)


# `key: value` and -Dkey=value, wherever a page says so.
SETTINGS = sorted(
    {
        (page, key, value)
        for page in PAGES
        for pattern in (r"`([a-z][\w.-]+): ([^`\n]+)`", r"-D([a-z][\w.-]+)=([^\s`]+)")
        for key, value in re.findall(pattern, (ROOT / page).read_text())
        if "." in key and not key.startswith(("spark.", "metrics.reporter.")) and value != "..."
    }
)


@pytest.mark.parametrize(("page", "key", "value"), SETTINGS)
def test_settings_can_be_made(page, key, value):
    known = options.ALL | {old: options.ALL[new] for old, new in options.OLDER.items()}
    assert options.read(known[key], value) is not None
