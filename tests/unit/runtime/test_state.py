"""State has a version per epoch: an attempt of epoch n sees version n-1, whatever else happens.

One contract, for every backend.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import pickle
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.api.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.checkpoint.manifest import Parent, StoreState
from millstream.checkpoint.statefile import StateFile
from millstream.common.time import Time
from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.errors import ConfigurationError, StateDamaged, StateError, StateMismatch
from millstream.runtime.state import store as store_module
from millstream.runtime.state.codec import codec_for
from millstream.runtime.state.hash_tables import make_hash_table
from millstream.runtime.state.keyed_state import KeyContext, KeyedStates
from millstream.runtime.state.store import StateStore, compact, extend_segments, needs_compaction
from millstream.runtime.state.table import DELETED, MISSING, ListChange, MapChange
from millstream.runtime.wire.keys import canonical, key_group, subtask_range
from millstream.storage.storage import LocalStorage, Storage

MAX = 128


class Memory(Storage):
    """Files in a dictionary, with a note of what was read."""

    def __init__(self):
        self.files = {}
        self.reads = []

    def write(self, name, data):
        self.files[name] = data

    def read(self, name):
        self.reads.append(name)
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def exists(self, name):
        return name in self.files

    def list(self, folder):
        return sorted(name for name in self.files if name.startswith(folder))

    def delete(self, name):
        self.files.pop(name, None)

    @property
    def root(self):
        return "memory"


def maker(backend, local, owner):
    """What makes the tables of a store, as a job's task would get it."""
    if backend == "hashmap":
        return make_hash_table
    from millstream.runtime.state.lmdb.store import LmdbStore

    return LmdbStore(str(local), "job", "x", owner).table


def version(segments, *, attempt="", parents=(), subtask=0, parallelism=1, operators=("op",)):
    return StoreState(
        subtask=subtask,
        parallelism=parallelism,
        max_parallelism=MAX,
        operators=list(operators),
        segments=list(segments),
        parents=list(parents),
        attempt=attempt,
    )


class Worker:
    """A process that runs attempts of epochs of one subtask with one state called "n"."""

    def __init__(self, backend, storage, local, name="w", owner="op/0", kind="value"):
        self.store = StateStore(
            storage, owner, operators=["op"], make_table=maker(backend, local, owner)
        )
        self.table = self.store.table("op/n", kind)
        self.name = name

    def open(self, segments, **kwargs):
        self.store.open(version(segments, **kwargs))
        return self.content()

    def content(self):
        read, kind = self.table.read, self.table.kind
        if kind == "map":
            return {key: dict(self.table.read_entries(key)) for key in list(self.table.keys())}
        return {key: read(key, MISSING) for key in list(self.table.keys())}

    def attempt(self, epoch, segments, writes=(), tag=""):
        """What the attempt saw when it began, and the file it wrote."""
        seen = self.open(segments)
        self.table.changes.update(writes)
        return seen, self.store.snapshot(epoch, f"{self.name}{tag}-{epoch}")


@pytest.fixture(params=["hashmap", "lmdb"])
def backend(request):
    if request.param == "lmdb":
        pytest.importorskip("lmdb")
    return request.param


@pytest.fixture
def storage():
    return Memory()


@pytest.fixture
def make(backend, storage, tmp_path):
    """Makes workers that share storage and, as processes of one machine, a disk."""
    return lambda name="w", **options: Worker(backend, storage, tmp_path / "local", name, **options)


# -- the law ------------------------------------------------------------------------------------------


def test_the_next_epoch_sees_what_the_last_one_wrote(make, storage):
    worker = make()
    seen, file = worker.attempt(0, [], {"a": 1})
    assert (seen, file.full, file.epoch) == ({}, True, 0)
    segments = extend_segments([], file)
    seen, file = worker.attempt(1, segments, {"b": 2})
    assert (seen, file.full) == ({"a": 1}, False)
    seen, file = worker.attempt(2, extend_segments(segments, file))
    assert (seen, file) == ({"a": 1, "b": 2}, None)
    assert worker.store.loads == 0, "what this process has written it need not read"
    assert worker.store.rebuilds == 0


def test_a_retry_sees_the_version_before_the_epoch(make):
    worker = make()
    _, first = worker.attempt(0, [], {"a": 1})
    segments = [first]
    _, lost = worker.attempt(1, segments, {"a": 2, "x": 9}, "lost")
    seen, won = worker.attempt(1, segments, {"a": 3}, "won")
    assert seen == {"a": 1}
    assert lost.name != won.name
    seen, _ = worker.attempt(2, extend_segments(segments, won))
    assert seen == {"a": 3}


def test_a_retry_of_the_first_epoch_sees_nothing(make):
    worker = make()
    worker.attempt(0, [], {"a": 1}, "lost")
    seen, _ = worker.attempt(0, [], {"a": 2})
    assert seen == {}


def test_a_failed_attempt_leaves_no_trace(make):
    worker = make()
    _, first = worker.attempt(0, [], {"a": 1})
    worker.open([first])
    worker.table.changes["a"] = 99
    seen, _ = worker.attempt(1, [first])
    assert (seen, worker.table.changes) == ({"a": 1}, {})


