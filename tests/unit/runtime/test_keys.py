"""What makes two keys the same, and where each key lives: the same in every process, for ever."""

import subprocess
import sys
import textwrap
from collections import Counter
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum, IntEnum
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common.types import Row
from millstream.errors import KeySelectorError
from millstream.runtime.wire.keys import canonical, key_group, subtask_of, subtask_range


@dataclass(frozen=True)
class Place:
    name: str
    tags: frozenset = frozenset()


@dataclass
class Other:
    name: str
    tags: frozenset = frozenset()


class Pair(NamedTuple):
    a: int
    b: int


class Colour(Enum):
    RED = 1


class Number(IntEnum):
    ONE = 1


DISTINCT = [
    1,
    1.0,
    True,
    "1",
    b"1",
    bytearray(b"1"),
    None,
    [1],
    (1,),
    [1.0],
    (True,),
    ((1,),),
    {1},
    frozenset({1}),
    {1: 1},
    Row(1),
    Row(a=1),
    Row(b=1),
    (1, 2),
    Pair(1, 2),
    [1, 2],
    Place("x"),
    Other("x"),
    Place("x", frozenset({"t"})),
    Colour.RED,
    Number.ONE,
    np.int64(1),
    np.int32(1),
    Decimal(1),
    date(2026, 1, 1),
    UUID(int=1),
    1 + 0j,
    "",
    b"",
    (),
    [],
    0,
    -0.0,
    0.0,
]


def test_all_kinds_of_keys_are_told_apart():
    canons = {}
    for key in DISTINCT:
        canon = canonical(key)
        assert canon not in canons, f"{key!r} is taken for {canons[canon]!r}"
        canons[canon] = key


def test_strings_and_ints_stand_for_themselves():
    assert canonical("a") == "a"
    assert canonical(2**70) == 2**70
    assert type(canonical(True)) is bytes


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("a" * 2, ["b"]), ("aa", ["b"])),
        (frozenset(range(0, 160, 8)), frozenset(reversed(range(0, 160, 8)))),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (Row(a=[1]), Row(a=[1])),
        (Place("x", frozenset({8, 16, 24})), Place("x", frozenset({24, 16, 8}))),
        (float("nan"), float("nan")),
        ((Place("x"), [Pair(1, 2)]), (Place("x"), [Pair(1, 2)])),
    ],
    ids=str,
)
def test_equal_keys_have_one_canonical_form(one, two):
    assert canonical(one) == canonical(two)


KEYS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary(max_size=8),
    lambda inner: (
        st.tuples(inner, inner)
        | st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=2), inner, max_size=3)
        | st.frozensets(st.text(max_size=2) | st.integers(), max_size=4)
        | st.builds(Row, inner)
    ),
    max_leaves=8,
)  # fmt: skip


def exact(value):
    """A value with the types of all its parts, so that == tells 1 from 1.0 from True."""
    if isinstance(value, Row):
        return "Row", [exact(one) for one in value]
    if isinstance(value, list | tuple):
        return type(value), [exact(one) for one in value]
    if isinstance(value, dict):
        return dict, {(type(k), k): exact(v) for k, v in value.items()}
    if isinstance(value, frozenset):
        return frozenset, frozenset((type(one), one) for one in value)
    return type(value), repr(value)


@given(KEYS, KEYS)
def test_same_canonical_form_means_equal_and_of_equal_types(one, two):
    assert (canonical(one) == canonical(two)) == (exact(one) == exact(two))


SCRIPT = textwrap.dedent(
    """
    import pickle, sys
    from millstream.common.types import Row
    from millstream.runtime.wire.keys import canonical, key_group

    keys = pickle.loads(sys.stdin.buffer.read())
    keys += [frozenset({"a", "b", "c", "d"}), {"x", "y", "z"}, {"b": 1, "a": {"q", "r"}},
             Row(k="v", s=frozenset("abcdef")), (1, "a", frozenset({"p", "q", "r"}))]
    for key in keys:
        canon = canonical(key)
        print(repr(canon), key_group(canon, 32768))
    """
)


def run_worker(keys, seed):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=keys,
        capture_output=True,
        env={"PYTHONHASHSEED": seed, "PATH": "", "PYTHONPATH": ":".join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


def classes_of_a_script():
    """As classes of `__main__` are in a worker: not to be found by their name."""

    @dataclass(frozen=True)
    class User:
        name: str

    class Spot(NamedTuple):
        x: int

    class Kind(Enum):
        A = 1

    return [
        User("a"),
        User("b"),
        Spot(1),
        Kind.A,
        (User("a"), 1),
        [User("a"), {"k": Spot(2)}],
        Row(u=User("a")),
    ]


def test_canonical_forms_are_the_same_in_every_process():
    import cloudpickle

    keys = [key for key in DISTINCT if type(key).__module__ != __name__] + classes_of_a_script()
    sent = cloudpickle.dumps(keys)
    one, two = run_worker(sent, "1"), run_worker(sent, "2")
    assert one == two
    here = [canonical(key) for key in keys]
    assert one[: len(keys)] == [f"{canon!r} {key_group(canon, 32768)}" for canon in here]
    assert len(set(here)) == len(keys)


def test_a_key_that_refers_to_itself_is_an_error():
    cyclic = []
    cyclic.append(cyclic)
    with pytest.raises(KeySelectorError, match="key of type list cannot be serialized"):
        canonical(cyclic)


def test_key_groups_never_change():
    # Part of every checkpoint: if one of these numbers changes, old state is not found again.
    groups = {
        "": 0,
        "a": 55,
        "ä": 77,
        0: 97,
        1: 96,
        -1: 102,
        2**64: 75,
    }
    assert {key: key_group(canonical(key), 128) for key in groups} == groups
    others = [1.5, True, None, b"x", ("a", 1), [1], Row("a"), Row(a=1)]
    assert [key_group(canonical(key), 128) for key in others] == [73, 100, 68, 12, 99, 12, 112, 22]


@pytest.mark.parametrize(
    "keys",
    [
        [str(n) for n in range(20_000)],
        list(range(20_000)),
        [n * 128 for n in range(20_000)],
        [("user", n) for n in range(20_000)],
    ],
    ids=["texts", "numbers", "multiples of 128", "tuples"],
)
def test_keys_spread_evenly(keys):
    counts = Counter(key_group(canonical(key), 128) for key in keys)
    mean = len(keys) / 128
    # Five standard deviations of a fair spread.
    assert all(abs(counts[group] - mean) < 5 * mean**0.5 for group in range(128))
    for parallelism in (2, 3, 4, 7):
        loads = Counter()
        for group, count in counts.items():
            loads[subtask_of(group, parallelism, 128)] += count
        fair = len(keys) / parallelism
        assert all(abs(loads[i] - fair) < 0.12 * fair for i in range(parallelism))


@pytest.mark.parametrize("maximum", [1, 2, 7, 128, 200])
def test_ranges_and_owners_agree(maximum):
    for parallelism in range(1, maximum + 1):
        ranges = [subtask_range(i, parallelism, maximum) for i in range(parallelism)]
        assert [group for one in ranges for group in one] == list(range(maximum))
        for i, owned in enumerate(ranges):
            assert len(owned) >= 1
            assert all(subtask_of(group, parallelism, maximum) == i for group in owned)


@given(st.integers(1, 32768), st.data())
def test_owner_is_flinks_formula(maximum, data):
    parallelism = data.draw(st.integers(1, maximum))
    group = data.draw(st.integers(0, maximum - 1))
    owner = subtask_of(group, parallelism, maximum)
    assert owner == group * parallelism // maximum
    assert group in subtask_range(owner, parallelism, maximum)
