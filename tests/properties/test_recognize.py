"""A function that is recognized gives what it gives when it is called: value, type and sign, or the same error.

The text of a function is drawn and compiled by the Python that runs the test; nothing here needs Spark, so every
supported Python can run it:

    python3.13 -m pytest tests/properties/test_recognize.py
"""

from __future__ import annotations

import contextlib
import functools
import os
from types import FunctionType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millstream.runtime.base.recognize import (
    Argument,
    Constant,
    Field,
    Sum,
    Tuple,
    expression_of,
    keeps_nothing,
    kept_fields,
    never_returns,
    pair_of,
    subscript_of,
    timestamp_subscript_of,
)

EXAMPLES = int(os.environ.get("MILLSTREAM_EXAMPLES", "300"))

constants = st.one_of(
    st.integers(-300, 300),
    st.sampled_from([2**63, -(2**70), 255, 256, 257]),
    st.booleans(),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, 1e300]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "a", "k", "it's", '"', "\n", "\\", "{}", "é"]),
    st.sampled_from([b"", b"a", None, ..., 1j, -0j, (), (1, True), (1.0, -0.0)]),
).map(repr)
# Numbers that have no text of their own.
constants = constants | st.sampled_from(["1e999", "-1e999", "(1e999,)"])

names = ("v", "w")


def expressions(of: tuple[str, ...]) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(of) | constants
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds("{}[{}]".format, st.sampled_from(of), inner),
            st.builds("({}, {})".format, inner, inner),
            st.builds("({}, {}, {})".format, inner, inner, inner),
            st.builds("({},)".format, inner),
            st.builds("({} + {})".format, inner, inner),
            st.builds("({} - {})".format, inner, inner),
            st.builds("-{}".format, inner),
            st.builds("[{}]".format, inner),
            st.builds("({} and {})".format, inner, inner),
            st.builds("({} if {} else {})".format, inner, inner, inner),
            st.builds("str({})".format, inner),
        ),
        max_leaves=6,
    )


# How a function of some parameters and a body can be written. What `G` and `outer` are is in `_scope`.
shapes = st.sampled_from(
    [
        "f = lambda {p}: {e}",
        "def f({p}):\n    return {e}",
        "def f({p}):\n    'What it does.'\n    return {e}",
        "def f({p}):\n    x = {e}\n    return x",
        "def f({p}):\n    global G\n    return {e}",
        "def f({p}, *more):\n    return {e}",
        "def f({p}, **more):\n    return {e}",
        "def f({p}, *, more=1):\n    return {e}",
        "def f({p}, more=1):\n    return {e}",
        "def f({p}, /):\n    return {e}",
        "def f({p}):\n    yield {e}",
        "async def f({p}):\n    return {e}",
        "def f({p}):\n    try:\n        return {e}\n    except LookupError:\n        return 'caught'",
        "def f({p}):\n    {first} = 7\n    return {e}",
        "def f({p}):\n    del {first}\n    return {e}",
        "def f({p}):\n    def inner():\n        return {first}\n    return {e}",
        "def g():\n    {first} = 'outer'\n    return lambda x: {first}\nf = g()",
        "def f({p}):\n    return G",
        "@doubled\ndef f({p}):\n    return {e}",
        "f = partial(lambda x, {p}: {e}, 5)",
        "def f({p}):\n    for {first} in [1, 2]:\n        return {e}",
    ]
)


def doubled(function: Any) -> Any:
    @functools.wraps(function)
    def twice(*arguments: Any) -> Any:
        return function(*arguments), function(*arguments)

    return twice


def made(shape: str, parameters: tuple[str, ...], body: str) -> Any:
    scope: dict[str, Any] = {"G": "global", "doubled": doubled, "partial": functools.partial}
    text = shape.format(p=", ".join(parameters), e=body, first=parameters[0])
    exec(text, scope)
    return scope["f"]


values: st.SearchStrategy[Any] = st.sampled_from(
    [
        "word",
        "",
        5,
        True,
        (1, 2.0, True),
        ("a", 1),
        ("a", 1.5, "c"),
        [0, -0.0, False],
        {0: "zero", 1: "one", "k": "key"},
        {"a": 1},
        None,
        b"bytes",
        2.5,
    ]
)


def outcome(call: Any) -> Any:
    """What a call gives, with types, or the kind of its error."""
    try:
        return exact(call())
    except Exception as error:
        return "raised", type(error).__name__, str(error)


