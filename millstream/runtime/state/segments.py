"""The files of a store: writing and reading one, and the chains that they make."""

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

__all__ = ["extend_chain", "needs_folding", "open_file", "read_file", "store_folder", "write_file"]

# File systems take 255 bytes a name.
_MAX_NAME = 120
# A chain is folded when it is this long, or when its changes have grown to so many times the full file.
_MAX_CHAIN = 40
_MAX_GROWTH = 8
_COPY_IN_MEMORY = 8 << 20


def write_file(
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


def open_file(storage: Storage, file: StateFile, *, copy: bool = False) -> BinaryIO:
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


def read_file(
    storage: Storage, file: StateFile, stream: BinaryIO | None = None, loads: Loads = load_own
) -> Iterator[tuple[TableInfo | None, str, Any]]:
    """The blocks of a file with the table that each belongs to; None is operator state."""
    with stream or open_file(storage, file) as stream:
        reader = StateReader(file.name, stream, loads, storage.seal)
        for place, kind, entries in reader:
            yield None if place < 0 else reader.header.tables[place], kind, entries


def needs_folding(chain: Sequence[StateFile]) -> bool:
    """True if reading the chain has become much more work than reading its content."""
    if len(chain) < 3:
        return False
    changes = sum(file.size for file in chain[1:])
    return len(chain) >= _MAX_CHAIN or changes > _MAX_GROWTH * max(chain[0].size, 1 << 16)


def extend_chain(chain: Sequence[StateFile], file: StateFile | None) -> list[StateFile]:
    """The chain after an epoch whose winning file is `file`."""
    if file is None:
        return list(chain)
    return [file] if file.full else [*chain, file]


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


def describe(info: TableInfo) -> str:
    """A table in words, for messages."""
    schema = "pickled" if info.schema is None else str(info.schema)
    return f"{info.kind} state, {schema}" + (", with time-to-live" if info.ttl else "")
