"""State larger than memory: a worker that may take 300 MB holds more on the `lmdb` backend.

Usage: python benchmarks/large_state.py [--gb 0.5] [--limit-mb 300] [--folder DIR] [--micro-only]

A process of its own writes the state in epochs, reads it at random, compacts the state files, and opens everything
again from the files alone. `RLIMIT_DATA` is set above what the interpreter has taken with all modules loaded: memory
that the process takes for itself ends there. The map of LMDB's file is not part of it; the system takes its pages back
when it needs them. Then both backends do the same small work, side by side.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millstream.api.state import ValueStateDescriptor
from millstream.checkpoint.manifest import StoreState
from millstream.checkpoint.statefile import StateFile
from millstream.runtime.state.hash_tables import make_hash_table
from millstream.runtime.state.keyed_state import KeyContext, KeyedStates
from millstream.runtime.state.lmdb.store import LmdbStore
from millstream.runtime.state.store import StateStore, compact, extend_segments
from millstream.storage.storage import LocalStorage

VALUE = 1024
EPOCH_KEYS = 40_000
READS = 200_000
MICRO_KEYS = 100_000
OWNER = "op/0"


def status(field: str) -> int:
    """A line of /proc/self/status in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) << 10
    return 0


def value_of(key: int, turn: int) -> bytes:
    """What the key must hold, so that every read can be checked."""
    return (key * 31 + turn).to_bytes(8, "big") * (VALUE // 8)


def make_store(backend: str, folder: Path, local: str) -> StateStore:
    """A store as a task has it."""
    make_table: Callable[..., Any] = make_hash_table
    if backend == "lmdb":
        make_table = LmdbStore(str(folder / local), "large-state", str(folder), OWNER).table
    storage = LocalStorage(str(folder / "files"), durable=False)
    return StateStore(storage, OWNER, operators=["op"], make_table=make_table)


def version(segments: list[StateFile]) -> StoreState:
    """The version that segments stand for."""
    return StoreState(
        subtask=0, parallelism=1, max_parallelism=128, operators=["op"], segments=list(segments)
    )


class Peak:
    """The most anonymous memory that was seen, above the beginning."""

    def __init__(self) -> None:
        self.base = status("RssAnon")
        self.most = 0

    def look(self) -> None:
        self.most = max(self.most, status("RssAnon") - self.base)


def large(gigabytes: float, limit_mb: int, folder: Path) -> None:
    """Runs in the limited process."""
    limit = status("VmData") + (limit_mb << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    keys = int(gigabytes * 1e9 / VALUE)
    peak = Peak()
    store = make_store("lmdb", folder, "local")
    table = store.table("op/state")
    segments: list[StateFile] = []
    attempt = 0

    def report(what: str, seconds: float, count: int) -> None:
        peak.look()
        rate = count / max(seconds, 1e-9)
        print(
            f"{what:<42} {seconds:8.2f} s  {rate:10,.0f}/s  peak RssAnon +{peak.most / 1e6:.0f} MB",
            flush=True,
        )

    def epoch(writes: dict[int, bytes]) -> None:
        nonlocal segments, attempt
        store.open(version(segments))
        peak.look()
        table.changes.update(writes)
        segments = extend_segments(segments, store.snapshot(attempt, f"a{attempt}"))
        attempt += 1
        peak.look()

    begin = time.perf_counter()
    for start in range(0, keys, EPOCH_KEYS):
        epoch({key: value_of(key, 0) for key in range(start, min(keys, start + EPOCH_KEYS))})
    store.open(version(segments))
    report(f"write {keys:,} keys of {VALUE} bytes", time.perf_counter() - begin, keys)

    rng = random.Random(1)
    begin = time.perf_counter()
    for _ in range(READS):
        key = rng.randrange(keys)
        assert table.read(key, None) == value_of(key, 0)
    report(f"read {READS:,} at random", time.perf_counter() - begin, READS)

    changed: set[int] = set()
    begin = time.perf_counter()
    for _ in range(3):
        some = [rng.randrange(keys) for _ in range(EPOCH_KEYS)]
        changed.update(some)
        epoch({key: value_of(key, 1) for key in some})
    store.open(version(segments))
    report(
        f"3 epochs of {EPOCH_KEYS:,} changes at random", time.perf_counter() - begin, len(changed)
    )
    assert store.rebuilds == 0

    begin = time.perf_counter()
    storage = LocalStorage(str(folder / "files"), durable=False)
    compacted = compact(storage, OWNER, segments, "compacted")
    report(f"compact {len(segments)} files into one", time.perf_counter() - begin, keys)

    for what, files in (("the segments", segments), ("the compacted file", [compacted])):
        begin = time.perf_counter()
        other = make_store("lmdb", folder, f"local-{len(files)}")
        other.open(version(files))
        seconds = time.perf_counter() - begin
        again = other.table("op/state")
        for _ in range(20_000):
            key = rng.randrange(keys)
            assert again.read(key, None) == value_of(key, int(key in changed))
        report(f"open from {what} on another machine", seconds, keys)
    size = sum(path.stat().st_blocks * 512 for path in (folder / "local").rglob("*.mdb"))
    print(f"state {keys * VALUE / 1e9:.2f} GB, environment on disk {size / 1e9:.2f} GB, ", end="")
    print(f"limit +{limit_mb} MB, peak RssAnon +{peak.most / 1e6:.0f} MB")


def micro(folder: Path) -> None:
    """The same work on both backends, in CPU time, which does not depend on what else the machine does."""
    print(f"\n{'':<34}" + "".join(f"{name:>14}" for name in ("hashmap", "lmdb")))
    results: dict[str, list[str]] = {}
    for backend in ("hashmap", "lmdb"):
        for what, text in _micro(backend, folder / backend):
            results.setdefault(what, []).append(text)
    for what, texts in results.items():
        print(f"{what:<34}" + "".join(f"{text:>14}" for text in texts))


def _micro(backend: str, folder: Path) -> list[tuple[str, str]]:
    store = make_store(backend, folder, "local")
    keys = KeyContext()
    store.open(None)
    state = KeyedStates(store, "op", "op", keys).get(ValueStateDescriptor("n", None), "value")
    names = [f"key-{n}" for n in range(MICRO_KEYS)]
    random.Random(2).shuffle(names)
    hot = names[:5_000] * (MICRO_KEYS // 5_000)
    segments: list[StateFile] = []
    found: list[tuple[str, str]] = []

    def timed(what: str, work: Callable[[], None], count: int | None = MICRO_KEYS) -> None:
        begin = time.process_time()
        work()
        seconds = time.process_time() - begin
        each = f"{seconds * 1e3:.0f} ms" if count is None else f"{seconds / count * 1e6:.2f} us"
        found.append((what, each))

    def update() -> None:
        for name in names:
            keys.key = keys.canon = name
            state.update(1)

    def read(which: list[str]) -> None:
        for name in which:
            keys.key = keys.canon = name
            state.value()

    def count(which: list[str]) -> None:
        for name in which:
            keys.key = keys.canon = name
            state.update((state.value() or 0) + 1)

    def snapshot() -> None:
        nonlocal segments
        segments = extend_segments(segments, store.snapshot(len(segments), f"m{len(segments)}"))

    timed("update, a new key", update)
    timed("snapshot, 100,000 changes", snapshot, None)
    timed("open, own 100,000 changes", lambda: store.open(version(segments)), None)
    timed("value(), 100,000 keys, first time", lambda: read(names))
    timed("value(), 5,000 keys again and again", lambda: read(hot))
    timed("value() and update(), each key", lambda: count(names))
    timed("snapshot, 100,000 changed again", snapshot, None)
    timed("open, own 100,000 changed again", lambda: store.open(version(segments)), None)
    other = make_store(backend, folder, "local-2")
    timed("open from the files", lambda: other.open(version(segments)), None)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gb", type=float, default=0.25)
    parser.add_argument("--limit-mb", type=int, default=300)
    parser.add_argument("--folder", help="where to work; must have room for five times the state")
    parser.add_argument("--micro-only", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        tempfile.tempdir = name
        folder = Path(name)
        if not options.micro_only:
            context = multiprocessing.get_context("spawn")
            worker = context.Process(
                target=large, args=(options.gb, options.limit_mb, folder / "large")
            )
            worker.start()
            worker.join()
            if worker.exitcode:
                sys.exit(f"the worker ended with {worker.exitcode}")
        micro(folder)


if __name__ == "__main__":
    main()
