"""Tests that cannot fail, and tests that sleep: the obvious kinds of both, found in the source of all tests."""

import ast
import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TREES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text())
    for path in sorted((ROOT / "tests").rglob("*.py"))
}
CHECKS = {"raises", "warns", "fail"}

# Where tests may sleep, and why waiting for something would not do.
HANGS = "hangs until it is cancelled, killed or timed out: the test is of that"
KNOWN = "a time that the figures have to show"
TAKES = "an answer that takes a time: others are under way meanwhile, or overtake it"
PACE = "the pace of a source or a function, so that a job lasts while something is done to it"
CHANCE = "the moment is to be any moment"
AWAY = "a server is away, or silent, for longer than its clients wait at first"
SLEEPERS = {
    "tests/integration/pipelined_programs.py:Forever.run": PACE,
    "tests/inprocess/test_pipelined.py:test_requests_are_answered.Slowly.async_invoke": TAKES,
    "tests/inprocess/test_pipelined.py:Slow.invoke": PACE,
    "tests/inprocess/test_pipelined.py:test_who_runs_ahead_waits_for_who_is_being_read": PACE,
    "tests/inprocess/test_pipelined.py:test_slow_records_are_read_one_by_one": PACE,
    "tests/inprocess/test_pipelined.py:test_nothing_is_left_of_a_job_that_failed_while_records_waited.fail": PACE,
    "tests/inprocess/test_figures.py:_slowly": KNOWN,
    "tests/integration/test_figures.py:test_all_of_them": PACE,
    "tests/integration/test_figures.py:test_back_pressure_and_latency": KNOWN,
    "tests/inprocess/test_options.py:_late_by_a_moment": KNOWN,
    "tests/waiting.py:_last": "everybody's waiting",
    "tests/chaos/chaos.py:_Run._kill_worker": CHANCE,
    "tests/chaos/chaos.py:_Run._restart_broker.run": CHANCE,
    "tests/chaos/chaos.py:_Run._to_the_end": CHANCE,
    "tests/chaos/leaders.py:_Run._strike": CHANCE,
    "tests/chaos/scaling.py:World.rescale_and_kill": CHANCE,
    "tests/chaos/scaling.py:World.upgrade_and_kill": CHANCE,
    "tests/inprocess/test_async.py:Backwards.async_invoke": TAKES,
    "tests/inprocess/test_async.py:Client._keep_alive": HANGS,
    "tests/inprocess/test_async.py:Echo.async_invoke": TAKES,
    "tests/inprocess/test_async.py:FailsOnce.async_invoke": TAKES,
    "tests/inprocess/test_async.py:Never.async_invoke": HANGS,
    "tests/inprocess/test_async.py:Stubborn.async_invoke": HANGS,
    "tests/inprocess/test_async.py:Twice.async_invoke": TAKES,
    "tests/inprocess/test_async.py:Unending.async_invoke": HANGS,
    "tests/inprocess/test_async.py:Unlucky.async_invoke": TAKES,
    "tests/inprocess/test_async.py:WithClient.async_invoke": HANGS,
    "tests/inprocess/test_async.py:test_time_in_which_the_loop_cannot_run_does_not_count.slow": TAKES,
    "tests/inprocess/test_async.py:test_unordered_gives_what_is_there.Slow.async_invoke": TAKES,
    "tests/integration/test_async.py:Ask.async_invoke": TAKES,
    "tests/integration/test_cancel.py:Busy.__call__": HANGS,
    "tests/integration/test_checkpoint_timeout.py:Slow.__call__": HANGS,
    "tests/integration/test_idle_source.py:Ticks.run": PACE,
    "tests/integration/test_kafka_sink.py:test_a_broker_that_goes_away_in_mid_epoch_is_waited_for.away": AWAY,
    "tests/integration/test_kafka_sink.py:test_a_transaction_that_ran_out_is_told_of_and_can_be_repeated.slow": AWAY,
    "tests/integration/test_kafka_source.py:test_a_broker_that_goes_away_for_a_while_is_waited_for": AWAY,
    "tests/integration/test_kafka_source.py:test_lag_is_known_for_each_partition": PACE,
    "tests/integration/test_shutdown.py:test_ctrl_c_while_spark_starts": CHANCE,
    "tests/integration/test_sources_and_sinks.py:Ticks.run": PACE,
    "tests/integration/test_sources_and_sinks.py:test_a_job_of_one_epoch_goes_on_where_its_savepoint_was.slow": PACE,
}