def test_a_zombies_file_is_ignored(make, storage):
    worker, zombie = make("worker"), make("zombie")
    _, first = worker.attempt(0, [], {"a": 1})
    _, won = worker.attempt(1, [first], {"a": 2})
    segments = extend_segments([first], won)
    _, ghost = zombie.attempt(1, [first], {"a": 666, "ghost": 1})
    assert ghost.name in storage.files
    assert worker.attempt(2, segments)[0] == {"a": 2}
    assert zombie.attempt(2, segments)[0] == {"a": 2}


def test_a_zombie_sees_its_version_while_successors_go_on(make):
    zombie, worker = make("zombie"), make("worker")
    _, first = worker.attempt(0, [], {f"k{n}": n for n in range(50)})
    zombie.open([first])
    zombie.table.changes["k1"] = "zombie"
    segments = [first]
    for epoch in range(1, 6):
        _, file = worker.attempt(epoch, segments, {f"k{n}": n + epoch for n in range(50)})
        segments = extend_segments(segments, file)
    assert worker.open(segments)["k7"] == 12
    assert [zombie.table.read(f"k{n}", None) for n in range(2, 50)] == list(range(2, 50))
    zombie.store.snapshot(1, "zombie")
    assert make("late").open(segments) == {f"k{n}": n + 5 for n in range(50)}


def test_the_loser_takes_over_the_winners_file(make, storage, backend):
    one, two = make("one"), make("two")
    _, first = one.attempt(0, [], {"a": 1, "b": 1})
    one.attempt(1, [first], {"a": 2})
    _, won = two.attempt(1, [first], {"b": 5})
    storage.reads.clear()
    seen, _ = one.attempt(2, [first, won])
    assert seen == {"a": 1, "b": 5}
    if backend == "hashmap":
        assert storage.reads == [won.name], "the first file is there already"


def test_catching_up_reads_only_what_is_missing(make, backend):
    one, two = make("one"), make("two")
    segments = []
    for epoch in range(3):
        _, file = one.attempt(epoch, segments, {f"k{epoch}": epoch})
        segments = extend_segments(segments, file)
    seen, file = two.attempt(3, segments, {"k3": 3})
    assert seen == {"k0": 0, "k1": 1, "k2": 2}
    # On one machine the processes share what lmdb keeps; only the last epoch is not there yet.
    assert two.store.loads == (3 if backend == "hashmap" else 1)
    segments = extend_segments(segments, file)
    assert one.attempt(4, segments)[0] == {"k0": 0, "k1": 1, "k2": 2, "k3": 3}
    assert one.store.loads == 1
    assert one.store.rebuilds == 0


def test_deleted_keys_stay_deleted(make):
    one = make()
    _, first = one.attempt(0, [], {"a": 1, "b": 2})
    _, second = one.attempt(1, [first], {"a": DELETED})
    segments = [first, second]
    assert one.attempt(2, segments)[0] == {"b": 2}
    assert make("other").attempt(2, segments)[0] == {"b": 2}


def test_deleted_is_itself_in_another_process():
    assert pickle.loads(pickle.dumps(DELETED)) is DELETED
    assert pickle.loads(pickle.dumps(MISSING)) is MISSING


def test_going_back_to_an_older_checkpoint(make):
    worker = make()
    _, first = worker.attempt(0, [], {"a": 1})
    _, second = worker.attempt(1, [first], {"a": 2, "b": 2})
    assert worker.open([first, second]) == {"a": 2, "b": 2}
    seen, third = worker.attempt(1, [first], {"c": 3}, "again")
    assert seen == {"a": 1}
    assert worker.store.rebuilds == 1
    assert worker.open([first, third]) == {"a": 1, "c": 3}
    assert worker.open([]) == {}


def test_a_zombie_that_opens_late_does_not_hurt_its_successor(make):
    worker, zombie = make("worker"), make("zombie")
    _, first = worker.attempt(0, [], {"a": 1})
    _, second = worker.attempt(1, [first], {"a": 2})
    assert worker.open([first, second]) == {"a": 2}
    assert zombie.attempt(1, [first], {"a": 666})[0] == {"a": 1}
    assert worker.table.read("a", None) == 2
    worker.table.changes["b"] = 1
    third = worker.store.snapshot(2, "worker-2")
    assert worker.open([first, second, third]) == {"a": 2, "b": 1}
    assert make("new").open([first, second, third]) == {"a": 2, "b": 1}


def test_an_epoch_without_changes_writes_nothing(make, storage):
    worker = make()
    _, first = worker.attempt(0, [], {"a": 1})
    files = dict(storage.files)
    assert worker.attempt(1, [first]) == ({"a": 1}, None)
    assert worker.attempt(2, [first]) == ({"a": 1}, None)
    assert storage.files == files


KEYS = ["", "a", "ä\ud800", "x" * 600, 0, -1, 255, 256, 2**80, 1 << 5000, b"", b"\xff" * 700]


@pytest.mark.parametrize("kind", ["value", "list", "map"])
def test_any_key(make, kind):
    worker = make(kind=kind)
    writes = {}
    for n, key in enumerate(KEYS):
        if kind == "value":
            writes[key] = n
        elif kind == "list":
            writes[key] = ListChange([n], replace=False)
        else:
            change = writes[key] = MapChange()
            change.entries.update((name, (name, n)) for name in KEYS)
    _, first = worker.attempt(0, [], writes)
    expected = {
        "value": lambda n: n,
        "list": lambda n: [n],
        "map": lambda n: {name: (name, n) for name in KEYS},
    }[kind]
    wanted = {key: expected(n) for n, key in enumerate(KEYS)}
    assert worker.open([first]) == wanted
    assert make("other", kind=kind).open([first]) == wanted
    if kind == "map":
        assert worker.table.read_entry("x" * 600, b"\xff" * 700, None) == (b"\xff" * 700, 3)
    compacted = compact(worker.store._storage, "op/0", [first], "f")
    assert make("third", kind=kind).open([compacted]) == wanted