def exact(value: Any) -> Any:
    if type(value) in (tuple, list):
        return type(value).__name__, [exact(one) for one in value]
    return type(value).__name__, repr(value)


def evaluated(found: Any, arguments: tuple[Any, ...]) -> Any:
    """An expression's value, in the order of Python."""
    match found:
        case Argument(place):
            return arguments[place]
        case Constant(value):
            return value
        case Field(of, name):
            return evaluated(of, arguments)[evaluated(name, arguments)]
        case Sum(first, second):
            return evaluated(first, arguments) + evaluated(second, arguments)
        case Tuple(parts):
            return tuple(evaluated(one, arguments) for one in parts)
    raise AssertionError(found)


@settings(max_examples=EXAMPLES, deadline=None)
@given(shapes, expressions(("v",)), values)
@example("f = lambda {p}: {e}", "(v, True)", "a")
@example("f = lambda {p}: {e}", "(v, 1.0)", "a")
@example("f = lambda {p}: {e}", "(v, False)", "a")
@example("f = lambda {p}: {e}", "(v, 0.0)", "a")
@example("f = lambda {p}: {e}", "(v, -0.0)", "a")
@example("f = lambda {p}: {e}", "(v, 1e999)", "a")
@example("f = lambda {p}: {e}", "(v, None)", "a")
@example("f = lambda {p}: {e}", "v[True]", {1: "one"})
@example("f = lambda {p}: {e}", "v[1.0]", ("a", "b"))
@example("f = lambda {p}: {e}", "v[-1]", ("a", "b"))
def test_a_recognized_expression_gives_what_the_function_gives(
    shape: str, body: str, value: Any
) -> None:
    function = made(shape, ("v",), body)
    found = expression_of(function, 1)
    if found is not None:
        assert outcome(lambda: evaluated(found, (value,))) == outcome(lambda: function(value))
    pair = pair_of(function, "v")
    if pair is not None:
        assert outcome(lambda: eval(pair, {"v": value})) == outcome(lambda: function(value))
    subscript = subscript_of(function)
    if subscript is not None:
        text = f"v[{subscript!r}]"
        assert outcome(lambda: eval(text, {"v": value})) == outcome(lambda: function(value))


@settings(max_examples=EXAMPLES, deadline=None)
@given(shapes, expressions(names), values, values)
def test_a_recognized_function_of_two_gives_what_the_function_gives(
    shape: str, body: str, one: Any, two: Any
) -> None:
    function = made(shape, names, body)
    found = expression_of(function, 2)
    if found is not None:
        assert outcome(lambda: evaluated(found, (one, two))) == outcome(lambda: function(one, two))


@settings(max_examples=EXAMPLES, deadline=None)
@given(shapes, expressions(("v", "t", "self")), values)
def test_a_recognized_timestamp_is_what_the_method_gives(shape: str, body: str, value: Any) -> None:
    function = made(shape, ("self", "v", "t"), body)
    if type(function) is not FunctionType:
        return
    holder = type("Assigner", (), {"extract_timestamp": function})()
    field = timestamp_subscript_of(holder.extract_timestamp)
    if field is not None:
        called = outcome(lambda: holder.extract_timestamp(value, 99))
        assert outcome(lambda: value[field]) == called


