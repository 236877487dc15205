"""What documents say about the code is so: generated code, packages, layers, folders of tests, the tree of errors."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import tomllib
from pathlib import Path

import pytest

from millstream import errors
from millstream.runtime.task.task import CHUNK

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "millstream"
GOLDEN = "tests/unit/graph/golden/"

# -- generated code --------------------------------------------------------------------------------


def shows(block: str, file: str) -> bool:
    """True if a block of code is a file's, where a line `...` stands for one line or more that are left out.

    A block begins and may end anywhere in the file. Its lines are compared whole, with their indentation among
    themselves; what stands behind two spaces and a # explains them and does not count.
    """
    lines = [
        re.sub(r"  # .*", "", line) for line in textwrap.dedent(block).strip("\n").splitlines()
    ]
    pattern = "".join(
        r"(?:.*\n)+?" if line.strip() == "..." else rf"(?P=by){re.escape(line)}\n" for line in lines
    )
    first = pattern.replace("(?P=by)", "(?P<by> *)", 1)
    return re.search(f"^{first}", file.rstrip("\n") + "\n", re.MULTILINE) is not None


def test_code_blocks_of_the_architecture_come_from_golden_files() -> None:
    """The paragraph before a block links the file that it shows a part of."""
    text = re.sub(r"^<!--.*-->\n", "", (ROOT / "ARCHITECTURE.md").read_text(), flags=re.MULTILINE)
    parts = re.split(r"^```python\n([\s\S]*?)^```$", text, flags=re.MULTILINE)
    blocks = [
        (above.strip().split("\n\n")[-1], block)
        for above, block in zip(parts[::2], parts[1::2], strict=False)
    ]
    assert blocks
    for before, block in blocks:
        named = re.findall(rf"\(({re.escape(GOLDEN)}[^)]+)\)", before)
        assert len(named) == 1, f"no golden file is linked before\n{block}"
        assert shows(block, (ROOT / named[0]).read_text()), f"{named[0]} does not hold\n{block}"


@pytest.mark.parametrize(
    ("block", "found"),
    [
        ("def f():\n    a\n    b\n", True),
        ("def f():\n    ...\n    c\n", True),
        ("    a  # first\n    ...\n", True),
        ("a\nb\n", True),
        ("def f():\n    b\n", False),
        ("def f():\n    a\n  b\n", False),
        ("def f():\n    ...\n    a\n", False),
        ("c\n...\n", False),
        ("def g():\n", False),
    ],
)
def test_only_what_stands_in_a_file_is_shown(block: str, found: bool) -> None:
    assert shows(block, "x\ndef f():\n    a\n    b\n    c\n") is found


# -- packages and layers ---------------------------------------------------------------------------


def rows(page: str, heading: str) -> list[str]:
    """The lines of the first table under a heading, without its head."""
    _, _, below = (ROOT / page).read_text().partition(f"\n## {heading}\n")
    table = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert table is not None, f"{page} has no table under '{heading}'"
    return table[0].splitlines()[2:]


def layers() -> list[tuple[str, str]]:
    """Name and target of the first column of the architecture's table."""
    found = [
        re.match(r"\| \[`(\w+)`\]\(([^)]+)\) \|", row)
        for row in rows("ARCHITECTURE.md", "The layers")
    ]
    assert all(found)
    return [(one[1], one[2]) for one in found if one]


def test_the_architecture_lists_every_package_and_module_once() -> None:
    packages = {
        path.parent.name: f"millstream/{path.parent.name}" for path in PACKAGE.glob("*/__init__.py")
    }
    modules = {path.stem: f"millstream/{path.name}" for path in PACKAGE.glob("[!_]*.py")}
    listed = layers()
    assert dict(listed) == packages | modules
    assert len(listed) == len(dict(listed))


def test_the_architecture_lists_layers_in_the_order_that_is_enforced() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (enforced,) = (one["layers"] for one in contracts if one["id"] == "layers")
    order = [name.strip("()").removeprefix("millstream.") for name in enforced]
    assert [name for name, _ in layers() if name in order] == order


def test_only_spark_has_spark_in_it() -> None:
    """The last column of the table, and what the packages import."""
    told = {
        row.split("|")[1]: row.split("|")[3].strip()
        for row in rows("ARCHITECTURE.md", "The layers")
    }
    said = {re.search(r"`(\w+)`", name)[1] for name, answer in told.items() if answer != "no"}  # type: ignore[index]
    files = [path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE]
    imports = re.compile(r"^\s*(?:from|import) (?:pyspark|py4j)\b", re.MULTILINE)
    found = {
        path.relative_to(PACKAGE).parts[0] for path in files if imports.search(path.read_text())
    }
    assert found == said