def test_falsy_values_are_values(make):
    worker = make()
    _, first = worker.attempt(0, [], {"zero": 0, "none": None, "empty": ""})
    assert worker.attempt(1, [first])[0] == {"zero": 0, "none": None, "empty": ""}


def test_large_values(make):
    worker = make()
    blob = b"x" * 3_000_000
    _, first = worker.attempt(0, [], dict.fromkeys(range(4), blob))
    assert worker.open([first])[3] == blob
    assert make("other").open([first])[0] == blob


def test_several_tables_and_one_that_appears_later(make):
    one = make("one")
    one.open([])
    one.table.changes["k"] = 1
    first = one.store.snapshot(0, "x")
    one.open([first])
    one.store.table("op/b").changes["k"] = 2
    second = one.store.snapshot(1, "y")
    other = make("other")
    other.open([first, second])
    assert other.table.read("k", None) == 1
    assert other.store.table("op/b").read("k", None) == 2


def test_what_is_written_in_the_cache_is_seen(make):
    """More keys than the cache holds, in several rounds, each changing some that were read and some that were not."""
    worker = make()
    model = {n: n for n in range(30_000)}
    _, file = worker.attempt(0, [], model)
    segments = [file]
    for epoch in range(1, 4):
        worker.store.open(version(segments))
        read = worker.table.read
        assert all(read(n, None) == model.get(n) for n in range(0, 30_000, 7))
        writes = {n: (n, epoch) for n in range(epoch, 30_000, 5)} | {
            epoch * 7: DELETED,
            14: [epoch],
        }
        worker.table.changes.update(writes)
        file = worker.store.snapshot(epoch, f"e{epoch}")
        segments = extend_segments(segments, file)
        for key, value in writes.items():
            model[key] = value
            if value is DELETED:
                del model[key]
    assert worker.open(segments) == model


# -- shapes -------------------------------------------------------------------------------------------


def test_lists_by_element(make):
    worker = make(kind="list")
    segments, model = [], []
    for epoch in range(40):
        items = [epoch, "x" * 100]
        seen, file = worker.attempt(epoch, segments, {"k": ListChange(items, replace=False)})
        assert seen == ({"k": model} if model else {})
        model = model + items
        segments = extend_segments(segments, file)
    assert make("other", kind="list").open(segments) == {"k": model}
    _, file = worker.attempt(40, segments, {"k": ListChange([1], replace=True)})
    segments = extend_segments(segments, file)
    assert worker.open(segments) == {"k": [1]}
    _, file = worker.attempt(41, segments, {"k": DELETED, "j": ListChange([2], replace=True)})
    segments = extend_segments(segments, file)
    assert worker.open(segments) == make("new", kind="list").open(segments) == {"j": [2]}


def test_maps_by_entry(make):
    worker = make(kind="map")

    def change(*, cleared=False, **entries):
        made = MapChange(cleared=cleared)
        made.entries.update(entries)
        return made

    steps = [
        (change(a=("a", 1), b=("b", 2)), {"a": ("a", 1), "b": ("b", 2)}),
        (change(a=DELETED, c=("c", 3)), {"b": ("b", 2), "c": ("c", 3)}),
        (change(cleared=True, d=("d", 4)), {"d": ("d", 4)}),
        (change(d=DELETED), {}),
        (change(e=("e", 5)), {"e": ("e", 5)}),
        (DELETED, {}),
    ]
    segments = []
    for epoch, (step, wanted) in enumerate(steps):
        worker.open(segments)
        for name in "abcde":
            worker.table.read_entry("k", name, None)
        worker.table.changes.update({"k": step, "other": change(x=("x", epoch))})
        file = worker.store.snapshot(epoch, f"e{epoch}")
        segments = extend_segments(segments, file)
        for one in (worker, make("other", kind="map")):
            seen = one.open(segments)
            assert seen == ({"k": wanted} if wanted else {}) | {"other": {"x": ("x", epoch)}}
            for name in "abcde":
                assert one.table.read_entry("k", name, None) == wanted.get(name)


def test_keys_and_walk_include_what_they_should(make):
    worker = make()
    _, first = worker.attempt(0, [], {n: n for n in range(3000)})
    worker.open([first])
    worker.table.changes.update({1: DELETED, 2: 0, "new": 1})
    assert set(worker.table.keys()) == set(range(3000)) - {1} | {"new"}
    walk = worker.table.walk()
    begun = {next(walk) for _ in range(1500)}
    second = worker.store.snapshot(1, "second")
    worker.open([first, second])
    rest = list(walk)
    assert len(rest) == len(set(rest))
    assert begun | set(rest) >= set(range(3000)) - {1}


