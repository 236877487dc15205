"""Savepoints with keys, states and windows of every kind are restored,
also those that name modules as they were called."""

from __future__ import annotations

import pytest

from tests.compat import kinds


def run(folder, parallelism, backend, path=None, seen=0):
    """Run to the end of the input, and end it."""
    out = []
    client = kinds.start(out, parallelism, path, backend, str(folder / "files"))
    kinds.wait_for(client, out, kinds.COUNT - seen)
    kinds.finish(client, str(folder / "end"))
    return kinds.lines(out)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return run(tmp_path_factory.mktemp("uninterrupted"), 2, "hashmap")


@pytest.mark.parametrize("backend", kinds.BACKENDS)
@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("savepoint", kinds.written())
def test_every_kind_of_key_and_value_is_found_again(
    savepoint, parallelism, backend, uninterrupted, tmp_path
):
    path, before = kinds.unpack(savepoint, tmp_path)
    seen = sum(line.startswith("ruled\t") for line in before.elements())
    assert 0 < seen < kinds.COUNT
    after = run(tmp_path, parallelism, backend, path, seen)
    together = before + after
    # How often the loop goes round before its end, and when the first rule comes, is left to chance.
    assert certain(together) == certain(uninterrupted)
    assert any(line.startswith("again\tRow(n=0,") for line in after)
    assert max(together[line] for line in together if line.startswith("again")) == 1
    ruled = [line for line in after.elements() if line.startswith("ruled")]
    assert len(ruled) == kinds.COUNT - seen
    assert all(line.endswith(", TimeWindow(start=1, end=5), Row(value=0))") for line in ruled)


def certain(lines):
    return {line: n for line, n in lines.items() if not line.startswith(("again\t", "ruled\t"))}
