"""Programs that share a worker have modules of their own."""

from __future__ import annotations

import importlib
import sys

import pytest

from millstream.spark.modules import ProgramModules


@pytest.fixture
def modules():
    path, known = list(sys.path), set(sys.modules)
    yield ProgramModules()
    sys.path[:] = path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def folder(tmp_path, name, text):
    (tmp_path / name / "spaced").mkdir(parents=True)
    (tmp_path / name / "shared_name.py").write_text(text)
    (tmp_path / name / "spaced" / "inner.py").write_text(text)
    return str(tmp_path / name)


def test_each_finds_its_own(tmp_path, modules):
    first, second = folder(tmp_path, "a", "who = 'a'"), folder(tmp_path, "b", "who = 'b'")
    found = []
    for place in (first, second, first, second):
        modules.enter(place, (place, *sys.path))
        found.append(importlib.import_module("shared_name"))
        assert importlib.import_module("spaced.inner").who == found[-1].who
    assert [module.who for module in found] == ["a", "b", "a", "b"]
    # The same module, with what the program has put into it.
    assert found[0] is found[2]
    assert found[1] is found[3]


def test_what_all_have_stays(tmp_path, modules):
    first, second = folder(tmp_path, "a", ""), folder(tmp_path, "b", "")
    modules.enter("a", (first,))
    import colorsys

    modules.enter("b", (second,))
    assert sys.modules["colorsys"] is colorsys
    assert first not in sys.path
    assert second in sys.path


def test_a_path_that_a_program_has_added_comes_back(tmp_path, modules):
    first, extra = folder(tmp_path, "a", ""), folder(tmp_path, "extra", "who = 'extra'")
    modules.enter("a", ())
    sys.path.insert(0, extra)
    assert importlib.import_module("shared_name").who == "extra"
    modules.enter("b", (first,))
    assert "shared_name" not in sys.modules
    modules.enter("a", ())
    assert importlib.import_module("shared_name").who == "extra"


def test_not_all_are_kept_for_ever(tmp_path, modules):
    for number in range(200):
        modules.enter(number, (str(tmp_path / str(number)),))
    assert len(modules._paths) <= 64
    assert len(modules._modules) <= 64