# -- segments -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_disk", [False, True])
def test_many_segments_become_one_full_one(make, storage, on_disk, monkeypatch):
    if on_disk:
        pytest.importorskip("lmdb")
        monkeypatch.setattr(store_module, "_COMPACT_IN_MEMORY", 0)
    one, behind = make("one"), make("behind")
    segments = []
    for epoch in range(50):
        # What is written only once must be in every full file after it.
        once = {"old": "kept"} if epoch == 0 else {}
        writes = {"n": epoch, epoch: epoch, epoch - 1: DELETED} | once
        _, file = one.attempt(epoch, segments, writes)
        segments = extend_segments(segments, file)
    behind.open(segments)
    wanted = {"n": 49, 49: 49, "old": "kept"}
    assert needs_compaction(segments)
    compacted = compact(storage, "op/0", segments, "compacted")
    assert (compacted.full, compacted.covers, compacted.epoch) == (True, segments[-1].name, 49)
    rebuilds = one.store.rebuilds
    for worker in (one, behind, make("late")):
        assert worker.open([compacted]) == wanted
    assert one.store.rebuilds == rebuilds, "the compacted file stands for what is there"
    _, file = one.attempt(30, [compacted], {"n": 30})
    assert make("later").open([compacted, file])["n"] == 30


def test_compaction_keeps_every_shape_and_operator_state(backend, storage, tmp_path, monkeypatch):
    worker = Worker(backend, storage, tmp_path)
    states = worker.store
    worker.open([])
    states.operator_state.get("op/list", "list").update([1, 2])
    states.table("op/l", "list").changes["k"] = ListChange([1], replace=False)
    states.table("op/m", "map").changes["k"] = MapChange()
    states.table("op/m").changes["k"].entries["x"] = ("x", 1)
    first = states.snapshot(0, "a")
    worker.open([first])
    states.table("op/l").changes["k"] = ListChange([2], replace=False)
    second = states.snapshot(1, "b")
    results = []
    for limit in (1 << 30, 0):
        if limit == 0:
            pytest.importorskip("lmdb")
        monkeypatch.setattr(store_module, "_COMPACT_IN_MEMORY", limit)
        compacted = compact(storage, "op/0", [first, second], f"f{limit}")
        other = StateStore(storage, "op/0", operators=["op"])
        other.open(version([compacted]))
        assert other.table("op/l", "list").read("k", None) == [1, 2]
        assert list(other.table("op/m", "map").read_entries("k")) == [("x", ("x", 1))]
        assert list(other.operator_state.get("op/list", "list").get()) == [1, 2]
        results.append(compacted)
    assert len({file.name for file in results}) == 2


# -- damage -------------------------------------------------------------------------------------------


def test_a_missing_file_is_named(backend, tmp_path):
    storage = LocalStorage(str(tmp_path / "files"))
    _, file = Worker(backend, storage, tmp_path / "a").attempt(0, [], {"a": 1})
    storage.delete(file.name)
    with pytest.raises(StateDamaged, match="missing") as caught:
        Worker(backend, storage, tmp_path / "b", "other").attempt(1, [file])
    assert caught.value.evidence["file"] == file.name


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: b"", "it ends in the middle of its beginning"),
        (lambda data: data[:5], "it ends in the middle of its beginning"),
        (lambda data: data[:-1], "it ends in the middle of block"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "checksum"),
        (lambda data: data + b"x", "goes on after its end"),
        (lambda data: b"ZZZZ" + data[4:], "does not begin as a state file"),
        (lambda data: data[:4] + b"\x63\x00" + data[6:], "its format is 99"),
    ],
    ids=["empty", "short", "cut", "flipped bit", "longer", "magic", "version"],
)
def test_a_damaged_file_is_named(backend, storage, tmp_path, damage, why):
    _, file = Worker(backend, storage, tmp_path / "a").attempt(0, [], {"a": 1})
    good = storage.files[file.name]
    storage.files[file.name] = damage(good)
    other = Worker(backend, storage, tmp_path / "b", "other")
    with pytest.raises(StateDamaged, match=re.escape(why)) as caught:
        other.attempt(1, [file])
    assert caught.value.evidence["file"] == file.name
    storage.files[file.name] = good
    assert other.attempt(1, [file])[0] == {"a": 1}


def test_segments_that_begin_with_changes_are_refused(backend, storage, tmp_path):
    worker = Worker(backend, storage, tmp_path / "a")
    _, first = worker.attempt(0, [], {"a": 1})
    _, second = worker.attempt(1, [first], {"b": 1})
    with pytest.raises(StateError, match="no full file"):
        Worker(backend, storage, tmp_path / "b", "other").attempt(2, [second])


def test_after_a_failed_open_the_next_one_starts_cleanly(backend, storage, tmp_path):
    one = Worker(backend, storage, tmp_path / "a", kind="list")
    _, first = one.attempt(0, [], {"a": ListChange([1], replace=False)})
    _, second = one.attempt(1, [first], {"a": ListChange([2], replace=False)})
    data = storage.files[second.name]
    # The end is missing: the blocks before it have been applied when this is noticed.
    storage.files[second.name] = data[:-3]
    other = Worker(backend, storage, tmp_path / "b", "other", kind="list")
    with pytest.raises(StateError):
        other.attempt(2, [first, second])
    storage.files[second.name] = data
    assert other.attempt(2, [first, second])[0] == {"a": [1, 2]}


# -- names --------------------------------------------------------------------------------------------

ODD_UIDS = ["a/b", "../../escape", ".", "..", "x" * 400, "nul\0", "späß", "a b", "con:*?", "%2e%2e"]


