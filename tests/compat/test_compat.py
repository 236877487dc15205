"""Savepoints of every version so far are restored, at several parallelisms, and go on exactly."""

from __future__ import annotations

import pytest

from tests.compat.programs import FIRST, SAVEPOINTS, SECOND, start, wait_for

VERSIONS = sorted(path.name for path in SAVEPOINTS.iterdir())


def run(count, seen, parallelism, path=None):
    out: list[object] = []
    client = start(count, out, parallelism, path)
    wait_for(out, count - seen)
    client.cancel().result(60)
    return sorted(map(repr, (one for one in out if one[0] != "ruled"))), [
        value for kind, value in out if kind == "ruled"
    ]


@pytest.fixture(scope="module")
def uninterrupted():
    """What the program gives without a savepoint, from the first number that comes after it."""
    before, _ = run(FIRST, 0, 2)
    everything, _ = run(SECOND, 0, 2)
    for one in before:
        everything.remove(one)
    return everything


def test_there_is_a_savepoint():
    assert VERSIONS


@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("version", VERSIONS)
def test_restore(version, parallelism, uninterrupted):
    results, ruled = run(SECOND, FIRST, parallelism, SAVEPOINTS / version)
    assert results == uninterrupted
    # Broadcast state is there from the first record on.
    assert ruled == [("rule", 1)] * (SECOND - FIRST)
