"""What every storage promises, and what the local one does besides."""

import errno
import os
import pickle
import resource
import stat
import sys
import threading
import uuid
from pathlib import Path

import pytest

from millstream.errors import ConfigurationError, StorageAway
from millstream.storage import storage as storage_module
from millstream.storage.open import open_storage
from millstream.storage.remote import ArrowStorage, FsspecStorage
from millstream.storage.storage import LocalStorage, Storage, shown_root, stable


class Plain(Storage):
    """The six operations that must be written, and none of the others."""

    def __init__(self):
        self.files = {}

    @property
    def root(self):
        return "plain"

    def write(self, name, data):
        self.files[name] = data

    def read(self, name):
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def exists(self, name):
        return name in self.files

    def list(self, folder):
        start = f"{folder}/" if folder else ""
        below = {n.removeprefix(start).split("/")[0] for n in self.files if n.startswith(start)}
        return sorted(name for name in below if not name.startswith("."))

    def delete(self, name):
        self.files.pop(name, None)


ROOTS = {
    "local": lambda path: str(path),
    "not durable": lambda path: str(path),
    "arrow": lambda path: f"arrow+file://{path}",
    "fsspec memory": lambda path: f"memory://{uuid.uuid4().hex}/job",
    "fsspec file": lambda path: f"fsspec+file://{path}",
}


@pytest.fixture(params=[*ROOTS, "plain"])
def storage(request, tmp_path):
    if request.param == "plain":
        yield Plain()
        return
    if "fsspec" in request.param:
        pytest.importorskip("fsspec")
    root = ROOTS[request.param](tmp_path / "job")
    storage = open_storage(root, durable=request.param != "not durable")
    assert storage.root == root
    yield storage
    storage.delete_tree("")


@pytest.fixture(params=ROOTS)
def rooted(request, tmp_path):
    if "fsspec" in request.param:
        pytest.importorskip("fsspec")
    storage = open_storage(ROOTS[request.param](tmp_path / "job"))
    yield storage
    storage.delete_tree("")


@pytest.fixture
def local(tmp_path):
    return LocalStorage(str(tmp_path / "job"))


def everything(path):
    return sorted(str(found.relative_to(path)) for found in path.rglob("*") if found.is_file())


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize("data", [b"", b"one", bytes(range(256)) * 5000])
@pytest.mark.parametrize("name", ["a", "deep/er/a", "späß & co/a b%2F[x]#1"])
def test_what_is_written_is_read(storage, name, data):
    storage.write(name, data)
    assert storage.read(name) == data
    assert storage.exists(name)
    assert storage.size(name) == len(data)
    with storage.open_read(name) as file:
        assert file.read() == data


def test_write_replaces(storage):
    storage.write("f/a", b"long ago")
    storage.write("f/a", b"now")
    assert storage.read("f/a") == b"now"
    assert storage.list("f") == ["a"]


def test_what_is_missing(storage):
    storage.write("other", b"")
    for name in ("a", "f/a"):
        assert not storage.exists(name)
        assert storage.size(name) is None
        assert storage.list(name) == []
        with pytest.raises(FileNotFoundError):
            storage.read(name)
        with pytest.raises(FileNotFoundError):
            storage.open_read(name)
        storage.delete(name)
        storage.delete_tree(name)
    assert storage.list("") == ["other"]


def test_nothing_is_there_at_first(storage):
    assert storage.list("") == []
    assert not storage.exists("a")
    storage.delete("a")
    storage.delete_tree("")


def test_a_folder_is_not_a_file(storage):
    storage.write("f/a", b"1")
    assert not storage.exists("f")
    assert storage.size("f") is None


def test_list_is_sorted_and_leaves_out_what_is_hidden_and_what_is_deeper(storage):
    for name in ("f/b", "f/a", "f/.hidden", "f/g/c", "fa"):
        storage.write(name, b"")
    assert storage.list("f") == ["a", "b", "g"]
    assert storage.list("") == ["f", "fa"]