@pytest.mark.parametrize("uid", ODD_UIDS)
def test_any_uid_can_own_files(backend, tmp_path, uid):
    root, local = tmp_path / "deep" / "files", tmp_path / "local"
    storage = LocalStorage(str(root))
    owner = f"{uid}/0"

    def new():
        make_table = maker(backend, local, owner)
        return StateStore(storage, owner, operators=[uid], make_table=make_table)

    store = new()
    store.open(None)
    store.table(f"{uid}/t").changes["k"] = uid
    file = store.snapshot(0, "attempt")
    outside = [p for p in tmp_path.rglob("*") if p.is_file() and local not in p.parents]
    assert len(outside) == 1
    assert (root / "shared").resolve() in outside[0].resolve().parents
    for one in (store, new()):
        one.open(version([file], operators=[uid]))
        assert one.table(f"{uid}/t").read("k", None) == uid


def test_owners_with_similar_uids_do_not_share_files(backend, tmp_path):
    storage = LocalStorage(str(tmp_path / "files"))
    owners = ["a/0", "a/b/0", "a%2Fb/0", "a/0/0", "A/0", "x" * 400 + "/0", "x" * 401 + "/0"]
    names = set()
    for owner in owners:
        worker = Worker(backend, storage, tmp_path / "local", owner=owner)
        assert worker.open([]) == {}
        worker.table.changes["k"] = owner
        names.add(worker.store.snapshot(0, "same").name)
    assert len(names) == len(owners)


# -- other layouts ------------------------------------------------------------------------------------


def layout(backend, storage, local, parents, parallelism, epoch):
    """Open a layout on what the last one left, look at it, write it; its content by subtask and its files."""
    found, files = [], []
    for subtask in range(parallelism):
        owner = f"op/{subtask}"
        worker = Worker(backend, storage, local / str(parallelism), owner=owner)
        args = {"parents": parents, "subtask": subtask, "parallelism": parallelism}
        first = worker.open([], **args)
        # Once more, as a retry.
        worker.table.changes["lost"] = 1
        assert worker.open([], **args) == first
        found.append((first, list(worker.store.operator_state.get("op/list", "list").get())))
        files.append(worker.store.snapshot(epoch, f"layout{epoch}-{subtask}"))
        assert files[-1].full
        assert worker.open([files[-1]]) == first
    made = [
        Parent(root="", subtask=n, parallelism=parallelism, operators=["op"], segments=[file])
        for n, file in enumerate(files)
    ]
    return found, made


def test_another_parallelism_takes_its_key_groups(backend, storage, tmp_path):
    keys = [f"k{n}" for n in range(100)] + list(range(100))
    worker = Worker(backend, storage, tmp_path)
    worker.open([])
    worker.table.changes.update((key, key) for key in keys)
    worker.store.operator_state.get("op/list", "list").update(list(range(7)))
    first = worker.store.snapshot(0, "one")
    worker.open([first])
    worker.table.changes["k0"] = DELETED
    second = worker.store.snapshot(1, "two")
    whole = {key: key for key in keys if key != "k0"}
    parents = [
        Parent(root="", subtask=0, parallelism=1, operators=["op"], segments=[first, second])
    ]
    for epoch, parallelism in ((2, 3), (3, 2)):
        found, parents = layout(backend, storage, tmp_path, parents, parallelism, epoch)
        for subtask, (content, _) in enumerate(found):
            own = subtask_range(subtask, parallelism, MAX)
            assert content == {k: v for k, v in whole.items() if key_group(k, MAX) in own}
        assert sum(len(content) for content, _ in found) == len(whole)
        assert [one for _, items in found for one in items] == list(range(7))


def test_operator_state_is_dealt_out_and_reloaded(backend, storage, tmp_path):
    def new(name):
        return Worker(backend, storage, tmp_path, name).store

    one = new("one")
    one.open(None)
    for name, kind in (("list", "list"), ("union", "union")):
        one.operator_state.get(f"op/{name}", kind).update([1, 2, 3])
    one.operator_state.get("op/rules", "broadcast").put("k", "v")
    first = one.snapshot(0, "one")
    # A losing attempt of the same process changes it; a new process has read no file.
    one.open(version([first], attempt="one"))
    one.operator_state.get("op/list", "list").update([9])
    one.snapshot(1, "lost")
    for store in (one, new("two")):
        store.open(version([first], attempt="other"))
        assert list(store.operator_state.get("op/list", "list").get()) == [1, 2, 3]
    parents = [
        Parent(root="", subtask=n, parallelism=2, operators=["op"], segments=[first])
        for n in range(2)
    ]
    got = []
    for subtask in range(3):
        store = Worker(backend, storage, tmp_path / "new", owner=f"op/{subtask}").store
        store.open(version([], parents=parents, subtask=subtask, parallelism=3))
        states = store.operator_state
        got.append(list(states.get("op/list", "list").get()))
        assert list(states.get("op/union", "union").get()) == [1, 2, 3, 1, 2, 3]
        assert states.get("op/rules", "broadcast").get("k") == "v"
    assert got == [[1, 2], [3, 1], [2, 3]]


# -- states of functions ------------------------------------------------------------------------------