# Tests that pass if nothing is raised, or that check what is not always there, and why they may.
BY_ITS_NAME = (
    "runs the test of that name in tests/inprocess/test_crash_points.py, with another sink"
)
NOT_REFUSED = "check_fits raises what does not fit"
IF_RECOGNIZED = "examples in millstream.runtime.base.recognize show what is recognized, and run"
SILENT = {
    "tests/integration/test_postgres_crash_points.py::test_a_sink_that_is_not_found_again_is_refused": BY_ITS_NAME,
    "tests/integration/test_postgres_crash_points.py::test_an_edited_checkpoint_keeps_what_it_has_to_commit": (
        BY_ITS_NAME
    ),
    "tests/integration/test_postgres_crash_points.py::test_two_jobs_start_from_one_checkpoint_by_path": BY_ITS_NAME,
    "tests/unit/checkpoint/test_restore.py::test_an_operator_without_state_is_not_missed": NOT_REFUSED,
    "tests/unit/checkpoint/test_restore.py::test_what_is_missing_may_be_left_behind": NOT_REFUSED,
    "tests/unit/checkpoint/test_restore.py::test_without_keyed_state_the_number_of_key_groups_does_not_matter": (
        NOT_REFUSED
    ),
}
PERHAPS = {
    "tests/properties/test_recognize.py::test_a_recognized_expression_gives_what_the_function_gives": IF_RECOGNIZED,
    "tests/properties/test_recognize.py::test_a_recognized_function_of_two_gives_what_the_function_gives": (
        IF_RECOGNIZED
    ),
    "tests/properties/test_recognize.py::test_a_recognized_timestamp_is_what_the_method_gives": IF_RECOGNIZED,
}


