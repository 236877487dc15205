"""State has a version per epoch: an attempt of epoch n sees version n-1, whatever else happens."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.checkpoint.statefile import StateFile, decode_state
from millstream.checkpoint.storage import LocalStorage, Storage
from millstream.errors import StateError
from millstream.runtime.state import DELETED, MISSING, KeyedTable, StateStore, extend_chain


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


class Worker:
    """A process that runs attempts of epochs of one subtask with one state called "n"."""

    def __init__(self, storage, name="w"):
        self.store = StateStore(storage, "op/0")
        self.table = self.store.table("op/n")
        self.name = name

    def attempt(self, epoch, chain, writes=(), tag=""):
        """What the attempt saw when it began, and the file it wrote."""
        self.store.open(chain)
        seen = dict(self.table.base)
        self.table.changes.update(writes)
        return seen, self.store.snapshot(epoch, f"{self.name}{tag}")


def test_the_next_epoch_sees_what_the_last_one_wrote():
    storage = Memory()
    worker = Worker(storage)
    seen, file = worker.attempt(0, [], {"a": 1})
    assert (seen, file.full, file.epoch) == ({}, True, 0)
    chain = extend_chain([], file)
    seen, file = worker.attempt(1, chain, {"b": 2})
    assert (seen, file.full) == ({"a": 1}, False)
    seen, file = worker.attempt(2, extend_chain(chain, file))
    assert (seen, file) == ({"a": 1, "b": 2}, None)
    assert storage.reads == [], "what this process has written it need not read"


def test_a_retry_sees_the_version_before_the_epoch():
    worker = Worker(Memory())
    _, first = worker.attempt(0, [], {"a": 1})
    chain = [first]
    _, lost = worker.attempt(1, chain, {"a": 2, "x": 9}, "lost")
    seen, won = worker.attempt(1, chain, {"a": 3}, "won")
    assert seen == {"a": 1}
    assert lost.name != won.name
    seen, _ = worker.attempt(2, extend_chain(chain, won))
    assert seen == {"a": 3}


def test_a_retry_of_the_first_epoch_sees_nothing():
    worker = Worker(Memory())
    worker.attempt(0, [], {"a": 1}, "lost")
    seen, _ = worker.attempt(0, [], {"a": 2})
    assert seen == {}


def test_a_retry_within_a_failed_attempt_forgets_its_changes():
    worker = Worker(Memory())
    _, first = worker.attempt(0, [], {"a": 1})
    worker.store.open([first])
    worker.table.changes["a"] = 99
    seen, _ = worker.attempt(1, [first])
    assert (seen, worker.table.changes) == ({"a": 1}, {})


def test_a_zombies_file_is_ignored():
    storage = Memory()
    worker, zombie = Worker(storage, "worker"), Worker(storage, "zombie")
    _, first = worker.attempt(0, [], {"a": 1})
    _, won = worker.attempt(1, [first], {"a": 2})
    chain = extend_chain([first], won)
    _, ghost = zombie.attempt(1, [first], {"a": 666, "ghost": 1})
    assert ghost.name in storage.files
    assert worker.attempt(2, chain)[0] == {"a": 2}
    assert zombie.attempt(2, chain)[0] == {"a": 2}


def test_the_loser_takes_over_the_winners_file():
    storage = Memory()
    one, two = Worker(storage, "one"), Worker(storage, "two")
    _, first = one.attempt(0, [], {"a": 1, "b": 1})
    one.attempt(1, [first], {"a": 2})
    _, won = two.attempt(1, [first], {"b": 5})
    storage.reads.clear()
    seen, _ = one.attempt(2, [first, won])
    assert seen == {"a": 1, "b": 5}
    assert storage.reads == [won.name], "the first file is there already"


def test_catching_up_reads_only_what_is_missing():
    storage = Memory()
    one, two = Worker(storage, "one"), Worker(storage, "two")
    chain = []
    for epoch in range(3):
        _, file = one.attempt(epoch, chain, {f"k{epoch}": epoch})
        chain = extend_chain(chain, file)
    seen, file = two.attempt(3, chain, {"k3": 3})
    assert seen == {"k0": 0, "k1": 1, "k2": 2}
    assert two.store.loads == 3
    chain = extend_chain(chain, file)
    storage.reads.clear()
    assert one.attempt(4, chain)[0] == {"k0": 0, "k1": 1, "k2": 2, "k3": 3}
    assert storage.reads == [file.name]


def test_deleted_keys_stay_deleted():
    storage = Memory()
    one = Worker(storage)
    _, first = one.attempt(0, [], {"a": 1, "b": 2})
    _, second = one.attempt(1, [first], {"a": DELETED})
    chain = [first, second]
    assert one.attempt(2, chain)[0] == {"b": 2}
    assert Worker(storage, "other").attempt(2, chain)[0] == {"b": 2}


def test_deleted_is_itself_in_another_process():
    import pickle

    assert pickle.loads(pickle.dumps(DELETED)) is DELETED
    assert pickle.loads(pickle.dumps(MISSING)) is MISSING


def test_a_long_chain_becomes_one_full_file():
    storage = Memory()
    one = Worker(storage)
    chain, lengths = [], []
    for epoch in range(40):
        # What is written only once must be in every full file after it.
        once = {"old": "kept"} if epoch == 0 else {}
        writes = {"n": epoch, epoch: epoch, epoch - 1: DELETED} | once
        _, file = one.attempt(epoch, chain, writes)
        chain = extend_chain(chain, file)
        lengths.append(len(chain))
    assert max(lengths) == 16
    assert lengths.count(1) == 3
    assert chain[0].full
    assert not any(file.full for file in chain[1:])
    for worker in (one, Worker(storage, "late")):
        assert worker.attempt(40, chain)[0] == {"n": 39, 39: 39, "old": "kept"}


def test_an_epoch_without_changes_writes_nothing():
    storage = Memory()
    worker = Worker(storage)
    _, first = worker.attempt(0, [], {"a": 1})
    files = dict(storage.files)
    assert worker.attempt(1, [first]) == ({"a": 1}, None)
    assert worker.attempt(2, [first]) == ({"a": 1}, None)
    assert storage.files == files


def test_falsy_values_are_values():
    worker = Worker(Memory())
    _, first = worker.attempt(0, [], {"zero": 0, "none": None, "empty": ""})
    assert worker.attempt(1, [first])[0] == {"zero": 0, "none": None, "empty": ""}


def test_several_tables_and_one_that_appears_later():
    storage = Memory()
    store = StateStore(storage, "op/0")
    store.table("a").changes["k"] = 1
    store.open([])
    store.table("a").changes["k"] = 1
    first = store.snapshot(0, "x")
    store.open([first])
    store.table("b").changes["k"] = 2
    second = store.snapshot(1, "y")
    other = StateStore(storage, "op/0")
    other.open([first, second])
    assert {name: table.base for name, table in other.tables.items()} == {
        "a": {"k": 1},
        "b": {"k": 2},
    }


def test_a_missing_file_is_named(tmp_path):
    storage = LocalStorage(str(tmp_path))
    worker = Worker(storage)
    _, file = worker.attempt(0, [], {"a": 1})
    storage.delete(file.name)
    with pytest.raises(StateError) as caught:
        Worker(storage, "other").attempt(1, [file])
    assert caught.value.code == "STATE_UNREADABLE"
    assert caught.value.evidence == {"file": file.name, "folder": str(tmp_path)}
    assert "op/0" in caught.value.what


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: b"", "it has 0 bytes"),
        (lambda data: data[:5], "it has 5 bytes"),
        (lambda data: data[:-1], "checksum"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "checksum"),
        (lambda data: b"ZZZZ" + data[4:], "does not begin as a state file"),
        (lambda data: data[:4] + b"\x63\x00" + data[6:], "format is 99/1"),
    ],
    ids=["empty", "short", "cut", "flipped bit", "magic", "version"],
)
def test_a_damaged_file_is_named(damage, why):
    storage = Memory()
    _, file = Worker(storage).attempt(0, [], {"a": 1})
    storage.files[file.name] = damage(storage.files[file.name])
    with pytest.raises(StateError, match=re.escape(why)) as caught:
        Worker(storage, "other").attempt(1, [file])
    assert caught.value.evidence["file"] == file.name


def test_a_chain_that_begins_with_changes_is_refused():
    storage = Memory()
    worker = Worker(storage)
    _, first = worker.attempt(0, [], {"a": 1})
    _, second = worker.attempt(1, [first], {"b": 1})
    with pytest.raises(StateError, match="no full file"):
        Worker(storage, "other").attempt(2, [second])


def test_after_a_failed_open_the_next_one_starts_cleanly():
    storage = Memory()
    one = Worker(storage)
    _, first = one.attempt(0, [], {"a": 1})
    _, second = one.attempt(1, [first], {"a": 2, "b": 2})
    data = storage.files.pop(second.name)
    other = Worker(storage, "other")
    with pytest.raises(StateError):
        other.attempt(2, [first, second])
    storage.files[second.name] = data
    assert other.attempt(2, [first, second])[0] == {"a": 2, "b": 2}


@pytest.mark.parametrize(
    "uid", ["a/b", "../../escape", ".", "..", "x" * 400, "nul\0", "späß", "a b", "con:*?", "%2e%2e"]
)
def test_any_uid_can_own_files(tmp_path, uid):
    root = tmp_path / "deep" / "state-folder"
    storage = LocalStorage(str(root))
    store = StateStore(storage, f"{uid}/0")
    store.open([])
    store.table("t").changes["k"] = uid
    file = store.snapshot(0, "attempt")
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 1
    assert (root / "state").resolve() in written[0].resolve().parents
    other = StateStore(storage, f"{uid}/0")
    other.open([file])
    assert other.table("t").base == {"k": uid}


def test_owners_with_similar_uids_do_not_share_files(tmp_path):
    storage = LocalStorage(str(tmp_path))
    owners = ["a/0", "a/b/0", "a%2Fb/0", "a/0/0", "A/0", "x" * 400 + "/0", "x" * 401 + "/0"]
    names = set()
    for owner in owners:
        store = StateStore(storage, owner)
        store.open([])
        store.table("t").changes["k"] = owner
        names.add(store.snapshot(0, "same").name)
    assert len(names) == len(owners)


def test_table_merges_base_and_changes():
    table = KeyedTable()
    table.apply([("a", 1), ("b", 2)])
    table.changes.update({"b": DELETED, "c": 3})
    assert dict(table.merged()) == {"a": 1, "c": 3}
    base, changes = table.base, table.changes
    table.fold()
    assert (table.base, table.changes) == ({"a": 1, "c": 3}, {})
    assert table.base is base
    assert table.changes is changes


WRITES = st.dictionaries(st.integers(0, 4), st.integers(0, 99) | st.just(DELETED), max_size=4)
ATTEMPTS = st.lists(st.tuples(st.integers(0, 2), WRITES), min_size=1, max_size=3)


@settings(max_examples=60)
@given(st.lists(ATTEMPTS, max_size=25))
def test_any_history_of_attempts_in_any_processes(history):
    """In each epoch some attempts run in some of three processes; the last one wins."""
    storage = Memory()
    workers = [Worker(storage, f"w{i}-") for i in range(3)]
    chain: list[StateFile] = []
    model: dict[int, int] = {}
    for epoch, attempts in enumerate(history):
        file = None
        for number, (which, writes) in enumerate(attempts):
            seen, file = workers[which].attempt(epoch, chain, writes, f"{epoch}-{number}")
            assert seen == model
        chain = extend_chain(chain, file)
        for key, value in attempts[-1][1].items():
            if value is DELETED:
                model.pop(key, None)
            else:
                model[key] = value
    assert Worker(storage, "new").attempt(len(history), chain)[0] == model


def test_a_file_says_what_is_in_it():
    storage = Memory()
    _, file = Worker(storage).attempt(3, [], {"a": 1})
    assert file.size == len(storage.files[file.name])
    assert decode_state(file.name, storage.files[file.name]) == {"op/n": [("a", 1)]}
    assert file.epoch == 3
