"""Files that are not what was written: the job goes on from what is whole, or is refused by the file's name. Never is
a result wrong."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import msgspec
import pytest

from millstream.api.sink import Committer, DeliveryGuarantee, Sink, SinkWriter
from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.checkpoint.lease import LEASE_NAME, Lease, LeaseRecord
from millstream.checkpoint.manifest import decode_manifest
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from millstream.errors import JobLocked, MillstreamError
from millstream.graph.operators import CollectOp
from millstream.runtime.driver import epochs
from millstream.storage.storage import LocalStorage
from tests.support import environment
from tests.waiting import until

FIRST, ALL, EPOCH = 60, 80, 10


class Numbers(Source):
    def __init__(self, count, bounded):
        self.count = count
        self.bounded = bounded

    def boundedness(self):
        return Boundedness.BOUNDED if self.bounded else Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, parallelism):
        return _Splits(self)

    def create_reader(self):
        return _Reader()


class _Splits(SplitEnumerator):
    def __init__(self, source):
        self._source = source

    def discover(self):
        return ["only"]

    def available(self, split, position):
        return self._source.count

    def finished(self, split, position):
        return self._source.bounded and position == self._source.count


class _Reader(SourceReader):
    def read(self, split, start, end):
        return range(start, end)


class Tally(KeyedProcessFunction):
    def open(self, ctx):
        self.count = ctx.get_state(ValueStateDescriptor("count"))
        self.values = ctx.get_list_state(ListStateDescriptor("values"))
        self.seen = ctx.get_map_state(MapStateDescriptor("seen"))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        self.values.add(value)
        self.seen.put(value % 7, value)
        values = tuple(self.values.get())
        yield ctx.get_current_key(), self.count.value(), values, tuple(sorted(self.seen.items()))


def expected(count):
    """What `Tally` emits; a record's output never depends on when or how often it is computed."""
    out, lists = set(), {}
    for value in range(count):
        mine = lists.setdefault(value % 3, [])
        mine.append(value)
        seen = {v % 7: v for v in mine}
        out.add((value % 3, len(mine), tuple(mine), tuple(sorted(seen.items()))))
    return out


committed: list = []


class Once(Sink):
    """Exactly once: what it has committed cannot be taken back."""

    guarantee = DeliveryGuarantee.EXACTLY_ONCE

    def create_writer(self, context):
        return _OnceWriter()

    def create_committer(self):
        return _OnceCommitter()


class _OnceWriter(SinkWriter):
    def __init__(self):
        self._records = []

    def write(self, value):
        self._records.append(value)

    def prepare_commit(self):
        return msgspec.json.encode(self._records)

    def abort(self):
        return


class _OnceCommitter(Committer):
    def commit(self, epoch, committables):
        for one in committables:
            if (epoch, one) not in committed:
                committed.append((epoch, one))


def job(folder, count, *, out, bounded, once=False, savepoint=None):
    env = environment(1, EPOCH, execution__checkpointing__dir=folder)
    if savepoint is not None:
        env.get_configuration().set_string("execution.state-recovery.path", str(savepoint))
    source = Numbers(count, bounded)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    results = numbers.key_by(lambda n: n % 3).process(Tally()).uid("tally")
    results._sink("out", CollectOp(out.extend))
    if once:
        results.sink_to(Once()).uid("once")
    return env.execute_async("job")


def wait_for(out, count):
    until(lambda: len(out) >= count, saying=lambda: len(out))


