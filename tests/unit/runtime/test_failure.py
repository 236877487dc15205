"""From an exception to an error that names the operator, the user's line, the record and its position."""

from __future__ import annotations

import operator as calls
from pathlib import Path
from types import SimpleNamespace

import pytest

from millstream.common.types import Row
from millstream.errors import (
    InvalidArgument,
    JobError,
    KeySelectorError,
    MillstreamError,
    RecordNotSerializable,
    SinkError,
    SourceError,
    TypeMismatchError,
    UserFunctionError,
)
from millstream.graph.operators import (
    FeedbackOp,
    FilterOp,
    FlatMapOp,
    Key,
    MapOp,
    ProcessOp,
    RollingOp,
    SinkFunctionOp,
    SinkOp,
)
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.in_operator import in_operator
from millstream.runtime.base.user_lines import user_line, user_traceback
from millstream.runtime.codegen.code import Code, Location
from millstream.runtime.task.failure import explain, explain_call, explain_decoding, explain_source

# -- a program -------------------------------------------------------------------------------------------------------


def helper(value):
    raise ValueError(f"no good: {value}")


def fails(value):
    return helper(value)


def fails_in_engine(value):
    """As an operator does that refuses what it is given."""
    raise InvalidArgument("this will not do", value=repr(value))


def node(operator=None, *, name="double", id=1, guarded=False):  # noqa: A002
    policy = SimpleNamespace(kind="skip") if guarded else None
    return StreamNode(
        id=id,
        name=name,
        operator=operator or MapOp(fails),
        parallelism=1,
        max_parallelism=128,
        uid=name,
        slot_sharing_group="default",
        chaining="always",
        output_type=None,
        buffer_timeout=100,
        declared_at="program.py:7: stream.map(fails)",
        description="",
        is_sink=False,
        error_policy=policy,
    )


def chain_of(
    function, own=None, role="run", *, line="{f}(v1)", declared_at=None, located=True, variable="v1"
):
    """A chain of one operator, whose only line of generated code is `line`."""
    own = own or node()
    code = Code("<millstream chain of test_failure>")
    bound = code.bind(function, "f")
    with code.function("input_0", "records"), code.block("for v1 in records:"):
        if located:
            code.location = Location(own.id, role, variable, declared_at)
        code.line(line.format(f=bound))
    chain = SimpleNamespace(
        module=code.finish(["input_0"]), nodes={own.id: own}, vertex=SimpleNamespace(name="vertex")
    )
    [chain.run] = chain.module.build()
    return chain


POSITION = "split 's', record {index} of these"


def failure_of(chain, records=("good",), remaining=3, position=POSITION):
    """What is made of the failure of a chain."""
    try:
        chain.run(records)
    except Exception as error:
        return explain(error, chain, remaining, position)
    return pytest.fail("it did not fail")


def line_of(words):
    """A line of this file as errors show it."""
    for number, text in enumerate(Path(__file__).read_text(encoding="utf-8").splitlines(), 1):
        if words in text:
            return f"{__file__}:{number} in "
    raise LookupError(words)


# -- failures of functions -------------------------------------------------------------------------------------------


def test_a_failure_of_a_function_names_everything_one_needs_to_find_it():
    error = failure_of(chain_of(fails))
    assert type(error) is UserFunctionError
    assert error.what == "the function of 'double' raised ValueError: no good: good"
    assert error.hint is None
    assert list(error.evidence) == [
        "operator",
        "line",
        "record",
        "position",
        "declared_at",
        "traceback",
    ]
    assert error.evidence["operator"] == "double"
    assert error.evidence["record"] == "'good'"
    assert error.evidence["position"] == "split 's', record 3 of these"
    assert error.evidence["declared_at"] == "program.py:7: stream.map(fails)"
    # The deepest line of the user's own file.
    assert error.evidence["line"].startswith(line_of('raise ValueError(f"no good') + "helper: ")
    trace = error.evidence["traceback"]
    assert "return helper(value)" in trace
    assert trace.endswith("ValueError: no good: good\n")
    assert "millstream chain" not in trace


