"""Savepoints of every version so far are restored, at several parallelisms, and go on exactly."""

from __future__ import annotations

import msgspec
import pytest

from millstream.checkpoint.manifest import METADATA, decode_manifest, encode_manifest
from tests.compat.programs import FIRST, SAVEPOINTS, SECOND, start, wait_for

VERSIONS = sorted(path.name for path in SAVEPOINTS.iterdir())


def run(count, seen, parallelism, path=None):
    out: list[object] = []
    client = start(count, out, parallelism, path)
    wait_for(out, count - seen)
    client.cancel().result(60)
    return sorted(map(repr, (one for one in out if one[0] != "ruled"))), [  # type: ignore[index, misc]
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


@pytest.mark.parametrize("version", VERSIONS)
def test_a_manifest_is_written_with_the_names_that_it_was_read_with(version):
    """Whatever its fields are called in the code: drivers of versions before this one read it too."""
    data = (SAVEPOINTS / version / METADATA).read_bytes()
    manifest = decode_manifest(METADATA, data)
    assert any(store.segments for store in manifest.stores.values())
    assert manifest.offsets.keys() == {"numbers", "factors"}, "sources go by uid"
    before, after = (
        msgspec.json.decode(body.partition(b"\n")[2]) for body in (data, encode_manifest(manifest))
    )
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("version", VERSIONS)
def test_restore(version, parallelism, uninterrupted):
    results, ruled = run(SECOND, FIRST, parallelism, SAVEPOINTS / version)
    assert results == uninterrupted
    # Broadcast state is there from the first record on.
    assert ruled == [("rule", 1)] * (SECOND - FIRST)
