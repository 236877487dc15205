"""What a savepoint refers to by name: every reference of every pickle in it, however deep."""

from __future__ import annotations

import io
import pickletools
import re
from collections import Counter
from pathlib import Path

from millstream.checkpoint.manifest import METADATA, decode_manifest
from millstream.checkpoint.statefile import StateReader, TableInfo

__all__ = ["names_in", "names_of"]

_TEXTS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")
_BYTES = ("SHORT_BINBYTES", "BINBYTES", "BINBYTES8")
_KEEP = ("MEMOIZE", "FRAME", "BINPUT", "LONG_BINPUT", "PUT")
# In the bytes of a key a class is a text: "name", then where it is from.
_CLASS = re.compile(r"\w+(\.\w+)+")


def names_of(data: bytes) -> Counter[str]:
    """The references of a pickle, and of the pickles within it, as "module name"; of classes in
    keys as "key module.name"."""
    found: Counter[str] = Counter()
    texts: list[str] = []
    memo: dict[int, str] = {}
    last = ""
    for code, argument, _ in pickletools.genops(data):
        if code.name in _TEXTS:
            if last == "name" and _CLASS.fullmatch(argument):
                found[f"key {argument}"] += 1
            last = argument
            texts.append(argument)
        elif code.name == "MEMOIZE":
            memo[len(memo)] = last
        elif code.name in ("BINGET", "LONG_BINGET"):
            texts.append(memo.get(argument, "?"))
            last = texts[-1]
        elif code.name == "STACK_GLOBAL":
            found[f"{texts[-2]} {texts[-1]}"] += 1
            last = ""
        elif code.name in ("GLOBAL", "INST"):
            found[argument] += 1
            last = ""
        elif code.name in _BYTES:
            last = ""
            if argument[:1] == b"\x80" and argument[-1:] == b".":
                found += names_of(argument)
        elif code.name not in _KEEP:
            last = ""
    return found


def names_in(folder: Path) -> dict[str, Counter[str]]:
    """The references in a savepoint, by table; those of the manifest by "manifest"."""
    found: dict[str, Counter[str]] = {}

    def note(info: TableInfo | None, kind: str, data: memoryview) -> None:
        name = f"operator state {kind}" if info is None else info.name
        found.setdefault(name, Counter()).update(names_of(bytes(data)))

    manifest = (folder / METADATA).read_bytes()
    decoded = decode_manifest(METADATA, manifest)
    for splits in decoded.times.values():
        for generators in splits.values():
            for name, state in generators.items():
                if state.generator:
                    found.setdefault(f"generator {name}", Counter()).update(
                        names_of(state.generator)
                    )
    for sink, committables in decoded.committables.items():
        for one in committables:
            if one[:1] == b"\x80":
                found.setdefault(f"committables of {sink}", Counter()).update(names_of(one))
    for file in sorted((folder / "shared").rglob("*")):
        if file.is_file():
            name = str(file.relative_to(folder))
            for _ in StateReader(name, io.BytesIO(file.read_bytes()), note):
                pass
    return found