def test_delete(storage):
    storage.write("f/a", b"1")
    storage.write("f/b", b"2")
    storage.delete("f/a")
    storage.delete("f/a")
    assert storage.list("f") == ["b"]


def test_delete_tree(storage):
    for name in ("f/a", "f/g/b", "f/g/h/c", "fa", "e/a"):
        storage.write(name, b"1")
    storage.delete_tree("f")
    assert storage.list("") == ["e", "fa"]
    assert storage.list("f") == []
    storage.write("f/a", b"again")
    assert storage.list("f") == ["a"]
    storage.delete_tree("")
    assert storage.list("") == []
    storage.write("f/a", b"again")
    assert storage.read("f/a") == b"again"


def test_delete_tree_takes_what_is_hidden(rooted):
    rooted.write("f/.hidden", b"1")
    rooted.delete_tree("f")
    assert not rooted.exists("f/.hidden")


def test_publish_creates_only(storage):
    storage.publish("f/a", b"first")
    with pytest.raises(FileExistsError):
        storage.publish("f/a", b"second")
    assert storage.read("f/a") == b"first"
    assert storage.list("f") == ["a"]


def test_a_stream_appears_when_it_ends(storage):
    storage.write("f/a", b"old")
    with storage.open_write("f/a") as file:
        file.write(b"new " * 100_000)
        file.flush()
        assert storage.read("f/a") == b"old"
        file.write(b"end")
    assert storage.read("f/a") == b"new " * 100_000 + b"end"
    assert storage.list("f") == ["a"]


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_a_stream_that_fails_leaves_nothing(storage, tmp_path, error):
    def fail():
        with storage.open_write("f/a") as file:
            file.write(b"x" * 1_000_000)
            raise error

    with pytest.raises(error):
        fail()
    assert not storage.exists("f/a")
    assert storage.list("f") == []
    assert everything(tmp_path) == []


def test_streams_do_for_pickle(storage):
    value = {"a": list(range(100_000)), "b": b"x" * 100_000}
    with storage.open_write("a") as file:
        pickle.dump(value, file, protocol=5)
    with storage.open_read("a") as file:
        assert pickle.load(file) == value


def test_copies_between_storages(storage, tmp_path):
    other = LocalStorage(str(tmp_path / "other"))
    data = os.urandom(3_000_000)
    storage.write("f/a", data)
    other.copy_from(storage, "f/a", "g/b")
    assert other.read("g/b") == data
    storage.copy_from(other, "g/b", "c")
    assert storage.read("c") == data
    with pytest.raises(FileNotFoundError):
        storage.copy_from(other, "missing", "d")
    assert storage.list("") == ["c", "f"]


def test_a_folder_is_a_storage(rooted):
    below = rooted.folder("f/g")
    below.write("a", b"1")
    assert rooted.read("f/g/a") == b"1"
    assert open_storage(below.root).read("a") == b"1"
    assert below.folder("h").root == rooted.folder("f/g/h").root
    below.delete_tree("")
    assert rooted.list("f/g") == []


def test_another_process_would_find_the_same_files(rooted):
    rooted.write("f/a", b"1")
    again = open_storage(rooted.root)
    assert type(again) is type(rooted)
    assert again.read("f/a") == b"1"


def test_a_root_may_look_like_a_pattern(tmp_path):
    pytest.importorskip("fsspec")
    base = f"memory://{uuid.uuid4().hex}"
    other = open_storage(f"{base}/ab")
    other.write("x", b"1")
    storage = open_storage(f"{base}/a*")
    with storage.open_write("x") as file:
        file.write(b"2")
    assert storage.read("x") == b"2"
    storage.delete("x")
    storage.delete_tree("")
    assert other.read("x") == b"1"