class Function:
    """An operator's keyed states in one process."""

    def __init__(self, backend, storage, local, name="w"):
        self.worker = Worker(backend, storage, local, name)
        self.store = self.worker.store
        self.keys = KeyContext()
        self.states = KeyedStates(self.store, "op", "the operator", self.keys)

    def key(self, key):
        self.keys.key, self.keys.canon = key, canonical(key)

    def get(self, descriptor, kind):
        return self.states.get(descriptor, kind)


def test_time_to_live(backend, storage, tmp_path, monkeypatch):
    clock = [0]
    monkeypatch.setattr("millstream.runtime.state.ttl.now", lambda: clock[0])
    ttl = StateTtlConfig.new_builder(Time.milliseconds(100)).build()

    def states(function):
        made = []
        for kind, descriptor in (
            ("value", ValueStateDescriptor("v", None)),
            ("list", ListStateDescriptor("l", None)),
            ("map", MapStateDescriptor("m", None, None)),
        ):
            descriptor.enable_time_to_live(ttl)
            made.append(function.get(descriptor, kind))
        return made

    def look(made):
        value, items, entries = made
        return value.value(), list(items.get()), sorted(entries.items())

    one = Function(backend, storage, tmp_path)
    one.store.open(None)
    mine = states(one)
    one.key("k")
    mine[0].update(1)
    mine[1].add(1)
    mine[2].put("a", 1)
    first = one.store.snapshot(0, "a")
    clock[0] = 60
    one.store.open(version([first]))
    one.key("k")
    assert look(mine) == (1, [1], [("a", 1)])
    mine[1].add(2)
    mine[2].put("b", 2)
    second = one.store.snapshot(1, "b")
    clock[0] = 120
    two = Function(backend, storage, tmp_path, "two")
    two.store.open(version([first, second]))
    theirs = states(two)
    two.key("k")
    assert look(theirs) == (None, [2], [("b", 2)])
    clock[0] = 500
    one.store.open(version([first, second]))
    # Nobody reads them: they are found by the search at the end of the epoch.
    third = one.store.snapshot(2, "c")
    one.store.open(version([first, second, third]))
    assert [list(one.store.table(f"op/{name}").keys()) for name in "vlm"] == [[], [], []]


@dataclasses.dataclass
class PointV1:
    x: int


@dataclasses.dataclass
class PointV2:
    x: int
    label: str = "none"


@dataclasses.dataclass
class PointV3:
    x: str


PointV1.__qualname__ = PointV2.__qualname__ = PointV3.__qualname__ = "Point"
INT = Types.INT()
ROW1 = Types.ROW_NAMED(["a"], [Types.INT()])
ROW2 = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
ROW3 = Types.ROW_NAMED(["a"], [Types.STRING()])


@pytest.mark.parametrize("early", [True, False], ids=["asked before", "asked after"])
@pytest.mark.parametrize("kind", ["value", "list"])
@pytest.mark.parametrize(
    ("old", "value", "new", "read"),
    [
        (ROW1, Row(a=1), ROW2, Row(a=1, b=None)),
        (PointV1, PointV1(1), PointV2, PointV2(1, "none")),
        (INT, 1, INT, 1),
    ],
    ids=["row", "dataclass", "same"],
)
def test_a_type_that_has_grown(backend, storage, tmp_path, early, kind, old, value, new, read):
    def change(one):
        return one if kind == "value" else ListChange([one], replace=False)

    def whole(one):
        return one if kind == "value" else [one]

    def with_type(store, type_info):
        return store.table("op/s", kind, codec_for(type_info))

    def new_store(name):
        return StateStore(
            storage, "op/0", operators=["op"], make_table=maker(backend, tmp_path / name, "op/0")
        )

    one = new_store("same")
    one.open(None)
    with_type(one, old).changes.update({"k": change(value), "j": change(value)})
    segments = [one.snapshot(0, "old")]
    two = new_store("same")
    if early:
        with_type(two, new)
    two.open(version(segments))
    table = with_type(two, new)
    assert table.read("k", None) == whole(read)
    table.changes["n"] = change(read)
    file = two.snapshot(1, "new")
    assert file.full is (old is not new), "segments have one type for each state"
    segments = extend_segments(segments, file)
    compacted = compact(storage, "op/0", segments, "compacted")
    for store, files in (
        (two, segments),
        (new_store("other"), segments),
        (new_store("f"), [compacted]),
    ):
        store.open(version(files))
        table = with_type(store, new)
        assert {key: table.read(key, None) for key in list(table.keys())} == dict.fromkeys(
            ["k", "j", "n"], whole(read)
        )


@pytest.mark.parametrize("early", [True, False], ids=["asked before", "asked after"])
@pytest.mark.parametrize(
    ("old", "value", "new"),
    [(ROW1, Row(a=1), ROW3), (PointV1, PointV1(1), PointV3), (Types.INT(), 1, Types.STRING())],
    ids=["row", "dataclass", "basic"],
)
def test_a_type_that_does_not_fit_is_refused(backend, storage, tmp_path, early, old, value, new):
    one = Worker(backend, storage, tmp_path).store
    one.open(None)
    one.table("op/s", "value", codec_for(old)).changes["k"] = value
    file = one.snapshot(0, "old")
    two = Worker(backend, storage, tmp_path, "two").store

    def ask():
        two.table("op/s", "value", codec_for(new))

    if early:
        ask()

    def open_and_ask():
        two.open(version([file]))
        ask()

    with pytest.raises(StateMismatch) as caught:
        open_and_ask()
    evidence = caught.value.evidence
    assert (evidence["operator"], evidence["state"]) == ("op", "s")
    assert str(codec_for(old).schema) in evidence["found"]
    assert str(codec_for(new).schema) in evidence["wanted"]


