"""The generated code of every operator and every exchange, word for word, as a task makes it.

`MILLSTREAM_UPDATE_GOLDEN=1` writes the files in `golden/code/` anew; the diff is then there to be read.
"""

import ast
import os
import re
from functools import cache
from pathlib import Path
from types import BuiltinMethodType, MethodType

import pytest

from millstream.graph.partitioning import Strategy
from millstream.runtime.codegen.unit import OperatorUnit
from millstream.runtime.operators.registry import UNITS
from tests.support import environment
from tests.unit.graph.code_programs import PROGRAMS
from tests.unit.graph.programs import chain_of

GOLDEN = Path(__file__).parent / "golden" / "code"


@cache
def made(name):
    program = PROGRAMS[name]
    env = environment(**program.options)
    shown = program.build(env)
    return chain_of(env, shown._transformation.id)


def module_of(name):
    return made(name).chain.module


@pytest.mark.parametrize("name", PROGRAMS)
def test_code(name):
    path = GOLDEN / f"{name}.txt"
    text = f"# {PROGRAMS[name].about}\n{module_of(name).source}"
    if os.environ.get("MILLSTREAM_UPDATE_GOLDEN") == "1":
        path.write_text(text)
    assert path.exists(), f"there is no {path.name}; MILLSTREAM_UPDATE_GOLDEN=1 writes it"
    assert text == path.read_text(), f"{name} has changed; if it should, MILLSTREAM_UPDATE_GOLDEN=1"


def test_there_are_no_other_files():
    assert {path.stem for path in GOLDEN.iterdir()} == set(PROGRAMS)


def test_every_operator_has_a_program():
    shown = {type(node.operator) for name in PROGRAMS for node in made(name).chain.vertex.nodes}
    assert set(UNITS) - shown == set()


def _leaves(kind):
    below = kind.__subclasses__()
    return {kind} if not below else set().union(*map(_leaves, below))


def test_every_unit_has_a_program():
    shown = {type(unit) for name in PROGRAMS for unit in made(name).chain.units}
    ours = {kind for kind in _leaves(OperatorUnit) if kind.__module__.startswith("millstream.")}
    assert ours - shown == set()


def test_every_exchange_has_a_program():
    shown = {edge.partitioning.strategy for name in PROGRAMS for edge in made(name).edges}
    assert set(Strategy) - shown == set()


def _what(value):
    """What tells a value from others: of a method, whose it is and which."""
    if isinstance(value, MethodType):
        return id(value.__self__), value.__func__
    if isinstance(value, BuiltinMethodType) and value.__self__ is not None:
        return id(value.__self__), value.__name__
    return id(value)


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_value_has_two_names(name):
    module = module_of(name)
    names = {}
    for parameter, value in zip(module.names, module.values, strict=True):
        names.setdefault(_what(value), []).append(parameter)
    assert [same for same in names.values() if len(same) > 1] == []


# v1 and k5 say nothing; record2 and send_1 do.
_NUMBERED_LETTER = re.compile(r"[a-zA-Z]_?\d*")


@pytest.mark.parametrize("name", PROGRAMS)
def test_names_are_words(name):
    tree = ast.parse(module_of(name).source)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert {one for one in names if _NUMBERED_LETTER.fullmatch(one)} == set()