@pytest.mark.parametrize("name", ["/a", "../a", "f/../../a", "f/..", ".."])
def test_no_name_leaves_the_root(rooted, tmp_path, name):
    (tmp_path / "a").write_bytes(b"outside")
    for call in (
        lambda: rooted.write(name, b""),
        lambda: rooted.publish(name, b""),
        lambda: rooted.open_write(name).__enter__(),
        lambda: rooted.open_read(name),
        lambda: rooted.read(name),
        lambda: rooted.exists(name),
        lambda: rooted.size(name),
        lambda: rooted.list(name),
        lambda: rooted.delete(name),
        lambda: rooted.delete_tree(name),
        lambda: rooted.folder(name),
    ):
        with pytest.raises(ValueError, match="below its storage's root"):
            call()
    assert (tmp_path / "a").read_bytes() == b"outside"


@pytest.mark.parametrize("name", ["", ".", "f/"])
def test_a_file_has_a_name(rooted, name):
    with pytest.raises(ValueError, match="not the name"):
        rooted.write(name, b"")


# ---------------------------------------------------------------- local folders


def test_only_the_owner_can_read(tmp_path):
    before = os.umask(0)
    try:
        storage = LocalStorage(str(tmp_path / "new" / "job"))
        storage.write("f/g/a", b"1")
        storage.publish("f/b", b"1")
        with storage.open_write("f/c") as file:
            file.write(b"1")
    finally:
        os.umask(before)
    for path in (tmp_path / "new").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


@pytest.mark.parametrize("how", ["write", "publish", "open_write"])
def test_a_failed_sync_leaves_nothing(local, tmp_path, monkeypatch, how):
    local.write("f/other", b"1")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write():
        if how == "open_write":
            with local.open_write("f/a") as file:
                file.write(b"data")
        else:
            getattr(local, how)("f/a", b"data")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write()
    assert caught.value.errno == errno.ENOSPC
    assert everything(tmp_path) == ["job/f/other"]