@pytest.mark.parametrize(
    ("records", "record"), [(["a"], "'a'"), ([("k", 1)], "('k', 1)"), (["x" * 500], "'xxx")]
)
def test_the_record_is_the_one_that_the_line_had_in_hand(records, record):
    assert failure_of(chain_of(fails), records).evidence["record"].startswith(record)
    assert len(failure_of(chain_of(fails), records).evidence["record"]) < 150


def test_where_the_record_is_not_kept_the_error_says_so():
    assert failure_of(chain_of(fails, variable="v9")).evidence["record"] == "'<not kept>'"


def test_a_record_without_a_number():
    assert failure_of(chain_of(fails), remaining=None).evidence["position"] == (
        "split 's', record ? of these"
    )


@pytest.mark.parametrize(
    ("operator", "role", "kind", "what", "hint"),
    [
        (MapOp(fails), "run", UserFunctionError, "the function of 'double' raised", None),
        (
            MapOp(fails),
            "key",
            KeySelectorError,
            "the key selector after 'double' raised",
            "must give a key for every record",
        ),
        (
            MapOp(fails),
            "key 'user'",
            KeySelectorError,
            "the record after 'double' has no key 'user': ValueError",
            "needs that field in every record",
        ),
        (
            MapOp(fails),
            "timestamp",
            UserFunctionError,
            "the timestamp assigner of 'double' raised",
            "must give a timestamp for every record",
        ),
        (
            MapOp(fails),
            "partition",
            UserFunctionError,
            "the partitioner after 'double' raised",
            None,
        ),
        (SinkFunctionOp(None), "run", SinkError, "the sink 'double' raised", None),
        (SinkOp(None), "run", SinkError, "the sink 'double' raised", None),
        (FeedbackOp(0), "run", SinkError, "the sink 'double' raised", None),
        # What stands before a sink is not the sink.
        (SinkOp(None), "key", KeySelectorError, "the key selector after 'double' raised", "must"),
    ],
)
def test_the_role_of_a_line_says_what_failed(operator, role, kind, what, hint):
    error = failure_of(chain_of(fails, node(operator), role))
    assert type(error) is kind
    assert error.what.startswith(what)
    assert (error.hint is None) if hint is None else (hint in error.hint)


def test_a_key_by_behind_an_operator_has_a_line_of_its_own():
    error = failure_of(chain_of(fails, role="key", declared_at="program.py:8: .key_by(fails)"))
    assert error.evidence["declared_at"] == "program.py:8: .key_by(fails)"


# -- what is not iterable --------------------------------------------------------------------------------------------


def gives(value):
    return value


ITERATES = "for v2 in {f}(v1): pass"


@pytest.mark.parametrize(
    ("operator", "what", "hint"),
    [
        (FlatMapOp(gives), "returned int, which is not iterable", "flat_map must return"),
        (ProcessOp(gives), "returned int, which is not iterable", "None for no records"),
        # A builtin and a class leave no trace when they raise, so it may be their own failure; and a map gives one.
        (FlatMapOp(calls.index), "raised TypeError: 'int' object is not iterable", None),
        (FlatMapOp(int), "raised TypeError: 'int' object is not iterable", None),
        (MapOp(gives), "raised TypeError: 'int' object is not iterable", None),
    ],
)
def test_a_result_that_is_not_iterable(operator, what, hint):
    error = failure_of(chain_of(gives, node(operator), line=ITERATES), [7])
    assert type(error) is UserFunctionError
    assert error.what == f"the function of 'double' {what}"
    assert (error.hint is None) if hint is None else (hint in error.hint)


def iterates_itself(value):
    return [one for one in value]  # noqa: C416


