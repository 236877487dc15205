"""The receiving side puts buffers in one order, whatever order they arrive in."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.runtime.wire.input import InputQueue, ordered
from millstream.runtime.wire.rows import RowBatch


def batches_of(rows, sizes):
    """Arrow batches with the given numbers of rows, the rest in a last one."""
    rows = list(rows)
    for size in [*sizes, len(rows)]:
        batch = RowBatch()
        for row in rows[:size]:
            batch.add(*row)
        rows = rows[size:]
        yield batch.take()


ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 6), st.integers(-5, 3)),
    unique=True,
    max_size=60,
)


@given(ROWS, st.randoms(use_true_random=False), st.integers(0, 400), st.data())
def test_order_does_not_depend_on_arrival(keys, shuffler, memory, data):
    # (target, channel, sequence, edge, payload)
    rows = [(*key, f"{key}".encode() * (1 + key[2])) for key in keys]
    arriving = list(rows)
    shuffler.shuffle(arriving)
    sizes = data.draw(st.lists(st.integers(0, 10), max_size=6))
    got = list(ordered(batches_of(arriving, sizes), memory))
    expected = sorted(rows, key=lambda row: (row[2], row[1], row[3], row[0]))
    assert [(r.target, r.channel, r.sequence, r.edge) for r in got] == [r[:4] for r in expected]
    assert [memoryview(r.payload).tobytes() for r in got] == [r[4] for r in expected]


def test_sequence_counts_before_channel():
    rows = [(0, 1, 0, 0, b"c1s0"), (0, 0, 1, 0, b"c0s1"), (0, 0, 0, 0, b"c0s0")]
    got = [bytes(one.payload) for one in ordered(batches_of(rows, []), 1 << 20)]
    assert got == [b"c0s0", b"c1s0", b"c0s1"]


def test_what_is_first_comes_before_all_others_but_announcements():
    # (target, channel, sequence, edge, payload)
    rows = [
        (0, 0, 0, 1, b"data 0"),
        (0, 1, 1, 2, b"first 1"),
        (0, 0, -1, 1, b"announced"),
        (0, 1, 0, 2, b"first 0"),
        (0, 0, 1, 1, b"data 1"),
    ]
    got = [bytes(one.payload) for one in ordered(batches_of(rows, []), 1 << 20, {2})]
    assert got == [b"announced", b"first 0", b"first 1", b"data 0", b"data 1"]


def test_what_does_not_fit_goes_to_disk_and_comes_back():
    rows = [(0, 0, n, 0, bytes([n % 256]) * 1000) for n in range(100)]
    random.Random(1).shuffle(rows)
    queue = InputQueue(memory=10_000)
    for batch in batches_of(rows, [7] * 14):
        queue.add_batch(batch)
    # Every second batch of 7 brings more than fits; the last 2 rows stay in memory.
    assert queue.spilled_bytes == 98_000
    got = list(queue.drain())
    assert [one.sequence for one in got] == list(range(100))
    assert all(bytes(one.payload) == bytes([n]) * 1000 for n, one in enumerate(got))


def test_what_fits_stays_in_memory():
    queue = InputQueue(memory=1000)
    for batch in batches_of([(0, 0, 0, 0, b"x" * 1000)], []):
        queue.add_batch(batch)
    assert queue.spilled_bytes == 0
    assert queue._file is None


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_empty(memory):
    assert list(ordered(batches_of([], []), memory)) == []


def test_empty_payloads_survive_spilling():
    queue = InputQueue(memory=0)
    for batch in batches_of([(0, 0, 1, 0, b""), (0, 0, 0, 0, b"x"), (0, 0, 2, 0, b"")], []):
        queue.add_batch(batch)
    assert [bytes(one.payload) for one in queue.drain()] == [b"x", b"", b""]


def test_payloads_are_let_go_one_by_one():
    queue = InputQueue()
    for batch in batches_of([(0, 0, n, 0, b"x") for n in range(3)], []):
        queue.add_batch(batch)
    drained = queue.drain()
    next(drained)
    next(drained)
    assert [one is None for one in queue._in_memory] == [True, True, False]