def first_run(folder, *, compacting, once=False, savepoints=None):
    """A job that was cancelled, or stopped with a savepoint, after some epochs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            epochs, "needs_compaction", lambda segments: compacting and len(segments) >= 4
        )
        out: list = []
        client = job(folder, FIRST, out=out, bounded=False, once=once)
        wait_for(out, FIRST)
        if savepoints is not None:
            path = Path(client.stop_with_savepoint(False, str(savepoints)).result(30))
            client.get_job_execution_result().result(30)
            return path
        client.cancel().result(30)
    return Path(folder) / "job"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """What runs leave behind, made once."""
    base = tmp_path_factory.mktemp("runs")
    committed.clear()
    made = {
        "plain": first_run(base / "plain", compacting=False),
        "compacted": first_run(base / "compacted", compacting=True),
        "savepoint": first_run(base / "s1", compacting=False, savepoints=base / "savepoints"),
        "other": first_run(base / "s2", compacting=True, savepoints=base / "savepoints"),
        "once": first_run(base / "once", compacting=False, once=True),
    }
    made["committed"] = list(committed)
    return made


def manifests(folder):
    """The manifests of a job, oldest first."""
    return sorted(folder.glob("chk-*/_metadata"), key=lambda p: int(p.parent.name[4:]))


def find(folder, kind):
    """A file of a kind, and another of the same kind to swap it with."""
    if kind == "savepoint manifest":
        others = [p for p in folder.parent.glob("*/_metadata") if p.parent != folder]
        return folder / "_metadata", others[0]
    if kind.startswith("savepoint"):
        manifest = decode_manifest("", (folder / "_metadata").read_bytes())
    else:
        older, latest = manifests(folder)[-2:]
        if kind == "latest manifest":
            return latest, older
        if kind == "older manifest":
            return older, latest
        manifest = decode_manifest("", latest.read_bytes())
    segments = manifest.stores["tally/0"].segments
    files = {
        "full": [f for f in segments if f.full and not f.covers],
        "compacted": [f for f in segments if f.covers],
        "changes": [f for f in segments if not f.full],
        "latest changes": [f for f in segments[-1:] if not f.full],
    }
    found = files[kind.removeprefix("savepoint ")][0]
    other = next(f for f in reversed(segments) if f is not found)
    return folder / found.name, folder / other.name


def flip(place):
    def change(path, other):
        data = bytearray(path.read_bytes())
        at = random.Random(place).randrange(len(data))
        data[at] ^= 1 << random.Random(-place).randrange(8)
        path.write_bytes(data)

    return change


def cut(part):
    def change(path, other):
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * part)])

    return change


def cut_last(path, other):
    path.write_bytes(path.read_bytes()[:-1])


def empty(path, other):
    path.write_bytes(b"")


def remove(path, other):
    path.unlink()


def swap(path, other):
    path.write_bytes(other.read_bytes())


def append(path, other):
    path.write_bytes(path.read_bytes() + b"garbage")


DAMAGES = {
    **{f"flip {n}": flip(n) for n in range(6)},
    "cut to 1/10": cut(0.1),
    "cut to 1/2": cut(0.5),
    "cut to 9/10": cut(0.9),
    "cut by 1": cut_last,
    "empty": empty,
    "remove": remove,
    "swap": swap,
    "append": append,
}


def go_on(folder, out, **options):
    """Run the job to its end; the error that it was refused with, or None."""
    try:
        client = job(folder, ALL, out=out, bounded=True, **options)
        client.get_job_execution_result().result(60)
    except MillstreamError as error:
        return error
    return None


def damaged_copy(runs, name, tmp_path, kind, damage):
    folder = tmp_path / "checkpoints" / "job"
    shutil.copytree(runs[name], folder)
    path, other = find(folder if "savepoint" not in kind else runs[name], kind)
    if "savepoint" in kind:
        path = folder / path.relative_to(runs[name])
    DAMAGES[damage](path, other)
    return folder, path


def names(error, path):
    """The error says which file it was."""
    assert error.code in ("STATE_DAMAGED", "STATE_NOT_FOUND"), error
    assert path.name in str(error) or path.parent.name in str(error), error
    return True


# What stands in: the checkpoint before, which does not need the file.
FALLS_BACK = {"latest manifest", "latest changes"}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("run", "kind"),
    [
        ("plain", "latest manifest"),
        ("plain", "full"),
        ("plain", "changes"),
        ("plain", "latest changes"),
        ("compacted", "compacted"),
        ("compacted", "latest manifest"),
    ],
)
def test_a_damaged_checkpoint(runs, tmp_path, run, kind, damage):
    folder, path = damaged_copy(runs, run, tmp_path, kind, damage)
    out: list = []
    error = go_on(folder.parent, out)
    assert set(out) <= expected(ALL)
    if kind in FALLS_BACK:
        assert error is None
    if error is not None:
        assert names(error, path)
        assert not out
    else:
        late = {one for one in expected(ALL) if one[2][-1] >= FIRST}
        assert late <= set(out)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_that_is_not_needed(runs, tmp_path, damage):
    folder, _ = damaged_copy(runs, "plain", tmp_path, "older manifest", damage)
    out: list = []
    assert go_on(folder.parent, out) is None
    assert set(out) == expected(ALL) - expected(FIRST)


@pytest.mark.parametrize("damage", [one for one in DAMAGES if one != "remove"])
def test_a_damaged_manifest_after_a_commit(runs, tmp_path, damage):
    """Going back would commit again what has been committed."""
    check_refused(runs, tmp_path, "latest manifest", damage)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["full", "latest changes"])
def test_a_damaged_file_after_a_commit(runs, tmp_path, kind, damage):
    check_refused(runs, tmp_path, kind, damage)


def check_refused(runs, tmp_path, kind, damage):
    committed[:] = runs["committed"]
    folder, path = damaged_copy(runs, "once", tmp_path, kind, damage)
    out: list = []
    error = go_on(folder.parent, out, once=True)
    rows = [tuple(row[2]) for _, one in committed for row in msgspec.json.decode(one)]
    assert len(rows) == len(set(rows))
    if error is None:
        # The reserved bytes of a file, which nothing reads.
        assert damage.startswith("flip")
        assert len(rows) == ALL
    else:
        assert names(error, path)
        assert not out
        assert committed == runs["committed"]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["savepoint manifest", "savepoint full", "savepoint changes"])
def test_a_damaged_savepoint(runs, tmp_path, kind, damage):
    folder, path = damaged_copy(runs, "savepoint", tmp_path, kind, damage)
    out: list = []
    error = go_on(tmp_path / "new", out, savepoint=folder)
    if error is not None:
        # Another savepoint's manifest is whole; what it names is not here.
        assert (kind, damage) == ("savepoint manifest", "swap") or names(error, path)
        assert error.code in ("STATE_DAMAGED", "STATE_NOT_FOUND")
        assert not out
    else:
        assert damage.startswith("flip")
        assert set(out) == expected(ALL) - expected(FIRST)


def test_nothing_is_damaged(runs, tmp_path):
    """The cases above fail because of the damage."""
    shutil.copytree(runs["compacted"], tmp_path / "checkpoints" / "job")
    shutil.copytree(runs["savepoint"], tmp_path / "savepoint")
    for folder, path in (
        (tmp_path / "checkpoints", None),
        (tmp_path / "new", tmp_path / "savepoint"),
    ):
        out: list = []
        assert go_on(folder, out, savepoint=path) is None
        assert set(out) == expected(ALL) - expected(FIRST)
        assert len(out) == ALL - FIRST


# -- the lease -------------------------------------------------------------------------------------------------


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setitem(Lease.acquire.__func__.__kwdefaults__, "sleep", lambda seconds: None)


def other_lease(tmp_path):
    storage = LocalStorage(str(tmp_path / "other"))
    Lease.acquire(storage, "other")
    return tmp_path / "other" / LEASE_NAME


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_lease_of_a_driver_that_is_gone(runs, tmp_path, damage, no_waiting):
    folder = tmp_path / "checkpoints" / "job"
    shutil.copytree(runs["plain"], folder)
    record = LeaseRecord(
        owner="gone", host="elsewhere", pid=1, process_start=1, job_name="job", counter=3,
        expires_at=0.0, ttl=10.0,
    )  # fmt: skip
    (folder / LEASE_NAME).write_bytes(msgspec.json.encode(record))
    DAMAGES[damage](folder / LEASE_NAME, other_lease(tmp_path))
    out: list = []
    assert go_on(folder.parent, out) is None
    assert set(out) == expected(ALL) - expected(FIRST)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_lease_of_a_driver_that_runs(tmp_path, damage):
    lease = Lease.acquire(LocalStorage(str(tmp_path / "job")), "job")
    DAMAGES[damage](tmp_path / "job" / LEASE_NAME, other_lease(tmp_path))
    lost = None
    try:
        lease.check()
    except JobLocked as error:
        lost = error
    # A flip may leave the owner's name as it was.
    assert lost is not None or damage.startswith("flip")
    assert lost is None or str(tmp_path / "job") in str(lost)