def test_a_function_that_iterates_over_a_number_has_itself_failed():
    error = failure_of(chain_of(iterates_itself, node(FlatMapOp(iterates_itself))), [7])
    assert error.what.endswith("raised TypeError: 'int' object is not iterable")
    assert error.hint is None


class LooksLike(Exception):
    pass


def test_other_errors_with_the_same_words_are_no_results():
    error = LooksLike("'int' object is not iterable")
    made = failure_of(chain_of(error, node(FlatMapOp(gives)), line="raise {f}"))
    assert made.what == "the function of 'double' raised LooksLike: 'int' object is not iterable"


# -- errors of Millstream's own --------------------------------------------------------------------------------------


def test_an_error_that_says_what_failed_is_told_who_and_where():
    error = failure_of(chain_of(fails_in_engine))
    assert type(error) is InvalidArgument
    assert error.what == "this will not do"
    assert error.evidence["operator"] == "double"
    assert error.evidence["position"] == "split 's', record 3 of these"
    assert error.evidence["declared_at"] == "program.py:7: stream.map(fails)"
    assert error.evidence["line"].startswith(line_of('raise InvalidArgument("this will not do"'))
    # The record is said once.
    assert error.evidence["record"] == "'good'"
    assert "value" not in error.evidence


def knows_more(value):
    raise InvalidArgument(
        "this will not do",
        operator="another",
        record="a part",
        line="a line",
        position="a place",
        value="something else",
        hint="do that",
    )


def test_what_the_error_knows_better_stays():
    error = failure_of(chain_of(knows_more, role="type"))
    assert error.evidence == {
        "operator": "another",
        "record": "a part",
        "line": "a line",
        "position": "a place",
        "value": "something else",
        "declared_at": "program.py:7: stream.map(fails)",
    }
    assert error.hint == "do that"


def wraps(value):
    try:
        helper(value)
    except ValueError as error:
        raise InvalidArgument("wrapped") from error


def test_the_line_is_that_of_the_cause():
    error = failure_of(chain_of(wraps))
    assert error.evidence["line"].startswith(line_of('raise ValueError(f"no good') + "helper: ")


@pytest.mark.parametrize(
    ("role", "hint"),
    [
        ("type", "return what the operator's output_type says, or change the output_type"),
        ("key", "return what the key_type of key_by says, or change the key_type"),
        ("key 'user'", "return what the key_type of key_by says, or change the key_type"),
        ("run", None),
    ],
)
def test_what_to_do_where_a_declared_type_was_not_met(role, hint):
    assert failure_of(chain_of(fails_in_engine, role=role)).hint == hint


# -- aggregations ----------------------------------------------------------------------------------------------------


ROLLING = node(RollingOp(Key(field=0), "sum", 1), name="sum")


@pytest.mark.parametrize(
    ("record", "what"),
    [
        (("a", "text"), "sum(1) on 'sum'"),
        (("a",), "sum(1) on 'sum': the record has no field 1"),
        (Row("a"), "sum(1) on 'sum': the record has no field 1"),
    ],
)
def test_a_record_that_cannot_be_added_up(record, what):
    error = failure_of(chain_of(None, ROLLING, line="1 + v1[1]"), [record])
    assert type(error) is TypeMismatchError
    assert error.what.startswith(what)
    assert error.evidence["operator"] == "sum"


@pytest.mark.parametrize(
    ("function", "role", "line"),
    [
        # Another role, another class of failure, a failure of the user's code: not the aggregation's.
        (None, "key", "1 + v1[1]"),
        (None, "run", "1 / 0"),
        (lambda value: 1 + value[1], "run", "{f}(v1)"),
    ],
)
def test_other_failures_at_an_aggregation(function, role, line):
    error = failure_of(chain_of(function, ROLLING, role, line=line), [("a", "text")])
    assert type(error) is not TypeMismatchError


# -- timers and windows ----------------------------------------------------------------------------------------------


