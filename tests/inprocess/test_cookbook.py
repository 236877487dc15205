"""The programs of the cookbook print what its page shows, however their input is cut; nothing is kept in attributes."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from millstream.datastream import overrides
from tests.cookbook import FOLDER, PROGRAMS, SHOWN, printed_by

# Their functions keep what they are for: a generator is saved with every checkpoint.
KEPT = {"WatermarkGenerator"}


@pytest.fixture
def settings():
    given = {"execution.target": "in-process"}
    yield given
    overrides.set_overrides({})


def test_the_page_shows_every_program():
    assert sorted(SHOWN) == PROGRAMS
    assert len(PROGRAMS) >= 15


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_what_the_page_shows(name, settings, monkeypatch, capfd, tmp_path):
    overrides.set_overrides(settings)
    assert printed_by(name, tmp_path, monkeypatch, capfd) == SHOWN[name]


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_does_so_with_an_epoch_for_every_record(name, settings, monkeypatch, capfd, tmp_path):
    """Then watermarks come after every record and not at the end only, and all state was saved and read."""
    overrides.set_overrides({**settings, "millstream.epoch.records": "1"})
    lines = printed_by(name, tmp_path, monkeypatch, capfd)
    assert Counter(lines) == Counter(SHOWN[name])


def changed_attributes(tree: ast.AST) -> list[str]:
    """Attributes of functions that are set after `open`, and so would be state."""
    found = []
    for kind in ast.walk(tree):
        if not isinstance(kind, ast.ClassDef) or KEPT & {ast.unparse(b) for b in kind.bases}:
            continue
        for method in kind.body:
            if isinstance(method, ast.FunctionDef) and method.name not in ("__init__", "open"):
                for node in ast.walk(method):
                    targets = (
                        node.targets
                        if isinstance(node, ast.Assign)
                        else [node.target]
                        if isinstance(node, ast.AugAssign | ast.AnnAssign)
                        else []
                    )
                    found += [
                        ast.unparse(target)
                        for target in targets
                        if ast.unparse(target).startswith("self.")
                        and isinstance(target, ast.Attribute)
                    ]
    return found


def test_attributes_that_are_state_are_seen():
    program = "class Count:\n    def open(self, ctx): self.n = 0\n    def map(self, v): self.n += 1"
    assert changed_attributes(ast.parse(program)) == ["self.n"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_short_and_keeps_nothing_in_attributes(name):
    text = (FOLDER / name).read_text()
    assert len(text.splitlines()) < 60
    assert changed_attributes(ast.parse(text)) == []
