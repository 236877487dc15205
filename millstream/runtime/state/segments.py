"""The segments of a store, its state files in order: writing and reading one, and when there are too many of them."""

from __future__ import annotations

import hashlib
import io
import pickle
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, cast
from urllib.parse import quote

import msgspec

from millstream.checkpoint.statefile import (
    Header,
    Loads,
    StateFile,
    StateReader,
    StateWriter,
    TableInfo,
    damaged,
)
from millstream.runtime.state.backend import Parts
from millstream.runtime.state.storing import which_entry
from millstream.runtime.state.trust import load_own
from millstream.runtime.wire.codec import dumps
from millstream.storage.storage import Storage

__all__ = [
    "extend_segments",
    "needs_compaction",
    "open_segment",
    "read_segment",
    "store_folder",
    "write_segment",
]

# File systems take 255 bytes a name.
_MAX_NAME = 120
# Segments are compacted when they are this many, or when the changes have grown to so many times the full one.
_MAX_SEGMENTS = 40
_MAX_GROWTH = 8
_COPY_IN_MEMORY = 8 << 20


def write_segment(
    storage: Storage, header: Header, states: dict[str, Any] | None, parts: Parts
) -> int:
    """Write a file of the given parts; its size."""
    header = msgspec.structs.replace(header, tables=[info for info, _ in parts])
    with storage.open_write(header.name) as stream:
        writer = StateWriter(stream, header, dumps, storage.seal)
        if states is not None:
            writer.operator_state(states)
        for place, (info, blocks) in enumerate(parts):
            for kind, entries in blocks:
                try:
                    writer.entries(place, kind, entries)
                except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
                    raise which_entry(info.name, entries, error) from error
        writer.end()
    return writer.size


def open_segment(storage: Storage, file: StateFile, *, copy: bool = False) -> BinaryIO:
    """A file's bytes, as a copy on this machine if asked for."""
    try:
        stream = storage.open_read(file.name)
    except FileNotFoundError:
        raise damaged(file.name, "it is missing") from None
    if not copy:
        return stream
    with stream:
        large = file.size > _COPY_IN_MEMORY
        local = tempfile.TemporaryFile() if large else io.BytesIO()  # noqa: SIM115 - the caller's
        shutil.copyfileobj(stream, local, 1 << 20)
    local.seek(0)
    return cast("BinaryIO", local)


def read_segment(
    storage: Storage, file: StateFile, stream: BinaryIO | None = None, loads: Loads = load_own
) -> Iterator[tuple[TableInfo | None, str, Any]]:
    """The blocks of a file with the table that each belongs to; None is operator state."""
    with stream or open_segment(storage, file) as stream:
        yield from StateReader(file.name, stream, loads, storage.seal)


def needs_compaction(segments: Sequence[StateFile]) -> bool:
    """True if reading the segments has become much more work than reading one that stands for them."""
    if len(segments) < 3:
        return False
    changes = sum(file.size for file in segments[1:])
    return len(segments) >= _MAX_SEGMENTS or changes > _MAX_GROWTH * max(segments[0].size, 1 << 16)


def extend_segments(segments: Sequence[StateFile], file: StateFile | None) -> list[StateFile]:
    """The segments after an epoch whose winning file is `file`."""
    if file is None:
        return list(segments)
    return [file] if file.full else [*segments, file]


def store_folder(owner: str) -> str:
    """The owner as a path. A uid is any text: quoted it stays below its folder, and a long one is cut."""
    uid, _, subtask = owner.rpartition("/")
    name = quote(uid, safe="", errors="surrogatepass")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > _MAX_NAME:
        digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
        name = f"{name[:_MAX_NAME]}-{digest}"
    return f"{name}/{subtask}"


def describe_table(info: TableInfo) -> str:
    """A table in words, for messages."""
    schema = "pickled" if info.schema is None else str(info.schema)
    return f"{info.kind} state, {schema}" + (", with time-to-live" if info.ttl else "")
