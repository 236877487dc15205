"""One word means one thing: how the code is read for it."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import millstream

PACKAGE = Path(millstream.__file__).parent

# Where chains of operators are: they are planned, set up and run there.
OF_CHAINS = (
    "graph/",
    "datastream/",
    "runtime/codegen/",
    "runtime/operators/",
    "runtime/task/",
    "common/options.py",
    "testing/",
)

# The only module that may spell them.
LIMITS = "common/constants.py"
_LIMITS = (2**63, 2**63 - 1)

# Names that say nothing of what is behind them. `found` and `what` stay where an error's evidence is called so.
_EMPTY = {"one", "took", "those", "these"}


def modules(*, without=()):
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(tuple(without)):
            yield name, path.read_text()


def identifiers(tree):
    """All names that a module gives or uses, with their lines; those of imported modules' attributes too."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.alias(name=name, asname=given):
                yield given or name, node.lineno
            case ast.keyword(arg=str(name)) | ast.MatchAs(name=str(name)):
                yield name, node.lineno


def words(identifier):
    """The words of a name, whatever way they are joined."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)
    return [part.lower() for part in parts]


def prose(source):
    """Docstrings and comments, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text, getattr(node, "lineno", 1)
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("#"):
            yield line, number


def test_names_are_split_into_words():
    assert words("extend_chain") == ["extend", "chain"]
    assert words("FoldFailed") == ["fold", "failed"]
    assert words("_MAX_CHAIN") == ["max", "chain"]
    assert words("folder") == ["folder"]


def test_nothing_is_folded():
    """State files are compacted, changes absorbed, records combined. `fold` is what `datetime` calls an hour that comes
    twice."""
    folded = {"fold", "folds", "folded", "folding"}
    named = [
        f"{module}:{line} {name}"
        for module, source in modules()
        for name, line in identifiers(ast.parse(source))
        if folded & set(words(name)) and name != "fold"
    ]
    told = [
        f"{module}:{line} {text}"
        for module, source in modules(without=("runtime/state/plain_values.py",))
        for text, line in prose(source)
        if re.search(r"\bfold(s|ed|ing)?\b", text, re.IGNORECASE)
    ]
    assert not named + told


def test_a_chain_is_of_operators():
    """The files of a store are its segments."""
    chained = [
        f"{module}:{line} {name}"
        for module, source in modules(without=OF_CHAINS)
        for name, line in identifiers(ast.parse(source))
        if {"chain", "chains"} & set(words(name))
    ]
    # `itertools.chain` is Python's word.
    own = [place for place in chained if not place.endswith(" chain")]
    pythons = [place for place in chained if place.endswith(" chain")]
    assert not own
    for place in pythons:
        module, line = re.match(r"(.*):(\d+) ", place).groups()
        assert "itertools.chain" in (PACKAGE / module).read_text().splitlines()[int(line) - 1]


@pytest.mark.parametrize("folder", ["checkpoint/", "runtime/state/", "storage/"])
def test_no_prose_speaks_of_a_chain_of_files(folder):
    wrong = [
        f"{module}:{line}"
        for module, source in modules()
        if module.startswith(folder)
        for text, line in prose(source)
        if re.search(r"\bchains? of (state )?files\b|\bfiles? of (a|the) chain\b", text)
    ]
    assert not wrong


def test_a_class_has_a_name_of_its_own():
    places = defaultdict(list)
    for module, source in modules():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    assert not {name: where for name, where in places.items() if len(where) > 1}


def spells_a_limit(node):
    """True of 2**63, 1 << 63 and the digits, as a number or in a text."""
    match node:
        case ast.BinOp(left=ast.Constant(2), op=ast.Pow(), right=ast.Constant(63)):
            return True
        case ast.BinOp(left=ast.Constant(1), op=ast.LShift(), right=ast.Constant(63)):
            return True
        case ast.Constant(int(value)):
            return value in _LIMITS
        case ast.Constant(str(value)):
            return any(str(limit) in value for limit in _LIMITS)
    return False


def test_a_limit_is_seen_however_it_is_spelled():
    for text in ("-(2**63)", "(1 << 63) - 1", "9223372036854775807", "'v < 9223372036854775808'"):
        assert any(map(spells_a_limit, ast.walk(ast.parse(text)))), text
    assert not any(map(spells_a_limit, ast.walk(ast.parse("2**62 + (1 << 31) + 63"))))


def test_the_limits_of_times_and_numbers_are_spelled_once():
    spelled = []
    for module, source in modules(without=(LIMITS,)):
        tree = ast.parse(source)
        # Examples in docstrings may: they are for people.
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        spelled += [
            f"{module}:{node.lineno}"
            for node in ast.walk(tree)
            if id(node) not in docstrings and spells_a_limit(node)
        ]
    assert not spelled


def test_the_limits_are_imported_from_where_they_are_spelled():
    around = [
        f"{module}:{node.lineno}"
        for module, source in modules()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module != "millstream.common.constants"
        for name in node.names
        if name.name in {"MAX_TIME", "MAX_TIMESTAMP", "NO_TIME"}
    ]
    assert not around


def test_variables_are_named_for_what_they_hold():
    empty = [
        f"{module}:{line} {name}"
        for module, source in modules()
        for name, line in identifiers(ast.parse(source))
        if name in _EMPTY
    ]
    assert not empty
