"""Rolling aggregations: their results for every kind of record, and whose state is whose."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest

from millstream.api.functions import ReduceFunction
from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.errors import InvalidArgument, TypeMismatchError
from millstream.runtime.operators.aggregate import isolate
from tests.support import collect, environment, keeping

EPOCHS = pytest.mark.parametrize("epoch", [1, 2, None], ids=["each", "two", "whole"])


class Bid(NamedTuple):
    key: str
    price: int
    who: str


@dataclass
class Sale:
    key: str
    price: int
    who: str


@dataclass(frozen=True)
class Fixed:
    key: str
    price: int
    who: str


class Slotted:
    __slots__ = ("key", "price", "who")

    def __init__(self, key, price, who):
        self.key, self.price, self.who = key, price, who

    def __repr__(self):
        return f"{self.key} {self.price} {self.who}"

    def __eq__(self, other):
        return repr(self) == repr(other)

    def __hash__(self):
        return hash(repr(self))


INPUT = [("k", 3, "a"), ("k", 1, "b"), ("k", 4, "c"), ("k", 1, "d"), ("k", 4, "e")]
EXPECTED = {
    "sum": [("k", n, "a") for n in (3, 4, 8, 9, 13)],
    "min": [("k", n, "a") for n in (3, 1, 1, 1, 1)],
    "max": [("k", n, "a") for n in (3, 3, 4, 4, 4)],
    "min_by": [INPUT[i] for i in (0, 1, 1, 1, 1)],
    "max_by": [INPUT[i] for i in (0, 0, 2, 2, 2)],
}
SHAPES = {
    "tuple": (lambda r: r, 1),
    "list": (list, 1),
    "row": (lambda r: Row(*r), 1),
    "named row": (lambda r: Row(key=r[0], price=r[1], who=r[2]), "price"),
    "named row by position": (lambda r: Row(key=r[0], price=r[1], who=r[2]), 1),
    "named tuple": (lambda r: Bid(*r), "price"),
    "named tuple by position": (lambda r: Bid(*r), 1),
    "dict": (lambda r: dict(zip(("key", "price", "who"), r, strict=True)), "price"),
    "dataclass": (lambda r: Sale(*r), "price"),
    "frozen dataclass": (lambda r: Fixed(*r), "price"),
    "slots": (lambda r: Slotted(*r), "price"),
}


def all_kinds(records, field, epoch, then=None):
    """The results of all five aggregations of one field, by kind; `then` is mapped over them."""
    env = environment(epoch=epoch)
    keyed = env.from_collection(records).key_by(lambda r: "k")
    with keeping() as kept:
        for kind in EXPECTED:
            stream = getattr(keyed, kind)(field)
            kept.add(kind, stream if then is None else stream.map(then))
        env.execute()
        return {kind: kept.values(kind) for kind in EXPECTED}


@EPOCHS
@pytest.mark.parametrize("shape", SHAPES)
def test_rolling(shape, epoch):
    make, field = SHAPES[shape]
    records = [make(record) for record in INPUT]
    got = all_kinds(records, field, epoch)
    assert got == {kind: [make(record) for record in EXPECTED[kind]] for kind in EXPECTED}
    assert {type(one) for results in got.values() for one in results} == {type(records[0])}


@EPOCHS
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("sum", [3, 4, 8]),
        ("min", [3, 1, 1]),
        ("max", [3, 3, 4]),
        ("min_by", [3, 1, 1]),
        ("max_by", [3, 3, 4]),
    ],
)
def test_scalars_have_position_0(kind, expected, epoch):
    keyed = environment(epoch=epoch).from_collection([3, 1, 4]).key_by(lambda r: 0)
    assert collect(getattr(keyed, kind)()) == expected


@pytest.mark.parametrize("kind", EXPECTED)
def test_scalars_have_no_other_position(kind):
    keyed = environment().from_collection([3, 1, 4]).key_by(lambda r: 0)
    with pytest.raises(TypeMismatchError, match="position 0"):
        collect(getattr(keyed, kind)(1))


@pytest.mark.parametrize("field", [-1, -2, True, 1.0, None])
def test_positions_that_cannot_be(field):
    keyed = environment().from_collection([(1, 2)]).key_by(0)
    with pytest.raises(InvalidArgument, match="position or name"):
        keyed.sum(field)


def test_keys_do_not_meet():
    records = [("a", 1), ("b", 10), ("a", 2), ("b", 20)]
    stream = environment(epoch=1).from_collection(records).key_by(0).sum(1)
    assert collect(stream) == [("a", 1), ("b", 10), ("a", 3), ("b", 30)]


def test_short_first_record_and_longer_ones_after_it():
    records = [("a", 1), ("a", 2, "more"), ["a", 3], Row("a", 4)]
    stream = environment().from_collection(records).key_by(lambda r: 0).sum(1)
    assert collect(stream) == [("a", 1), ("a", 3), ("a", 6), ("a", 10)]


def test_declared_types_wrap_and_keep_their_names():
    most = 2**31 - 1
    row = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.INT()])
    source = environment(epoch=1).from_collection([("a", most), ("a", 1), ("a", 1)], row)
    assert collect(source.key_by("k").sum("n")) == [
        Row(k="a", n=most),
        Row(k="a", n=-(2**31)),
        Row(k="a", n=-(2**31) + 1),
    ]


@pytest.mark.parametrize("kind", ["min", "max", "min_by", "max_by"])
def test_text_has_an_order_too(kind):
    keyed = environment().from_collection(["b", "a", "c"]).key_by(lambda r: 0)
    want = {"min": "baa", "max": "bbc", "min_by": "baa", "max_by": "bbc"}[kind]
    assert "".join(collect(getattr(keyed, kind)())) == want


# -- state is not shared with anybody (rule 45) ----------------------------------------------------


def spoil(value):
    """What a careless map does to a record it has been given."""
    before = repr(value)
    if isinstance(value, list | Row):
        value[1] = -1000
    elif isinstance(value, dict):
        value["price"] = -1000
    elif isinstance(value, tuple):
        value[2].append("spoilt")
    else:
        value.price = -1000
    return before


MUTABLE = {
    name: SHAPES[name] for name in ("list", "row", "named row", "dict", "dataclass", "slots")
}
MUTABLE["tuple with a list"] = (lambda r: (r[0], r[1], [r[2]]), 1)


@EPOCHS
@pytest.mark.parametrize("shape", MUTABLE)
def test_changing_what_was_emitted_does_not_change_the_state(shape, epoch):
    make, field = MUTABLE[shape]
    records = [make(record) for record in INPUT]
    got = all_kinds(records, field, epoch, then=spoil)
    assert got == {kind: [repr(make(record)) for record in EXPECTED[kind]] for kind in EXPECTED}


@EPOCHS
def test_pairs_with_something_mutable_in_them(epoch):
    """The shortcut for (key, number) must not share the key either."""
    keyed = environment(epoch=epoch).from_collection([(["k"], 1)] * 3).key_by(lambda r: 0)

    def grow(value):
        before = repr(value)
        value[0].append("spoilt")
        return before

    assert collect(keyed.sum(1).map(grow)) == ["(['k'], 1)", "(['k'], 2)", "(['k'], 3)"]


@EPOCHS
def test_reduce_may_change_its_arguments(epoch):
    def extend(so_far, value):
        so_far.extend(value)
        value.clear()
        return so_far

    keyed = environment(epoch=epoch).from_collection([[1], [2], [3]]).key_by(lambda r: 0)
    assert collect(keyed.reduce(extend)) == [[1], [1, 2], [1, 2, 3]]


@EPOCHS
def test_what_reduce_emitted_may_be_changed(epoch):
    def empty(value):
        copy = list(value)
        value.clear()
        return copy

    keyed = environment(epoch=epoch).from_collection([[1], [2], [3]]).key_by(lambda r: 0)
    got = collect(keyed.reduce(lambda a, b: a + b).map(empty))
    assert got == [[1], [1, 2], [1, 2, 3]]


@EPOCHS
def test_reduce_may_return_its_second_argument(epoch):
    keyed = environment(epoch=epoch).from_collection([[1], [2], [3]]).key_by(lambda r: 0)
    got = collect(keyed.reduce(lambda a, b: b).map(lambda v: (v.append(0), len(v))[1]))
    assert got == [2, 2, 2]


@EPOCHS
def test_two_branches_do_not_spoil_each_others_state(epoch):
    env = environment(epoch=epoch)
    keyed = env.from_collection([["k", 1], ["k", 2], ["k", 3]]).key_by(lambda r: r[0])
    sums = keyed.sum(1).map(lambda v: (v.append("x"), v)[1])
    tops = keyed.max(1).map(lambda v: (v.append("y"), v)[1])
    assert sorted(collect(sums.union(tops))) == sorted(
        [["k", n, "x"] for n in (1, 3, 6)] + [["k", n, "y"] for n in (1, 2, 3)]
    )


def test_the_first_record_passes_reduce_unseen():
    class Never(ReduceFunction):
        def reduce(self, value1, value2):
            raise AssertionError("one record alone is not reduced")

    keyed = environment().from_collection([1, 2, 3]).key_by(lambda n: n)
    assert collect(keyed.reduce(Never())) == [1, 2, 3]


def test_none_is_a_value():
    keyed = environment(epoch=1).from_collection([None, 1, None]).key_by(lambda n: 0)
    assert collect(keyed.reduce(lambda a, b: (a, b))) == [None, (None, 1), ((None, 1), None)]


def test_isolate_copies_only_what_can_change():
    for value in ["a", 1, 1.5, None, b"x", ("a", 1), ()]:
        assert isolate(value) is value
    inner = [1]
    for value in [[1], {"a": 1}, Row(1), ("a", inner), bytearray(b"x"), {1}]:
        copy = isolate(value)
        assert copy == value
        assert copy is not value
    assert isolate(("a", inner))[1] is not inner


# -- what does not fit -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "call", "parts"),
    [
        ([("a", "x")], ("sum", 1), ["sum(1)", "needs a number", "str"]),
        ([("a", 1), ("a", "x")], ("sum", 1), ["sum(1)", "'int' and 'str'", "('a', 'x')"]),
        ([("a", "x"), ("a", 1)], ("sum", 1), ["sum(1)", "needs a number"]),
        ([("a",)], ("sum", 1), ["sum(1)", "no field 1", "('a',)"]),
        ([("a", 1), ("a",)], ("sum", 1), ["sum(1)", "no field 1", "('a',)"]),
        ([["a", 1, 2], ["a", 1]], ("max_by", 2), ["max_by(2)", "no field 2", "['a', 1]"]),
        ([{"k": 1}], ("min", "n"), ["min('n')", "no field 'n'", "{'k': 1}"]),
        ([{"n": 1}, {"k": 1}], ("min", "n"), ["min('n')", "no field 'n'", "{'k': 1}"]),
        ([Row(k=1)], ("max", "n"), ["max('n')", "no field 'n'", "Row(k=1)"]),
        ([Row(1)], ("sum", "n"), ["sum('n')", "no field 'n'", "<Row(1)>"]),
        ([(1, 2)], ("sum", "n"), ["sum('n')", "no field 'n'", "(1, 2)"]),
        ([{"k": 1}, {"k": 2}], ("sum", 0), ["sum(0)", "needs a number", "dict"]),
        ([{"k": 1}, {"k": 2}], ("max", 0), ["max(0)", "dict"]),
        ([("a", 1), ("a", None)], ("min", 1), ["min(1)", "NoneType", "('a', None)"]),
        ([("a", None)], ("sum", 1), ["sum(1)", "needs a number", "NoneType"]),
        ([3, "x"], ("max_by", 0), ["max_by(0)", "'str' and 'int'"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("epoch", [1, None])
def test_records_that_do_not_fit(records, call, parts, epoch):
    kind, field = call
    keyed = environment(epoch=epoch).from_collection(records).key_by(lambda r: 0)
    with pytest.raises(TypeMismatchError) as caught:
        collect(getattr(keyed, kind)(field))
    text = str(caught.value)
    for part in [*parts, "what to do"]:
        assert part in text
    assert caught.value.evidence["operator"] == kind.title().replace("_", "")
    assert "position" in caught.value.evidence