adding = st.lists(
    st.sampled_from(["{a}[{i}]", "{a}[{i}] + {b}[{i}]", "{a}[{i}] + {a}[{i}]", "{a}[{j}]"])
    | st.sampled_from(["{a}[{i}] + 1", "{a}[True]", "{a}[0.0]", "{a}[{i}] + {b}[{j}]"]),
    min_size=1,
    max_size=4,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(shapes, adding, st.lists(st.booleans(), min_size=4, max_size=4), st.data())
def test_fields_that_are_kept_are_kept_and_nesting_does_not_matter(
    shape: str, parts: list[str], turned: list[bool], data: st.DataObject
) -> None:
    body = ", ".join(
        part.format(i=i, j=(i + 1) % len(parts), a=names[turned[i]], b=names[not turned[i]])
        for i, part in enumerate(parts)
    )
    function = made(shape, names, f"({body},)")
    kept = kept_fields(function)
    if not kept:
        return
    records = st.tuples(
        *(st.just(f"key{i}") if i in kept else st.integers(0, 9) for i in range(len(parts)))
    )
    a, b, c = (data.draw(records) for _ in range(3))
    assert all(function(a, b)[i] == a[i] for i in kept)
    assert exact(function(function(a, b), c)) == exact(function(a, function(b, c)))


@pytest.mark.parametrize(
    ("text", "constant"),
    [(f"(v, {c})", c) for c in ("1", "'x'", "True", "0.0", "-0.0", "300", "None", "b''")],
)
def test_the_common_pairs_are_recognized(text: str, constant: str) -> None:
    assert pair_of(eval(f"lambda v: {text}"), "x") == f"(x, {constant})"


def test_the_common_selectors_and_reductions_are_recognized() -> None:
    assert [subscript_of(eval(f"lambda v: v[{c!r}]")) for c in (0, 1, 300, -1, "k")] == [
        0,
        1,
        300,
        -1,
        "k",
    ]
    assert kept_fields(lambda a, b: (a[0], a[1] + b[1])) == {0}
    assert kept_fields(lambda a, b: (b[0], b[1] + a[1], a[2])) == {0, 2}


bodies = st.sampled_from(["None", "a", "0", "a or None", "a and None", "None if a else b", "[]"])


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.sampled_from(
        [
            "def f(a, b): return {e}",
            "def f(a, b):\n    if a: return None\n    return {e}",
            "def f(a, b):\n    if b: raise KeyError(a)\n    return {e}",
            "def f(a, b):\n    for x in (a, b):\n        if x: return {e}",
            "def f(a, b):\n    try:\n        return {e}\n    finally:\n        b",
            "def f(a, b): yield {e}",
            "def f(a, b): pass",
            "def f(a, b): raise NotImplementedError",
            "def f(a, b): raise NotImplementedError({e})",
        ]
    ),
    bodies,
    st.sampled_from([0, 1, "", [], (1,)]),
    st.sampled_from([0, 1, None]),
)
def test_a_function_that_never_returns_gives_nothing(shape: str, body: str, a: Any, b: Any) -> None:
    scope: dict[str, Any] = {}
    exec(shape.format(e=body), scope)
    if not never_returns(scope["f"]):
        return
    with contextlib.suppress(KeyError, NotImplementedError):
        assert scope["f"](a, b) is None


def test_an_empty_merge_is_seen() -> None:
    def raises(a: Any, b: Any) -> Any:
        raise NotImplementedError

    def nothing(a: Any, b: Any) -> Any:
        pass

    assert never_returns(raises)
    assert never_returns(nothing)
    assert not never_returns(lambda a, b: a + b)


KEPT: list[Any] = []
NOTHING_YET = None
LIMIT = 3


def helper(v: Any) -> Any:
    return v[:LIMIT]


def keeping_helper(v: Any) -> Any:
    KEPT.append(v)
    return v


class Methods:
    def without_self(self, v: Any) -> Any:
        return [one * 2 for one in v]

    def with_self(self, v: Any) -> Any:
        return [self for _ in v]

    def sets_self(self, v: Any) -> Any:
        self.last = v
        return v


def stores(v: Any) -> Any:
    global NOTHING_YET
    NOTHING_YET = v
    return v


def nested(v: Any) -> Any:
    def inner(x: Any) -> Any:
        return KEPT.append(x)

    return [inner(x) for x in v]


def imports(v: Any) -> Any:
    import sys

    sys.last_record = v
    return v


@pytest.mark.parametrize(
    "function",
    [
        lambda line: line.lower().split(),
        lambda v: (v[0], v[1] + 1),
        lambda d: d.get("k"),
        lambda v: [len(v), str(v), max(v, key=lambda x: x[0])],
        lambda v, n=2: v * n,
        lambda v: helper(v),
        helper,
        Methods().without_self,
        int,
        str.split,
    ],
)
def test_functions_that_keep_nothing(function: Any) -> None:
    assert keeps_nothing(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda v: KEPT.append(v),
        lambda v: keeping_helper(v),
        lambda v: NOTHING_YET,
        lambda v, kept=KEPT: kept.append(v),
        lambda v: v.tags,
        lambda v: (x for x in v),
        lambda v: map(str, v),
        lambda v: __import__("sys"),
        stores,
        nested,
        imports,
        lambda v: (yield v),
        Methods().with_self,
        Methods().sets_self,
        functools.lru_cache(helper),
        functools.partial(helper),
        KEPT.append,
        doubled(helper),
        Methods,
    ],
)
def test_functions_that_may_keep_something(function: Any) -> None:
    assert not keeps_nothing(function)