def timed(function, own, chain_function=fails):
    """A chain in which time sets off something in the operator."""
    chain = chain_of(chain_function, own)
    chain.run = in_operator(own, function)
    return chain


def test_what_time_sets_off_in_an_operator_is_its_failure():
    error = failure_of(timed(fails, node(id=12)), 50, None, "at watermark 50")
    assert type(error) is UserFunctionError
    assert error.what == "the function of 'double' raised ValueError: no good: 50"
    assert error.evidence["position"] == "at watermark 50"
    assert error.evidence["declared_at"] == "program.py:7: stream.map(fails)"
    assert "helper: " in error.evidence["line"]
    assert "record" not in error.evidence
    assert error.evidence["traceback"].endswith("ValueError: no good: 50\n")


def test_an_error_of_our_own_that_time_sets_off():
    def refuses(value):
        raise InvalidArgument("this will not do", operator="window", declared_at="elsewhere")

    error = failure_of(timed(refuses, node(id=12)), 50, None, "at watermark 50")
    assert type(error) is InvalidArgument
    assert error.evidence["operator"] == "window"
    assert error.evidence["declared_at"] == "program.py:7: stream.map(fails)"
    assert error.evidence["position"] == "at watermark 50"


def test_generated_code_below_an_operator_is_where_it_failed():
    own = node(id=12, name="below")
    chain = chain_of(fails, own)
    run = chain.run
    chain.run = in_operator(node(id=13, name="above"), lambda watermark: run([watermark]))
    chain.nodes[13] = node(id=13, name="above")
    error = failure_of(chain, 50, None, "at watermark 50")
    assert error.evidence["operator"] == "below"
    assert error.evidence["record"] == "50"


def test_an_operator_below_generated_code_is_where_it_failed():
    own = node(id=12, name="above")
    below = node(id=13, name="below")
    chain = chain_of(in_operator(below, fails), own)
    chain.nodes[13] = below
    error = failure_of(chain, [50])
    assert error.evidence["operator"] == "below"


@pytest.mark.parametrize(
    ("guarded", "remaining", "told"),
    [(True, None, True), (True, 0, False), (True, 3, False), (False, None, False)],
)
def test_a_policy_for_bad_records_is_not_for_what_has_no_record(guarded, remaining, told):
    error = failure_of(timed(fails, node(id=12, guarded=guarded)), 50, remaining)
    assert ("a policy is about records" in error.evidence.get("on_error", "")) is told


def test_the_policy_of_another_operator_is_not_spoken_of():
    chain = timed(fails, node(id=12))
    chain.nodes[13] = node(id=13, name="another", guarded=True)
    assert "on_error" not in failure_of(chain, 50, None).evidence


# -- where no line is known ------------------------------------------------------------------------------------------


def test_a_failure_outside_of_generated_code_says_all_it_knows():
    chain = chain_of(fails)
    chain.run = fails
    error = failure_of(chain)
    assert type(error) is JobError
    assert error.what == "'vertex' failed: ValueError: no good: ('good',)"
    assert "in helper" in error.evidence["traceback"]


def test_an_error_of_our_own_outside_of_generated_code_stays_as_it_is():
    chain = chain_of(fails)
    chain.run = fails_in_engine
    error = failure_of(chain)
    assert type(error) is InvalidArgument
    assert "operator" not in error.evidence


def test_a_line_of_nobody():
    error = failure_of(chain_of(fails, located=False))
    assert type(error) is JobError
    assert error.what == "'vertex' failed: ValueError: no good: good"


# -- calls without a record ------------------------------------------------------------------------------------------


