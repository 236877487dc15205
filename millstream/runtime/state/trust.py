"""Where trust ends: who reads which part of a state file.

A pickle can call anything, so reading one is running code. Plain tables hold none: their values are read by an
unpickler that knows no classes, and the bytes of their keys are checked to be made of nothing but parts of keys.
Pickled tables, pickled operator state and what version 0.1.0 wrote are pickles.

A job reads all of them, for it runs its program anyway; who does not trust the folder signs the files. Tools outside
of a job read what is plain, and the rest only if they are told that its writer is trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from millstream.checkpoint.statefile import TableInfo, load_block
from millstream.errors import KeyClassNotFound, StateNotTrusted
from millstream.runtime.wire.keys import check_key, original_key

__all__ = ["Outside", "load_own"]


def load_own(info: TableInfo | None, kind: str, data: memoryview) -> Any:
    """A block, as a job reads it."""
    if info is not None and info.codec != "plain":
        return load_block(info, kind, data)
    try:
        entries = load_block(info, kind, data)
        if info is not None:
            for key in _keys_in(kind, entries):
                check_key(key)
    except Exception as error:
        if info is None and kind != "S":
            raise
        raise _planted(info, error) from error
    return entries


def _keys_in(kind: str, entries: Any) -> Iterable[Any]:
    return entries if kind == "D" else [entry[0] for entry in entries]


class Outside:
    """How a tool reads: plain values, and pickles if `allow_pickle`; of all tables, or of one."""

    def __init__(self, *, allow_pickle: bool = False, only: str | None = None) -> None:
        self.allow_pickle = allow_pickle
        self._only = only

    def __call__(self, info: TableInfo | None, kind: str, data: memoryview) -> Any:
        """A block of a file; None if it is of no interest."""
        if info is not None and self._only not in (None, info.name):
            return None
        if not self.allow_pickle:
            if info is not None and info.codec != "plain":
                if info.name.rpartition("/")[2].startswith("#"):
                    # The engine's own, such as timers, is plain if the program has put no objects there.
                    info = msgspec.structs.replace(info, codec="plain")
                    with suppress(StateNotTrusted):
                        return load_own(info, kind, data)
                raise _needs_trust(f"the table '{info.name}' holds pickles")
            if info is None and kind != "S":
                raise _needs_trust("operator state of version 0.1.0 is pickled")
        return load_own(info, kind, data)

    def elements(self, name: str, codec: str) -> None:
        """Raise if the elements of an operator state may not be read."""
        if codec not in ("plain", "object") and not self.allow_pickle:
            raise _needs_trust(f"the operator state '{name}' holds pickles")

    def keys(self, name: str) -> Callable[[Any], Any]:
        """What gives the keys of a table as the program's key selector gave them."""
        trusted = self.allow_pickle

        def key_of(canon: Any) -> Any:
            try:
                return original_key(canon, trusted=trusted)
            except KeyClassNotFound as error:
                if trusted:
                    raise
                subject = f"a key of the table '{name}' is made by {error.evidence['name']}"
                raise _needs_trust(subject) from error
            except Exception as error:
                raise _planted(name, error) from error

        return key_of


def _needs_trust(subject: str) -> StateNotTrusted:
    msg = f"{subject}, and whoever reads it runs what its writer put there"
    return StateNotTrusted(msg, hint="pass allow_pickle=True if you trust whoever wrote it")


def _planted(table: TableInfo | str | None, error: Exception) -> StateNotTrusted:
    name = table.name if isinstance(table, TableInfo) else table
    subject = "operator state" if name is None else f"the table '{name}'"
    msg = f"{subject} is said to be plain, and is not: no job has written it like this"
    return StateNotTrusted(
        msg, found=f"{type(error).__name__}: {error}", hint="use a copy that you know the origin of"
    )