def test_a_write_that_the_system_refuses_leaves_the_old_file(local, tmp_path):
    local.write("f/a", b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            local.write("f/a", b"x" * (1 << 22))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert local.read("f/a") == b"old"
    assert everything(tmp_path) == ["job/f/a"]


def test_a_failed_rename_leaves_nothing(local, tmp_path, monkeypatch):
    local.write("f/a/b", b"in the way")
    with pytest.raises(OSError, match="f/a"):
        local.write("f/a", b"1")
    assert everything(tmp_path) == ["job/f/a/b"]


@pytest.mark.parametrize(
    ("durable", "expected"),
    [
        (True, ["file", "folder"]),
        (False, ["file"]),
    ],
)
def test_what_is_synced(tmp_path, monkeypatch, durable, expected):
    storage = LocalStorage(str(tmp_path), durable=durable)
    synced = []
    real = os.fsync

    def note(descriptor):
        synced.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    storage.write("a", b"1")
    assert synced == expected
    synced.clear()
    storage.folder("new/er").write("a", b"1")
    # And one for the name of each new folder, before the file.
    assert synced == (["folder"] * 2 if durable else []) + expected


def test_a_stream_may_be_closed_early(local):
    with local.open_write("a") as file:
        file.write(b"1")
        file.close()
    assert local.read("a") == b"1"


def test_publish_without_links(local, tmp_path, monkeypatch):
    def no_links(source, target):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    local.publish("f/a", b"first")
    with pytest.raises(FileExistsError):
        local.publish("f/a", b"second")
    assert local.read("f/a") == b"first"
    assert everything(tmp_path) == ["job/f/a"]


@pytest.mark.parametrize("links", [True, False])
def test_one_of_many_publishes(local, monkeypatch, links):
    if not links:
        monkeypatch.setattr(storage_module, "_NO_LINKS", {errno.EPERM})
        monkeypatch.setattr(os, "link", lambda a, b: (_ for _ in ()).throw(PermissionError(1, "")))
    start = threading.Barrier(4)
    won = []

    def publish(number):
        start.wait()
        for round_ in range(10):
            try:
                local.publish(f"f/{round_}", b"%d" % number)
            except FileExistsError:
                continue
            won.append((round_, b"%d" % number))

    threads = [threading.Thread(target=publish, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(round_ for round_, _ in won) == list(range(10))
    assert all(local.read(f"f/{round_}") == data for round_, data in won)


def test_below_a_file_there_is_nothing(local):
    local.write("a", b"1")
    assert local.size("a/b") is None
    assert local.list("a") == []
    local.delete("a/b")


def test_a_long_name(local):
    local.write("x" * 255, b"1")
    assert local.read("x" * 255) == b"1"


# ---------------------------------------------------------------- roots


def test_roots_and_their_storages(tmp_path):
    assert type(open_storage(str(tmp_path))) is LocalStorage
    assert open_storage(f"file://{tmp_path}").root == str(tmp_path)
    assert open_storage(f"file://localhost{tmp_path}").root == str(tmp_path)
    assert open_storage(f"file:{tmp_path}").root == str(tmp_path)
    assert type(open_storage(f"arrow+file://{tmp_path}")) is ArrowStorage
    assert type(open_storage("abfs://c@account.dfs.core.windows.net/x")) is ArrowStorage
    pytest.importorskip("fsspec")
    assert type(open_storage("memory://x")) is FsspecStorage
    assert type(open_storage(f"fsspec+file://{tmp_path}")) is FsspecStorage


def test_the_options_of_a_url_stay_its_last_part(tmp_path):
    below = ArrowStorage("s3://b/x?region=y", open_storage("arrow+file:///x")._fs, "b/x")
    assert below.folder("f g").root == "s3://b/x/f%20g?region=y"


@pytest.mark.parametrize("root", ["nonsense://x", "arrow+nonsense://x", "fsspec+nonsense://x"])
def test_an_unknown_scheme(root):
    pytest.importorskip("fsspec")
    with pytest.raises(ConfigurationError) as caught:
        open_storage(root)
    assert root in caught.value.what
    assert "s3, gs, hdfs, abfs, memory" in caught.value.hint


def test_an_unknown_way():
    with pytest.raises(ConfigurationError):
        open_storage("other+s3://x")


def test_a_driver_that_is_missing(monkeypatch):
    pytest.importorskip("fsspec")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ConfigurationError) as caught:
        open_storage("fsspec+s3://key:secret@bucket/x")
    assert caught.value.hint == "pip install s3fs"
    assert "secret" not in str(caught.value)


def test_without_fsspec(monkeypatch):
    for name in ("fsspec", "fsspec.core", "fsspec.registry"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigurationError) as caught:
        open_storage("memory://x")
    assert "pip install fsspec" in caught.value.hint


def test_stable_roots(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert stable("job") == str(Path.cwd() / "job")
    assert stable("file:///a/../b") == "/b"
    assert stable("s3://bucket/../x") == "s3://bucket/../x"
    assert stable("arrow+file:///x") == "arrow+file:///x"


def test_secrets_are_not_shown():
    assert shown_root("s3://key:sec:ret@bucket/x") == "s3://***@bucket/x"
    for root in ("/a:b@c", "abfs://c@account/x", "s3://bucket/a:b@c"):
        assert shown_root(root) == root


def test_a_root_that_is_gone_is_no_empty_folder(tmp_path):
    storage = LocalStorage(str(tmp_path / "job"))
    assert storage.list("") == []
    storage.write("chk-1/_metadata", b"1")
    storage.expect()
    assert not storage.exists("chk-2/_metadata")
    (tmp_path / "job").rename(tmp_path / "away")
    calls = [
        lambda: storage.list(""),
        lambda: storage.exists("chk-1/_metadata"),
        lambda: storage.read("chk-1/_metadata"),
        lambda: storage.open_read("chk-1/_metadata"),
        lambda: storage.write("chk-2/_metadata", b"2"),
        lambda: storage.publish("chk-2/_metadata", b"2"),
    ]
    for call in calls:
        with pytest.raises(StorageAway):
            call()
    # What is mounted there later must not find files of another disk in its place.
    assert not (tmp_path / "job").exists()
    (tmp_path / "away").rename(tmp_path / "job")
    assert storage.read("chk-1/_metadata") == b"1"
