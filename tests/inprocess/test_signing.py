"""Signed state: with a key a job reads nothing that was written by somebody who has not got it.

Files are changed here as one who can write to the folder would change them, checksums and all. What is planted would
make a folder, and no record may come out of a job that was given it.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import struct
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import pytest
from click.testing import CliRunner

import millstream.state
from millstream.checkpoint.manifest import (
    GeneratorState,
    decode_manifest,
    encode_manifest,
    list_epochs,
    read_manifest,
)
from millstream.checkpoint.pending import left_to_commit, mark_committed
from millstream.cli import main
from millstream.common.typeinfo import Types
from millstream.errors import ConfigurationError, MillstreamError
from millstream.graph.operators import CollectOp
from millstream.runtime.driver.job_folder import INTENT
from millstream.runtime.state import segments as state_segments
from millstream.storage.open import open_storage
from millstream.storage.seal import SIZE, Seal, signed
from millstream.storage.storage import LocalStorage
from tests.inprocess.test_savepoints import count_ints
from tests.inprocess.test_state import BY_SPLIT, Numbers, environment, wait_for
from tests.inprocess.test_trust import Evil

SECRET = b"a key that nobody else has got"
# Six keys, each in turn.
SUMS = {f"k{k}": 20 for k in range(6)}


@pytest.fixture
def key(tmp_path: Path) -> str:
    return key_file(tmp_path / "job.key", SECRET)


def key_file(path: Path, content: bytes, mode: int = 0o600) -> str:
    path.write_bytes(content)
    path.chmod(mode)
    return str(path)


def start(key: str | None, count: int, out: list[Any], parallelism: int = 2, **options: Any) -> Any:
    if key is not None:
        options["millstream_state_hmac__key__file"] = key
    env = environment(parallelism, millstream_epoch_records=10, **options)
    numbers = env.from_source(Numbers(count, unbounded=True), None, "numbers").uid("numbers")
    counted = numbers.key_by(BY_SPLIT).process(count_ints(type_info=Types.LONG())).uid("counter")
    again = counted.key_by(lambda one: one[0]).process(count_ints()).uid("pickled")
    again._sink("out", CollectOp(out.extend))
    return env.execute_async("counting")


def saved(folder: Path, key: str | None, count: int = 60, **options: Any) -> str:
    out: list[Any] = []
    client = start(key, count, out, **options)
    wait_for(out, count)
    path: str = client.stop_with_savepoint(False, str(folder)).result(30)
    return path


def refusal(key: str | None, path: str, **options: Any) -> MillstreamError:
    """The error with which a job that starts from a path is refused, before the first record."""
    out: list[Any] = []
    client = start(key, 120, out, execution_state__recovery_path=path, **options)
    with pytest.raises(MillstreamError) as raised:
        client.get_job_execution_result().result(30)
    assert out == []
    return raised.value


def counts(key: str | None, path: str, **options: Any) -> dict[str, int]:
    """What a job that starts from a path with half of the records has counted in the end."""
    out: list[Any] = []
    client = start(key, 120, out, execution_state__recovery_path=path, **options)
    wait_for(out, 60)
    client.cancel().result(30)
    return dict(sorted(out))


def files(folder: str | Path) -> list[Path]:
    return sorted(one for one in Path(folder).rglob("*") if one.is_file())


def is_signed(path: Path) -> bool:
    data = path.read_bytes()
    if data.startswith(b"MSMF"):
        return len(data.partition(b"\n")[0].split()) == 4
    return data[:8] == struct.pack("<4sHH", b"MSSF", 2, 1)


# -- what works as before --------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
def test_a_signed_savepoint_moves_and_is_rescaled(backend: str, key: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "a", key, state_backend_type=backend)
    assert len(files(path)) > 2
    assert all(map(is_signed, files(path)))
    moved = str(tmp_path / "elsewhere")
    shutil.move(path, moved)
    assert counts(key, moved, parallelism=3, state_backend_type=backend) == SUMS


def test_a_job_goes_on_from_its_own_signed_checkpoints(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_segments, "_MAX_SEGMENTS", 3)
    folder = {"execution_checkpointing_dir": str(tmp_path / "chk")}
    out: list[Any] = []
    for count in (120, 240):
        client = start(key, count, out, **folder)
        wait_for(out, count)
        client.cancel().result(30)
    assert max(out)[1] == 40
    (job,) = (tmp_path / "chk").iterdir()
    state = [one for one in files(job) if "shared" in one.parts or one.name == "_metadata"]
    assert state
    assert all(map(is_signed, state))
    storage = open_storage(str(job), seal=Seal.of(key))
    stores = [
        store.segments for store in read_manifest(storage, list_epochs(storage)[-1]).stores.values()
    ]
    assert any(file.covers for segments in stores for file in segments), "none was compacted"
    client = start(key_file(tmp_path / "other", b"x" * 32), 300, [], **folder)
    with pytest.raises(MillstreamError) as raised:
        client.get_job_execution_result().result(30)
    assert raised.value.code == "STATE_NOT_SIGNED"


def test_without_a_key_nothing_is_signed_and_nothing_checked(key: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "plain", None)
    assert not any(map(is_signed, files(path)))
    assert counts(None, path) == SUMS
    assert counts(None, saved(tmp_path / "signed", key)) == SUMS


def test_what_is_not_signed_is_refused_until_somebody_signs_it(key: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "a", None)
    error = refusal(key, path)
    assert error.code == "STATE_NOT_SIGNED"
    assert "millstream savepoint sign" in str(error.hint)
    target = str(tmp_path / "b")
    run = CliRunner().invoke(main, ["savepoint", "sign", "--hmac-key-file", key, path, target])
    assert run.exit_code == 0, run.output
    assert counts(key, target) == SUMS
    new = key_file(tmp_path / "new.key", b"another key, twice as long")
    again = ["savepoint", "sign", "--hmac-key-file", new, "--signed-with"]
    wrong = CliRunner().invoke(main, [*again, new, target, str(tmp_path / "c")])
    assert "STATE_NOT_SIGNED" in wrong.output
    taken = CliRunner().invoke(main, [*again, key, target, target])
    assert "INVALID_ARGUMENT" in taken.output
    assert CliRunner().invoke(main, [*again, key, target, str(tmp_path / "c")]).exit_code == 0
    assert counts(new, str(tmp_path / "c")) == SUMS
    assert refusal(key, str(tmp_path / "c")).code == "STATE_NOT_SIGNED"


# -- what was changed ------------------------------------------------------------------------------------------


def blocks_of(path: Path) -> list[list[bytes]]:
    """The bodies and signatures of a signed file."""
    data, place, found = path.read_bytes(), 8, []
    while place < len(data):
        (length,) = struct.unpack_from("<I", data, place)
        body = data[place + 8 : place + 8 + length]
        found.append([body, data[place + 8 + length : place + 8 + length + SIZE]])
        place += 8 + length + SIZE
    return found


def write_blocks(path: Path, blocks: list[list[bytes]], *, is_signed: int = 1) -> None:
    out = struct.pack("<4sHH", b"MSSF", 2, is_signed)
    for number, (body, signature) in enumerate(blocks):
        out += struct.pack("<II", len(body), crc32(body, number)) + body + signature * is_signed
    path.write_bytes(out)


def with_evil(path: Path, evil: Evil) -> list[list[bytes]]:
    blocks = blocks_of(path)
    for block in blocks:
        if block[0][:1] == b"P":
            block[0] = block[0][:3] + pickle.dumps([("k0", evil)])
        elif block[0][:1] == b"S":
            block[0] = b"O" + pickle.dumps(evil)
    return blocks


def planted(path: Path, other: Path, evil: Evil) -> None:
    write_blocks(path, with_evil(path, evil))


def without_signatures(path: Path, other: Path, evil: Evil) -> None:
    write_blocks(path, with_evil(path, evil), is_signed=0)


def with_another_key(path: Path, other: Path, evil: Evil) -> None:
    seal, blocks = Seal(b"the key of somebody else"), with_evil(path, evil)
    name = json.loads(blocks[0][0][1:])["name"]
    before = seal.first(name)
    for block in blocks:
        before = block[1] = seal.block(before, block[0])
    write_blocks(path, blocks)


def flipped(path: Path, other: Path, evil: Evil) -> None:
    blocks = blocks_of(path)
    body = bytearray(blocks[-2][0])
    body[-1] ^= 1
    blocks[-2][0] = bytes(body)
    write_blocks(path, blocks)


def flipped_signature(path: Path, other: Path, evil: Evil) -> None:
    blocks = blocks_of(path)
    blocks[0][1] = bytes([blocks[0][1][0] ^ 1]) + blocks[0][1][1:]
    write_blocks(path, blocks)


def swapped(path: Path, other: Path, evil: Evil) -> None:
    ours, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(ours)


def renamed(path: Path, other: Path, evil: Evil) -> None:
    """Another file, whose header says what it should."""
    blocks, own = blocks_of(other), blocks_of(path)[0]
    write_blocks(path, [own, *blocks[1:]])


def without_a_block(path: Path, other: Path, evil: Evil) -> None:
    blocks = blocks_of(path)
    del blocks[1]
    write_blocks(path, [*blocks[:-1], [b"E%d" % (len(blocks) - 1), blocks[-1][1]]])


def cut(path: Path, other: Path, evil: Evil) -> None:
    path.write_bytes(path.read_bytes()[:-SIZE])


CHANGES = [
    *(planted, without_signatures, with_another_key, flipped, flipped_signature),
    *(swapped, renamed, without_a_block, cut),
]


def fix_sizes(folder: str, seal: Seal) -> None:
    """The sizes in the manifest are no protection here."""
    meta = Path(folder) / "_metadata"
    data = meta.read_bytes()
    for one in files(folder):
        name = str(one.relative_to(folder)).encode()
        place = data.find(b'"name":"' + name + b'"')
        if place >= 0:
            start = data.index(b'"size":', place) + 7
            end = min(data.index(b",", start), data.index(b"}", start))
            data = data[:start] + str(one.stat().st_size).encode() + data[end:]
    first, _, body = data.partition(b"\n")
    parts = first.split()
    parts[2] = b"%08x" % crc32(body)
    parts[3] = seal.manifest(body).hex().encode()
    meta.write_bytes(b" ".join(parts) + b"\n" + body)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("signed")
    return saved(folder, key_file(folder / "key", SECRET))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("vertex", ["counter", "pickled"])
def test_a_changed_state_file_is_refused(
    change: Any, vertex: str, key: str, original: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "copy")
    shutil.copytree(original, path)
    mine, *_, other = (one for one in files(path) if one.parts[-3] == vertex)
    change(mine, other, Evil(tmp_path / "made"))
    fix_sizes(path, Seal(SECRET))
    assert refusal(key, path).code in ("STATE_NOT_SIGNED", "STATE_DAMAGED")
    reader = millstream.state.open_savepoint(path, allow_pickle=True, hmac_key_file=key)
    with pytest.raises(MillstreamError):
        list(reader.rows(vertex, "count"))
    editor = millstream.state.edit(path, allow_pickle=True, hmac_key_file=key)
    with pytest.raises(MillstreamError):
        editor.update(vertex, "count", lambda key, value: value)
    with pytest.raises(MillstreamError):
        millstream.state.read(path, vertex, "count", object(), allow_pickle=True, hmac_key_file=key)
    assert not (tmp_path / "made").exists()


def test_what_is_planted_runs_where_nothing_is_signed(original: str, tmp_path: Path) -> None:
    """The tests above could pass because nothing would ever run."""
    path = str(tmp_path / "copy")
    shutil.copytree(original, path)
    for one in files(path):
        if one.parts[-3] == "pickled":
            planted(one, one, Evil(tmp_path / "made"))
    fix_sizes(path, Seal(SECRET))
    with suppress(Exception):
        start(None, 120, [], execution_state__recovery_path=path).get_job_execution_result().result(
            30
        )
    assert (tmp_path / "made").exists()


def manifest_with(path: str, evil: Evil, seal: Seal | None, *, header: bytes = b"") -> None:
    meta = Path(path) / "_metadata"
    data = meta.read_bytes()
    manifest = decode_manifest("x", data)
    times = {"numbers": {"0": {"0": GeneratorState(generator=pickle.dumps(evil))}}}
    made = encode_manifest(
        type(manifest)(
            **{
                **{name: getattr(manifest, name) for name in manifest.__struct_fields__},
                "times": times,
                "committables": {"sink": [pickle.dumps(evil)]},
            }
        ),
        seal,
    )
    if header:
        first, _, body = made.partition(b"\n")
        made = b" ".join([*first.split()[:3], data.partition(b"\n")[0].split()[3]]) + b"\n" + body
    meta.write_bytes(made)


@pytest.mark.parametrize("how", ["unsigned", "another key", "the old signature", "one bit"])
def test_a_changed_manifest_is_refused(how: str, key: str, original: str, tmp_path: Path) -> None:
    path = str(tmp_path / "copy")
    shutil.copytree(original, path)
    evil = Evil(tmp_path / "made")
    match how:
        case "unsigned":
            manifest_with(path, evil, None)
        case "another key":
            manifest_with(path, evil, Seal(b"the key of somebody else"))
        case "the old signature":
            manifest_with(path, evil, None, header=b"old")
        case "one bit":
            data = (Path(path) / "_metadata").read_bytes().replace(b'"epoch":', b'"epocH":', 1)
            first, _, body = data.partition(b"\n")
            parts = first.split()
            parts[2] = b"%08x" % crc32(body)
            (Path(path) / "_metadata").write_bytes(b" ".join(parts) + b"\n" + body)
    assert refusal(key, path).code == "STATE_NOT_SIGNED"
    with pytest.raises(MillstreamError, match="STATE_NOT_SIGNED"):
        millstream.state.edit(path, hmac_key_file=key)
    shown = CliRunner().invoke(main, ["savepoint", "show", "--hmac-key-file", key, path])
    assert "STATE_NOT_SIGNED" in shown.output
    assert not (tmp_path / "made").exists()


# -- what else is read back ------------------------------------------------------------------------------------


def loop(key: str | None, out: list[Any], **options: Any) -> Any:
    if key is not None:
        options["millstream_state_hmac__key__file"] = key
    env = environment(1, millstream_epoch_records=10, **options)
    numbers = env.from_source(Numbers(10, unbounded=True), None, "numbers").uid("numbers")
    turns = numbers.iterate()
    steps = turns.map(lambda n: n + 1)
    turns.close_with(steps)
    steps._sink("out", CollectOp(out.extend))
    return env.execute_async("loop")


def test_what_is_fed_back_is_signed(key: str, tmp_path: Path) -> None:
    out: list[Any] = []
    client = loop(key, out)
    wait_for(out, 30)
    path = client.stop_with_savepoint(False, str(tmp_path / "a")).result(30)
    fed_back = [one for one in files(path) if one.name.endswith("-feedback")]
    assert fed_back
    assert all(map(is_signed, files(path)))
    for one in fed_back:
        blocks = blocks_of(one)
        blocks[1][0] = blocks[1][0][:3] + pickle.dumps([Evil(tmp_path / "made"), None])
        write_blocks(one, blocks)
    fix_sizes(path, Seal(SECRET))
    more: list[Any] = []
    client = loop(key, more, execution_state__recovery_path=path)
    with pytest.raises(MillstreamError) as raised:
        client.get_job_execution_result().result(30)
    assert raised.value.code == "STATE_NOT_SIGNED"
    assert not (tmp_path / "made").exists()


def test_what_a_task_is_to_read_is_signed(key: str, tmp_path: Path) -> None:
    from millstream.runtime.wire.ranges import SubtaskRanges
    from millstream.spark.work import WorkFiles, read_work

    levels = [SimpleNamespace(vertices=[SimpleNamespace(parallelism=1, splits=True)])]
    storage = open_storage(str(tmp_path / "job"), seal=Seal.of(key))
    job: Any = SimpleNamespace(run_id="r", levels=levels, storage=lambda: storage)
    sources: Any = [SimpleNamespace(vertex=1, parallelism=1)]
    work = WorkFiles(job, sources, lambda: None)
    work.write(0, 0, [SubtaskRanges(1, 0, [], False)])
    data = read_work(job, 0, 0, 0)
    assert data is not None
    assert pickle.loads(data).vertex == 1
    (file,) = files(tmp_path / "job")
    for changed in (data, b"", file.read_bytes()[:SIZE] + pickle.dumps(Evil(tmp_path / "made"))):
        file.write_bytes(changed)
        with pytest.raises(MillstreamError, match="STATE_NOT_SIGNED"):
            read_work(job, 0, 0, 0)


def test_whether_output_is_committed_is_believed_if_it_is_signed(key: str, tmp_path: Path) -> None:
    from millstream.checkpoint.manifest import Manifest

    storage = open_storage(str(tmp_path), seal=Seal.of(key))
    manifest = Manifest(epoch=3, job_id="j", committables={"sink": [b"1"]})
    mark_committed(LocalStorage(str(tmp_path)), manifest)
    assert left_to_commit(storage, manifest).committables
    mark_committed(storage, manifest)
    assert not left_to_commit(storage, manifest).committables


def test_a_planted_intent_is_refused(key: str, tmp_path: Path) -> None:
    """At most once: what was about to be read is skipped, so whoever writes that down decides what is lost."""
    options = {
        "execution_checkpointing_dir": str(tmp_path / "chk"),
        "execution_checkpointing_mode": "AT_MOST_ONCE",
    }
    out: list[Any] = []
    client = start(key, 60, out, **options)
    wait_for(out, 60)
    client.cancel().result(30)
    (job,) = (tmp_path / "chk").iterdir()
    forged = json.dumps({"epoch": 99, "offsets": {"numbers": {"even": 9}}, "unread": {}}).encode()
    (job / INTENT).write_bytes(forged)
    more: list[Any] = []
    client = start(key, 120, more, **options)
    with pytest.raises(MillstreamError, match="STATE_NOT_SIGNED"):
        client.get_job_execution_result().result(30)
    (job / INTENT).write_bytes(signed(Seal.of(key), INTENT, forged))
    client = start(key, 120, more, **options)
    wait_for(more, 1)
    client.cancel().result(30)


# -- tools, and the key ----------------------------------------------------------------------------------------


def test_the_editor_signs_what_it_writes(key: str, original: str, tmp_path: Path) -> None:
    editor = millstream.state.edit(original, hmac_key_file=key)
    editor.put("counter", "count", "k0", 1000)
    path = editor.write(str(tmp_path / "edited"))
    assert all(map(is_signed, files(path)))
    frame = millstream.state.read_pandas(path, "counter", "count", hmac_key_file=key)
    assert dict(zip(frame["key"], frame["value"], strict=True))["k0"] == 1000
    counts(key, path)
    other = key_file(tmp_path / "other.key", b"the key of somebody else")
    with pytest.raises(MillstreamError, match="STATE_NOT_SIGNED"):
        millstream.state.edit(path, hmac_key_file=other)


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (b"too short", 0o600, "too short"),
        (SECRET, 0o604, "by others"),
        (SECRET, 0o620, "by others"),
        (None, 0o600, "cannot be read"),
    ],
)
def test_a_key_that_is_none(content: bytes | None, mode: int, why: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    if content is not None:
        key_file(path, content, mode)
    with pytest.raises(ConfigurationError, match=why) as raised:
        start(str(path), 10, []).get_job_execution_result().result(30)
    assert str(path) in str(raised.value)
    assert SECRET.decode() not in str(raised.value)


def test_the_key_is_never_told(
    key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    saved(tmp_path / "a", key)
    seal = Seal.of(key)
    assert SECRET.decode() not in caplog.text + "".join(capfd.readouterr()) + repr(seal)
    with pytest.raises(TypeError):
        pickle.dumps(seal)
    for folder, _, names in os.walk(tmp_path / "a"):
        for name in names:
            assert SECRET not in (Path(folder) / name).read_bytes()


@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
def test_a_job_without_a_key_unpickles_nothing_of_a_plain_table(
    backend: str, original: str, tmp_path: Path
) -> None:
    for place, evil in enumerate([Evil(tmp_path / "made")] * 2):
        path = str(tmp_path / f"copy{place}")
        shutil.copytree(original, path)
        for one in files(path):
            if one.parts[-3] == "counter":
                blocks = blocks_of(one)
                for block in blocks:
                    if block[0][:1] == b"P":
                        entry = (pickle.dumps(evil), 1) if place else ("k0", evil)
                        block[0] = block[0][:3] + pickle.dumps([entry])
                write_blocks(one, blocks)
        fix_sizes(path, Seal(SECRET))
        error = refusal(None, path, state_backend_type=backend)
        assert error.code == "STATE_NOT_TRUSTED"
        assert "counter/count" in str(error)
        assert not (tmp_path / "made").exists()