def raised(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return error
    return pytest.fail("it did not fail")


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        (MapOp(fails), UserFunctionError),
        (FilterOp(fails), UserFunctionError),
        (SinkFunctionOp(None), SinkError),
        (SinkOp(None), SinkError),
        (FeedbackOp(0), SinkError),
    ],
)
def test_a_call_that_has_no_record(operator, kind):
    error = explain_call(raised(fails, 1), node(operator), "open()")
    assert type(error) is kind
    assert error.what == "open() of 'double' raised ValueError: no good: 1"
    assert error.evidence["operator"] == "double"
    assert error.evidence["declared_at"] == "program.py:7: stream.map(fails)"
    assert "helper: " in error.evidence["line"]
    # The frame of the one who called is not the user's.
    assert "in raised" not in error.evidence["traceback"]
    assert "in fails" in error.evidence["traceback"]


def test_a_call_that_failed_with_an_error_of_our_own():
    error = explain_call(raised(fails_in_engine, 1), node(), "open()")
    assert type(error) is InvalidArgument
    assert error.what == "this will not do"
    assert error.evidence["value"] == "1"
    assert error.evidence["operator"] == "double"
    assert error.evidence["declared_at"] == "program.py:7: stream.map(fails)"
    assert "fails_in_engine: " in error.evidence["line"]


def test_what_an_error_of_our_own_says_of_a_call_stays():
    error = explain_call(raised(knows_more, 1), node(), "open()")
    assert (error.evidence["operator"], error.evidence["line"]) == ("another", "a line")
    assert error.hint == "do that"


@pytest.mark.parametrize("explained", [explain_call, explain_source])
def test_an_exception_that_was_never_raised_has_no_line(explained):
    error = explained(ValueError("x"), node(), "open()")
    assert "line" not in error.evidence
    assert "traceback" not in error.evidence


def test_records_that_cannot_be_read_back():
    error = explain_decoding(ValueError("x"), node())
    assert type(error) is RecordNotSerializable
    assert error.what == "records sent to 'double' cannot be read back"
    assert error.evidence == {
        "operator": "double",
        "declared_at": "program.py:7: stream.map(fails)",
        "cause": "ValueError: x",
    }
    assert "pickled" in error.hint


def test_a_source_that_cannot_be_read():
    error = explain_source(raised(fails, 1), node(name="numbers"), "position 5")
    assert type(error) is SourceError
    assert error.what == "the source 'numbers' raised ValueError: no good: 1"
    assert error.evidence["position"] == "position 5"
    assert error.evidence["declared_at"] == "program.py:7: stream.map(fails)"
    assert "helper: " in error.evidence["line"]
    assert "in raised" not in error.evidence["traceback"]


def test_a_source_that_says_itself_what_failed():
    error = explain_source(raised(knows_more, 1), node(name="numbers"), "position 5")
    assert type(error) is InvalidArgument
    assert error.evidence["source"] == "numbers"
    assert error.evidence["position"] == "a place"
    assert error.hint == "do that"
    assert isinstance(error, MillstreamError)


# -- the user's lines ------------------------------------------------------------------------------------------------


def test_a_failure_that_went_through_no_code_of_the_user_has_no_line():
    assert user_line(None) is None
    assert user_traceback(ValueError("x"), None) is None
    # Only frames of Millstream.
    error = raised(checked_by_engine)
    below = error.__traceback__.tb_next.tb_next
    assert user_line(below) is None
    assert user_traceback(error, below) is None


def checked_by_engine():
    from millstream.runtime.time.timers import checked_time

    checked_time("x", "call")


def test_the_line_is_the_deepest_one_in_the_file_of_the_function_and_not_in_a_library():
    import json

    error = raised(lambda: json.loads("{"))
    below = error.__traceback__.tb_next
    assert user_line(below).startswith(line_of('raised(lambda: json.loads("{"))'))
    # The traceback shows the library too.
    assert "json" in user_traceback(error, below)


def test_secrets_in_lines_are_not_shown():
    def connects():
        raise ValueError(dict(password="open sesame"))  # noqa: C408

    error = raised(connects)
    below = error.__traceback__.tb_next
    assert "open sesame" not in user_line(below)
    assert "open sesame" not in user_traceback(error, below)