def test_parents_of_different_types(backend, storage, tmp_path):
    """One subtask wrote after its type had grown, the other before; nobody has asked for the state yet."""
    parents = []
    for subtask, (kind, value) in enumerate(((ROW1, Row(a=1)), (ROW2, Row(a=2, b="x")))):
        owner = f"op/{subtask}"
        store = Worker(backend, storage, tmp_path, owner=owner).store
        store.open(None)
        own = subtask_range(subtask, 2, MAX)
        keys = [key for key in range(100) if key_group(key, MAX) in own]
        store.table("op/s", "value", codec_for(kind)).changes.update(dict.fromkeys(keys, value))
        segments = [store.snapshot(0, f"p{subtask}")]
        parents.append(
            Parent(root="", subtask=subtask, parallelism=2, operators=["op"], segments=segments)
        )
    one = Worker(backend, storage, tmp_path / "new").store
    one.open(version([], parents=parents))
    full = one.snapshot(1, "unasked")
    for name, begin in (
        ("same", {"parents": parents, "segments": []}),
        ("file", {"segments": [full]}),
    ):
        store = Worker(backend, storage, tmp_path / name).store
        store.open(version(**begin))
        table = store.table("op/s", "value", codec_for(ROW2))
        for key in range(100):
            old = key_group(key, MAX) in subtask_range(0, 2, MAX)
            assert table.read(key, None) == (Row(a=1, b=None) if old else Row(a=2, b="x"))


# -- any history --------------------------------------------------------------------------------------

WRITES = st.dictionaries(st.integers(0, 4), st.integers(0, 99) | st.just(DELETED), max_size=4)
ATTEMPTS = st.lists(st.tuples(st.integers(0, 2), WRITES, st.booleans()), min_size=1, max_size=3)


@pytest.mark.parametrize("shape", ["value", "list", "map"])
@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
@settings(max_examples=50)
@given(history=st.lists(st.tuples(ATTEMPTS, st.booleans()), max_size=12))
def test_any_history_of_attempts_in_any_processes(backend, shape, history):
    """In each epoch some attempts run in some of three processes; some fail, the last one wins. Segments are compacted
    at any time, and every process may die after an epoch."""
    with tempfile.TemporaryDirectory() as folder:
        _history(backend, shape, history, Path(folder))


def _history(backend, shape, history, local):
    storage = Memory()
    new = lambda n: Worker(backend, storage, local, f"w{n}-", kind=shape)  # noqa: E731
    workers = [new(n) for n in range(3)]
    segments: list[StateFile] = []
    model: dict = {}
    for epoch, (attempts, compacting) in enumerate(history):
        file = None
        for number, (which, writes, fails) in enumerate(attempts):
            last = number == len(attempts) - 1
            assert workers[which].open(segments) == model
            workers[which].table.changes.update(_changes(shape, writes))
            if last or not fails:
                file = workers[which].store.snapshot(epoch, f"{epoch}-{number}")
            if fails:
                workers[which] = new(which)
        segments = extend_segments(segments, file)
        _update(shape, model, attempts[-1][1])
        if compacting and segments:
            segments = [compact(storage, "op/0", segments, f"compacted{epoch}")]
    assert Worker(backend, storage, local, "new", kind=shape).open(segments) == model
    assert Worker(backend, storage, local / "empty", "far", kind=shape).open(segments) == model


def _changes(shape, writes):
    if shape == "value":
        return writes
    made = {}
    for key, value in writes.items():
        if value is DELETED:
            made[key] = DELETED
        elif shape == "list":
            made[key] = ListChange([value] * (value % 3 + 1), replace=value > 70)
        else:
            change = made[key] = MapChange(cleared=value > 80)
            change.entries[value % 4] = (value % 4, value)
            change.entries[4] = DELETED if value % 2 else (4, value)
    return made


def _update(shape, model, writes):
    for key, value in writes.items():
        if value is DELETED:
            model.pop(key, None)
        elif shape == "value":
            model[key] = value
        elif shape == "list":
            base = [] if value > 70 else model.get(key, [])
            model[key] = base + [value] * (value % 3 + 1)
        else:
            entries = {} if value > 80 else dict(model.get(key, {}))
            entries[value % 4] = (value % 4, value)
            entries.pop(4, None)
            if value % 2 == 0:
                entries[4] = (4, value)
            model[key] = entries


# -- at the same moment -------------------------------------------------------------------------------


def before(worker, method, action):
    """Let something else happen once, just before the worker's backend does a step."""
    backend = worker.store._backend
    real = getattr(backend, method)

    def step(*args, **kwargs):
        setattr(backend, method, real)
        action()
        return real(*args, **kwargs)

    setattr(backend, method, step)


