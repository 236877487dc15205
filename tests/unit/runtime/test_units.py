"""Every operator has a unit, and a chain knows its units by their methods alone."""

import inspect

from millstream.graph import operators as ops
from millstream.runtime.codegen.unit import OperatorUnit, TimedUnit, that_do
from millstream.runtime.operators.registry import UNITS


def test_every_operator_has_a_unit():
    concrete = {
        kind
        for _, kind in inspect.getmembers(ops, inspect.isclass)
        if issubclass(kind, ops.Operator) and kind is not ops.Operator and kind.__name__[0] != "_"
    }
    assert concrete == set(UNITS)


class Polls(OperatorUnit):
    def __init__(self):
        pass

    def poll(self, watermark):
        pass


class Follows(TimedUnit):
    def __init__(self):
        pass


def test_only_units_that_do_something_at_a_step_are_asked():
    polls, follows = Polls(), Follows()
    assert that_do([polls, follows], "poll") == [polls]
    assert that_do([polls, follows], "advance") == [follows]
    assert that_do([polls, follows], "prepare_commit") == []
