"""What an interval join keeps, and what it knows of it, while files of others are applied and attempts are given up."""

from __future__ import annotations

import pytest

from millstream.api.join_functions import ProcessJoinFunction
from millstream.common.constants import MAX_TIME
from millstream.graph.operators import IntervalJoinOp, Key
from millstream.runtime.operators.interval_join import JoinedIntervals, Times
from millstream.runtime.state.hash_tables import make_hash_table
from millstream.runtime.state.keyed_state import KeyContext
from millstream.runtime.state.table import Table


class Pair(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        return [(left, right)]


class Bench:
    """A join over tables that the test can do to what a store does."""

    def __init__(self, lower: int, upper: int) -> None:
        self.keys = KeyContext()
        self.left, self.right = (make_hash_table(name, "list") for name in ("left", "right"))
        self.out: list = []
        op = IntervalJoinOp(Pair(), (Key(field=0), Key(field=0)), lower, upper, (None, None))
        self.join = JoinedIntervals(
            op,
            self.keys,
            (self.left, self.right),
            lambda value, at: self.out.append((value, at)),
            (None, None),
        )

    @property
    def tables(self) -> list[Table]:
        return [self.left, self.right]

    def process(self, side: int, key: str, value: str, at: int) -> list:
        self.keys.key = self.keys.canon = key
        (self.join.process1 if side == 1 else self.join.process2)(value, at)
        found, self.out = [pair for pair, _ in self.out], []
        return found

    def end_epoch(self) -> list:
        written = [list(table.delta()) for table in self.tables]
        for table in self.tables:
            table.absorb()
        return written

    def read(self, written: list) -> None:
        for table, blocks in zip(self.tables, written, strict=True):
            for kind, entries in blocks:
                table.apply(kind, entries, None)

    def give_up(self) -> None:
        for table in self.tables:
            table.discard()

    def left_over(self) -> list:
        return [key for table in self.tables for key in table.keys()]  # noqa: SIM118


@pytest.mark.parametrize("used", [False, True])
def test_another_process_goes_on(used):
    one, two = Bench(-5, 5), Bench(-5, 5)
    if used:
        assert two.process(1, "b", "l", 1) == []
        two.give_up()
    one.process(1, "a", "l3", 3)
    one.process(1, "a", "l1", 1)
    two.read(one.end_epoch())
    assert two.process(2, "a", "r2", 2) == [("l1", "r2"), ("l3", "r2")]
    one.read(two.end_epoch())
    assert one.process(1, "a", "l2", 2) == [("l2", "r2")]
    one.join.advance(6)
    two.read(one.end_epoch())
    assert two.process(2, "a", "r6", 6) == [("l2", "r6"), ("l3", "r6")]
    two.join.advance(MAX_TIME)
    one.read(two.end_epoch())
    assert one.left_over() == two.left_over() == []
    assert one.join.process1.__self__._mine.times.of("a") is None


def test_an_attempt_that_is_given_up_leaves_nothing():
    bench = Bench(0, 9)
    bench.process(1, "a", "l1", 1)
    bench.end_epoch()
    bench.process(1, "a", "gone", 2)
    bench.join.advance(10)
    bench.give_up()
    bench.join.watermark = 0
    assert bench.process(2, "a", "r", 3) == [("l1", "r")]


def test_a_timestamp_that_comes_again():
    """With an upper bound of 0 a left record is gone once the watermark is there, and what comes then is not late."""
    bench = Bench(-5, 0)
    bench.process(1, "a", "l", 5)
    bench.end_epoch()
    bench.join.advance(5)
    bench.process(1, "a", "again", 5)
    assert bench.process(2, "a", "r", 5) == [("again", "r")]
    assert bench.join.dropped_late == 0
    bench.process(1, "a", "late", 4)
    assert bench.join.dropped_late == 1
    bench.end_epoch()
    assert bench.process(2, "a", "r", 5) == [("again", "r")]
    bench.join.advance(MAX_TIME)
    bench.end_epoch()
    assert bench.left_over() == []


def test_timestamps_at_the_end_of_time():
    bench = Bench(0, 10)
    bench.process(1, "a", "l", MAX_TIME - 1)
    assert bench.process(2, "a", "r", MAX_TIME) == [("l", "r")]


def test_timestamps_are_known_once():
    table = make_hash_table("t", "list")
    times = Times(table)
    times.refresh()
    for at in (5, 1, 3, 3, 5, 7):
        times.add("a", at)
    assert times.of("a") == [1, 3, 5, 7]
    for at in (3, 4, 8):
        times.remove("a", at)
    times.remove("b", 1)
    assert times.of("a") == [1, 5, 7]
    assert (times.first(), times.take_first()) == (1, ["a"])
    # It is known that nothing is left there.
    assert (times.first(), times.take_first()) == (3, [])
    times.add("a", 3)
    assert (times.first(), times.take_first()) == (3, ["a"])
    times.clear()
    assert times.of("a") is None
    assert times.first() is None


def test_a_table_that_is_read_anew_is_known_in_order():
    table = make_hash_table("t", "list")
    table.apply("A", [(("a", at), ["x"]) for at in (5, 9, 1, 7, 3)], None)
    times = Times(table)
    times.refresh()
    assert times.of("a") == [1, 3, 5, 7, 9]
    found = []
    while (first := times.first()) is not None:
        found.append((first, times.take_first()))
    assert found == [(at, ["a"]) for at in (1, 3, 5, 7, 9)]