@pytest.mark.parametrize("step", ["absorb", "applying", "ready"])
@pytest.mark.parametrize("ahead", [False, True])
def test_another_process_applies_the_same_files_at_the_same_moment(tmp_path, storage, step, ahead):
    """Lists, because an element that is added twice is seen. `ahead` goes on to the next version."""
    pytest.importorskip("lmdb")
    one, two, three = (
        Worker("lmdb", storage, tmp_path, name, kind="list") for name in ("one", "two", "three")
    )

    def add(n):
        return {"k": ListChange([n], replace=False)}

    _, first = one.attempt(0, [], add(0))
    _, second = one.attempt(1, [first], add(1))
    _, third = two.attempt(2, [first, second], add(2))
    # Of the three, the first has nothing but its own file, the second is what it is, and the third is new.
    segments = [first, second, third]
    runner = two if step == "absorb" else three

    def meanwhile():
        assert one.open(segments) == {"k": [0, 1, 2]}
        if ahead:
            one.table.changes.update(add(3))
            fourth = one.store.snapshot(3, "fourth")
            assert one.open([*segments, fourth]) == {"k": [0, 1, 2, 3]}

    before(runner, step, meanwhile)
    assert runner.open(segments) == {"k": [0, 1, 2]}
    last = Worker("lmdb", storage, tmp_path, "last", kind="list")
    assert last.open(segments) == {"k": [0, 1, 2]}


# -- processes ----------------------------------------------------------------------------------------


def _process(pipe, root, local):
    """Runs what it is told: ("open", segments), ("write", writes), ("snapshot", epoch, attempt)."""
    worker = Worker("lmdb", LocalStorage(root), local)
    while True:
        call, *args = pipe.recv()
        if call == "open":
            pipe.send((worker.open(args[0]), worker.store.loads, worker.store.rebuilds))
        elif call == "read":
            pipe.send(worker.content())
        elif call == "snapshot":
            writes, epoch, attempt = args
            worker.table.changes.update(writes)
            pipe.send(worker.store.snapshot(epoch, attempt))
        else:
            return


@pytest.fixture
def processes(tmp_path):
    pytest.importorskip("lmdb")
    context = multiprocessing.get_context("spawn")
    pipes, running = [], []
    for _ in range(2):
        mine, theirs = context.Pipe()
        arguments = (theirs, str(tmp_path / "files"), str(tmp_path / "local"))
        process = context.Process(target=_process, args=arguments, daemon=True)
        process.start()
        pipes.append(mine)
        running.append(process)

    def ask(number, *call):
        pipes[number].send(call)
        assert pipes[number].poll(60)
        return pipes[number].recv()

    ask.processes = running
    yield ask
    for process in running:
        process.kill()
        process.join()


def test_two_processes_on_one_store(processes, tmp_path):
    ask = processes
    assert ask(0, "open", []) == ({}, 0, 0)
    first = ask(0, "snapshot", {"a": 1, "b": 1}, 0, "x0")
    # What nobody has applied yet is read from its file, by whoever comes first.
    assert ask(1, "open", [first]) == ({"a": 1, "b": 1}, 1, 1)
    # The first process's attempt has won, but the other has been faster.
    assert ask(0, "open", [first]) == ({"a": 1, "b": 1}, 0, 0)
    second = ask(1, "snapshot", {"a": 2}, 1, "x1")
    segments = [first, second]
    assert ask(1, "open", segments) == ({"a": 2, "b": 1}, 0, 1)
    # The zombie of epoch 1 still sees version 0, and its file changes nothing.
    assert ask(0, "read") == {"a": 1, "b": 1}
    ask(0, "snapshot", {"a": 666}, 1, "zombie")
    third = ask(1, "snapshot", {"c": 3}, 2, "x2")
    segments.append(third)
    seen, loads, rebuilds = ask(0, "open", segments)
    assert (seen, loads, rebuilds) == ({"a": 2, "b": 1, "c": 3}, 1, 0)
    # A process dies while it reads; the others go on, and so does one that starts now.
    assert ask(1, "open", segments)[0] == seen
    ask.processes[1].kill()
    fourth = ask(0, "snapshot", {"d": 4}, 3, "x3")
    segments.append(fourth)
    assert ask(0, "open", segments) == (seen | {"d": 4}, 0, 0)
    here = Worker("lmdb", LocalStorage(str(tmp_path / "files")), tmp_path / "local")
    assert here.open(segments) == seen | {"d": 4}
    assert here.store.loads == 0


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "lmdb", None)
    worker = Worker("lmdb", Memory(), tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        worker.open([])
    assert "pip install 'millstream[lmdb]'" in str(caught.value)


def test_folders_of_jobs_that_are_gone_are_removed(tmp_path):
    pytest.importorskip("lmdb")
    from millstream.runtime.state.lmdb.store import LmdbStore

    kept, gone = tmp_path / "kept", tmp_path / "gone"
    kept.mkdir()
    gone.mkdir()
    local = tmp_path / "local"

    def job(name, folder):
        backend = LmdbStore(str(local), name, str(folder), "op/0")
        return StateStore(Memory(), "op/0", make_table=backend.table)

    stores = [job("a", kept), job("b", gone)]
    for store in stores:
        store.open(None)
        store.snapshot(0, "x")
    gone.rmdir()
    job("c", kept)
    assert {path.name for path in local.iterdir()} == {"a", "b", "c"}, "b is still open"
    stores.clear()
    del store
    job("d", kept)
    assert {path.name for path in local.iterdir()} == {"a", "c", "d"}
    assert {oct(path.stat().st_mode & 0o777) for path in local.rglob("*") if path.is_dir()} == {
        "0o700"
    }
