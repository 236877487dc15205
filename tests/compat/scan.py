"""What a savepoint refers to by name: every reference of every pickle in it, however deep."""

from __future__ import annotations

import io
import pickletools
import re
from collections import Counter
from functools import cache
from pathlib import Path

import msgspec

from millstream.checkpoint.manifest import METADATA, decode_manifest
from millstream.checkpoint.statefile import StateReader, TableInfo

__all__ = [
    "CLASSES",
    "CLASSES_IN_KEYS",
    "IN_KEYS",
    "LATER_WORDS",
    "WORDS",
    "misnamed",
    "names_in",
    "names_of",
    "public_names",
]

# By these the bytes of keys refer to their parts. Each is in somebody's savepoint: nothing is ever changed here.
IN_KEYS = {
    "millstream.runtime.keys _Part",
    "millstream.common.types make_row",
    "millstream.common.types RowKind",
}
CLASSES_IN_KEYS = {
    "millstream.common.evictor.TimestampedValue",
    "millstream.common.source.Timestamped",
    "millstream.common.time.Duration",
    "millstream.common.time.Instant",
    "millstream.common.time.Time",
    "millstream.common.time_domain.TimeDomain",
    "millstream.common.types.Row",
    "millstream.common.types.RowKind",
    "millstream.common.windows.CountWindow",
    "millstream.common.windows.GlobalWindow.get",
    "millstream.common.windows.TimeWindow",
}
WORDS = set(
    "row row_kind time_window count_window global_window instant time duration time_domain trigger_result "
    "timestamped watermark timestamped_value dead_letter".split()
)
# Words that came after the savepoints of this folder were written.
LATER_WORDS = {"kafka_record"}
# A class itself has no parts, and is named by its place: it is read for ever as a former name.
CLASSES = {"millstream.common.types Row"}

_TEXTS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")
_BYTES = ("SHORT_BINBYTES", "BINBYTES", "BINBYTES8")
_KEEP = ("MEMOIZE", "FRAME", "BINPUT", "LONG_BINPUT", "PUT")
# In the bytes of a key a class is a text: "name", then where it is from.
_TEXT = re.compile(rb"\bmillstream(?:\.\w+)+")
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
            found[argument] += 1  # type: ignore[index]
            last = ""
        elif code.name in _BYTES:
            last = ""
            if argument[:1] == b"\x80" and argument[-1:] == b".":  # type: ignore[index]
                found += names_of(argument)
        elif code.name not in _KEEP:
            last = ""
    return found


@cache
def public_names() -> frozenset[str]:
    """What a class of a user's script may have taken along into state, as "module:name" below `millstream`: every
    public name that there was. Lines are added, and never taken out."""
    return frozenset(Path(__file__).with_name("public_names.txt").read_text().split())


# One reference as it is written: module and name, each as a short text, remembered or not. Of a class in a key the
# word "name" and the whole.
_REFERENCE = re.compile(rb"\x8c.(millstream[\w.]*)\x94?\x8c.([\w.]+)\x94?\x93", re.DOTALL)
_IN_KEY = re.compile(rb"\x8c\x04name\x94?\x8c.(millstream[\w.]*)", re.DOTALL)
_FINE = IN_KEYS | CLASSES | {f"millstream.v {word}" for word in WORDS | LATER_WORDS}


def misnamed(data: bytes) -> set[str]:
    """What pickled state names by a module of the project that may move; quickly, without a look at its structure."""
    found = {f"{module.decode()} {name.decode()}" for module, name in _REFERENCE.findall(data)}
    if b"cloudpickle.cloudpickle" in data:
        # A class that comes with its definition names its bases, and what its methods use.
        found -= {f"millstream.{name.replace(':', ' ')}" for name in public_names()}
    in_keys = {name.decode() for name in _IN_KEY.findall(data)} - CLASSES_IN_KEYS
    return (found - _FINE) | {f"key {name}" for name in in_keys}


def names_in(folder: Path) -> dict[str, Counter[str]]:
    """The references in a savepoint, by table; what the manifest and the files' headers name as text, by "texts"."""
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
    texts = Counter(one.decode() for one in _TEXT.findall(manifest))
    for file in sorted((folder / "shared").rglob("*")):
        if file.is_file():
            name = str(file.relative_to(folder))
            reader = StateReader(name, io.BytesIO(file.read_bytes()), note)
            texts.update(one.decode() for one in _TEXT.findall(msgspec.json.encode(reader.header)))
            for _ in reader:
                pass
    found["texts"] = texts
    return found