def test_every_folder_of_tests_is_explained() -> None:
    explained = [
        re.match(r"\| `tests/(\w+)` \|", row) for row in rows("CONTRIBUTING.md", "Where things go")
    ]
    folders = {path.parent.name for path in ROOT.glob("tests/*/test_*.py")} | {"unit"}
    assert sorted(one[1] for one in explained if one) == sorted(folders)


# -- errors ----------------------------------------------------------------------------------------


def test_the_tree_of_errors_is_the_one_in_the_docstring() -> None:
    text = (errors.__doc__ or "").split("```")[1]
    drawn: dict[str, tuple[str, str]] = {}
    above = ["MillstreamError"]
    for line in text.strip().splitlines()[1:]:
        found = re.match(r"([│ ]*)[├└]── (\w+) +([A-Z_]+)(?: |$)", line)
        assert found is not None, line
        depth = len(found[1]) // 4 + 1
        above[depth:] = [found[2]]
        drawn[found[2]] = above[depth - 1], found[3]
    there = {
        name: (one.__bases__[0].__name__, one.code)
        for name, one in inspect.getmembers(errors, inspect.isclass)
        if issubclass(one, errors.MillstreamError) and one is not errors.MillstreamError
    }
    assert drawn == there


def test_the_columns_of_the_tree_of_errors_are_columns() -> None:
    text = (errors.__doc__ or "").split("```")[1]
    codes = [re.search(r" ([A-Z]+_[A-Z_]+)", line) for line in text.strip().splitlines()[1:]]
    assert len({one.start() for one in codes if one}) == 1


def test_every_code_has_a_cause_and_a_cure() -> None:
    _, _, below = (ROOT / "docs/errors.md").read_text().partition("\n## Every code\n")
    lines = re.findall(r"^\| `([A-Z_]+)` \| (.+) \| (.+) \|$", below, re.MULTILINE)
    codes = [
        one.code
        for _, one in inspect.getmembers(errors, inspect.isclass)
        if issubclass(one, errors.MillstreamError) and one is not errors.MillstreamError
    ]
    assert sorted(code for code, _, _ in lines) == sorted(codes)


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", ["docs/semantics.md", "docs/time.md", "docs/options.md"])
def test_after_how_many_records_generators_are_asked_is_said_as_it_is(page: str) -> None:
    assert f"after at most {CHUNK} records" in (ROOT / page).read_text().replace(
        "after every run of", "after"
    )


# -- docstrings ------------------------------------------------------------------------------------


def docstrings(path: Path) -> list[str]:
    """Of a module, its classes, functions and attributes."""
    nodes = ast.walk(ast.parse(path.read_text()))
    texts = (node.value for node in nodes if isinstance(node, ast.Expr))
    return [
        one.value for one in texts if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]


LEANING = re.compile(
    r"(That|Those|These|They|It|Its|Now(?=,)|This is|The same(?=[,;.]| for | with ))\b"
)


def stands_alone(docstring: str) -> bool:
    """Not so if the first paragraph begins by pointing elsewhere, if it has less than three words and names nothing in
    backticks, or if it is about something "with such" properties."""
    first = docstring.split("\n\n")[0]
    says_little = len(first.split()) < 3 and "`" not in first
    return not (
        LEANING.match(first) or says_little or re.search(r"\b(of|with|has|have) such\b", first)
    )


@pytest.mark.parametrize(
    ("docstring", "alone"),
    [
        ("That number.", False),
        ("One more.", False),
        ("Text.\n\n>>> an_example()", False),
        ("Now, so that a restore can tell.", False),
        ("This is the code.", False),
        ("A function with such parameters.", False),
        ("A `ProcessFunction`.", True),
        ("One byte: there is only one such window.", True),
        ("Count a bad record; the letter about it.", True),
    ],
)
def test_what_does_not_stand_alone_is_seen(docstring: str, alone: bool) -> None:
    assert stands_alone(docstring) is alone


def test_docstrings_stand_alone() -> None:
    """Who reads one, in a tooltip or by `help`, does not see the one above it: "That number." says nothing."""
    found = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for text in docstrings(path)
        if not stands_alone(text)
    ]
    assert found == []