def scopes(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Every node with the name of the function or class it stands in."""
    waiting = [("", tree)]
    while waiting:
        place, node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            place = f"{place}.{node.name}" if place else node.name
        yield place, node
        waiting += [(place, child) for child in ast.iter_child_nodes(node)]


def called(node: ast.AST) -> str:
    """The last name of what is called: `sleep` of `time.sleep(1)`; nothing if it is no call."""
    if not isinstance(node, ast.Call):
        return ""
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def sleeps(tree: ast.AST) -> set[str]:
    """Where something sleeps. `asyncio.sleep(0)` does not: it lets others run."""
    found = set()
    for place, node in scopes(tree):
        if called(node) == "sleep" and isinstance(node, ast.Call):
            whose = node.func.value if isinstance(node.func, ast.Attribute) else None
            known = whose is None or (
                isinstance(whose, ast.Name) and whose.id in ("time", "asyncio")
            )
            only_yields = [ast.unparse(argument) for argument in node.args] == ["0"]
            if known and not only_yields:
                found.add(place)
    return found


@functools.cache
def helpers() -> dict[str, set[str]]:
    """For each module, the functions that check something, themselves or by another one.

    A name is that of the module's own function, or of any in the tests, of which all have to.
    """
    calls: dict[tuple[str, str], set[str]] = {}
    for path, tree in TREES.items():
        for _, node in scopes(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = list(ast.walk(node))
                names = {called(one) for one in body}
                asserts = any(isinstance(one, ast.Assert) for one in body)
                calls.setdefault((path, node.name), set()).update(
                    names, {"fail"} if asserts else ()
                )
    known: set[tuple[str, str]] = set()
    while True:
        places: dict[str, list[bool]] = {}
        for place in calls:
            places.setdefault(place[1], []).append(place in known)
        anywhere = {name for name, each in places.items() if all(each)}
        found: dict[str, set[str]] = {}
        for path in TREES:
            own = {name for where, name in calls if where == path}
            found[path] = (
                CHECKS | (anywhere - own) | {name for where, name in known if where == path}
            )
        more = {place for place, names in calls.items() if names & found[place[0]]}
        if more == known:
            return found
        known = more


def every_test() -> Iterator[tuple[str, ast.FunctionDef]]:
    for path, tree in TREES.items():
        for place, node in scopes(tree) if Path(path).name.startswith("test_") else ():
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield f"{path}::{place}", node


def is_never_empty(node: ast.expr, known: set[str]) -> bool:
    """True of what a reader sees to have elements: a literal, a constant of the module, a range, and views of these."""
    match node:
        case ast.List(elts=several) | ast.Tuple(elts=several) | ast.Set(elts=several):
            return bool(several)
        case ast.Dict(keys=keys):
            return bool(keys)
        case ast.Constant():
            return True
        case ast.Name(id=name):
            return name.isupper() or name in known
        case ast.IfExp(body=one, orelse=other):
            return is_never_empty(one, known) and is_never_empty(other, known)
        case ast.Subscript(value=value) | ast.BinOp(left=value, op=ast.Mult()):
            return is_never_empty(value, known)
        case ast.Call(func=ast.Name(id="range" | "count")):
            return True
        case ast.Call(func=ast.Attribute(value=value, attr="items" | "keys" | "values" | "split")):
            return is_never_empty(value, known)
        case ast.Call(args=arguments) if arguments:
            return all(is_never_empty(one, known) for one in arguments)
    return False


def certain(test: ast.AST) -> Iterator[ast.AST]:
    """What is reached whenever the test is: not the bodies of conditions, and of loops that may have no round."""
    known = {
        node.targets[0].id
        for node in ast.walk(test)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.List | ast.Tuple | ast.Dict)
        and is_never_empty(node.value, set())
    }
    waiting = [test]
    while waiting:
        node = waiting.pop()
        yield node
        for child in ast.iter_child_nodes(node):
            perhaps = isinstance(child, ast.If) and not child.orelse
            perhaps = perhaps or (
                isinstance(child, ast.For) and not is_never_empty(child.iter, known)
            )
            waiting += [] if perhaps else [child]


def says_nothing(condition: ast.expr) -> bool:
    """True of what is true whatever the code does."""
    match condition:
        case ast.Constant() | ast.Tuple() | ast.JoinedStr() | ast.Lambda() | ast.GeneratorExp():
            return True
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(isinstance(one, ast.Constant) for one in values)
        case ast.Compare(left=left, comparators=others):
            return all(isinstance(one, ast.Constant) for one in (left, *others))
    return False


def without_a_check(reached: Callable[[ast.AST], Iterator[ast.AST]]) -> set[str]:
    known = helpers()
    return {
        name
        for name, test in every_test()
        if not any(
            isinstance(node, ast.Assert) or called(node) in known[name.partition("::")[0]]
            for node in reached(test)
        )
    }


def test_every_test_checks_something():
    assert without_a_check(ast.walk) == set(SILENT)


def test_no_test_checks_only_what_may_be_nothing():
    """A loop over nothing checks nothing: say first that there is something."""
    assert without_a_check(certain) == {*SILENT, *PERHAPS}


def test_no_assertion_is_always_true():
    assert [
        f"{path}:{node.lineno}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert) and says_nothing(node.test)
    ] == []


def test_nobody_sleeps_without_a_reason():
    found = {f"{path}:{place}" for path, tree in TREES.items() for place in sleeps(tree)}
    assert found == set(SLEEPERS)


@pytest.mark.parametrize(
    "text",
    [
        "assert True",
        "assert 'a message'",
        "assert (x, 'a tuple')",
        "assert x or True",
        "assert 1 == 1",
        "assert (n for n in x)",
    ],
)
def test_an_assertion_that_is_always_true_is_found(text):
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.Assert)
    assert says_nothing(node.test)


@pytest.mark.parametrize(
    "text", ["assert x", "assert x == 1", "assert x or y", "assert f(1) == f(1)"]
)
def test_an_assertion_that_may_fail_is_left_alone(text):
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.Assert)
    assert not says_nothing(node.test)


def test_a_loop_over_what_may_be_empty_is_found():
    empty = ast.parse("for n in found():\n    assert n")
    full = ast.parse("for n in (1, 2):\n    assert n")
    assert not any(isinstance(node, ast.Assert) for node in certain(empty))
    assert any(isinstance(node, ast.Assert) for node in certain(full))


def test_sleep_is_found_by_each_of_its_names():
    text = "def f():\n    time.sleep(1)\nclass C:\n    async def g(self):\n        await asyncio.sleep(2)\n"
    assert sleeps(ast.parse(text)) == {"f", "C.g"}
    assert sleeps(ast.parse("def f():\n    sleep(1)")) == {"f"}
    assert sleeps(ast.parse("def f():\n    asyncio.sleep(0); clock.sleep(1)")) == set()
