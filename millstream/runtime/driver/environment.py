"""The driver's environment as one archive, for hosts that have a bare Python (`--ship-environment`).

What is packed: Millstream, what the program has imported by now, the extras whose connectors it uses, and whatever
those need, each as pip has installed it. What is not: PySpark (executors have Spark's own), pip and other tools that
nobody has imported, tests, caches, commands, and where packages were installed from. The archive unpacks to

```
bin/python        starts a Python of the host that fits, with `lib` before its own packages
check.py          says why a Python does not fit
fits.json         what must fit: version, ABI, C library
lib/...           the packages
```

It is made once for the same files: its name is a checksum of their names, sizes and times.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import sys
import sysconfig
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions, packages_distributions
from importlib.util import MAGIC_NUMBER, cache_from_source, source_from_cache, source_hash
from pathlib import Path

from millstream.errors import ConfigurationError
from millstream.redaction import get_logger
from millstream.runtime.task.dependencies import kept

__all__ = ["PYTHON", "PackedEnvironment", "chosen", "pack"]

_log = get_logger("millstream.job")

PYTHON = "bin/python"
"""The Python inside of the archive."""

_SELF = "millstream"
# Spark's executors bring these along, of the version that they are.
_SPARKS = frozenset({"pyspark", "py4j"})
# Tools for whoever installs packages. Everything else that is not wanted is not imported either.
_TOOLS = frozenset({"pip", "setuptools", "wheel", "distribute", "pkg-resources"})
# A state backend and a file system, which a job may come to use without anybody having imported them.
_ALWAYS = frozenset({"lmdb", "s3"})
# What only drivers use. Modules of these names are imported for every job; the packages go along if they are imported.
_OF_DRIVERS = frozenset({"notebook", "zookeeper"})
# Of a package's own description; a URL may hold a password, and the rest is about this machine.
_NOT_SHIPPED = frozenset({"direct_url.json", "RECORD", "INSTALLER", "REQUESTED"})
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?([^;]*)(?:;(.*))?$")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_|manylinux(2010|2014|1)_")
_OLD_NAMES = {"1": (2, 5), "2010": (2, 12), "2014": (2, 17)}

_WRAPPER = """\
#!/bin/sh
# A Python of this host, with the packages of the driver's environment.
here=$(cd "${{0%/*}}/.." && pwd)
for name in {candidates}; do
  python=$(command -v "$name") || {{ tried="$tried$name: not there; "; continue; }}
  if problem=$("$python" "$here/check.py" 2>&1); then
    PYTHONPATH="$here/lib${{PYTHONPATH:+:$PYTHONPATH}}"
    export PYTHONPATH
    exec "$python" "$@"
  fi
  tried="$tried$python: $problem; "
done
echo "[millstream-no-python] $tried" >&2
exit 78
"""

# Runs on whatever Python a host has.
_CHECK = """\
import json, os, platform, sys, sysconfig

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "fits.json")) as file:
    wanted = json.load(file)
version = "%d.%d" % sys.version_info[:2]
if version != wanted["python"]:
    sys.exit("is Python %s, the driver's is %s" % (version, wanted["python"]))
abi = sysconfig.get_config_var("SOABI")
if abi != wanted["abi"]:
    sys.exit("is built as %s, the driver's as %s" % (abi, wanted["abi"]))
name, libc = platform.libc_ver()
if wanted["glibc"] and name == "glibc":
    if tuple(int(n) for n in libc.split(".")[:2]) < tuple(wanted["glibc"]):
        sys.exit("has glibc %s, the packages need %d.%d" % ((libc,) + tuple(wanted["glibc"])))
"""


@dataclass(frozen=True)
class PackedEnvironment:
    """A packed environment: its file, its checksum, the packages in it, and whether it had to be made."""

    path: str
    checksum: str
    packages: tuple[str, ...]
    size: int
    made: bool


def pack(
    base: str | None, packages: Sequence[str] = (), python: str | None = None
) -> PackedEnvironment:
    """The archive; `base` is the folder that the user has named for such things. `packages` are names to pack instead
    of what the program has imported, `*` for all; `python` is the one that the hosts are to run, if it is known."""
    found = chosen(packages)
    files = sorted(_files(found))
    fits = json.dumps(
        {
            "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
            "abi": sysconfig.get_config_var("SOABI"),
            "glibc": _glibc(found),
        }
    )
    wrapper = _WRAPPER.format(candidates=" ".join(_candidates(python)))
    checksum = _checksum(files, fits, wrapper)
    name, began, made = f"environment-{checksum}.zip", time.monotonic(), False

    def fill(folder: Path) -> None:
        nonlocal made
        made = True
        _write(folder / name, files, {"fits.json": fits, "check.py": _CHECK, PYTHON: wrapper})

    path = kept(base, f"environment-{checksum}", fill) / name
    names = tuple(sorted(f"{dist.name} {dist.version}" for dist in found))
    environment = PackedEnvironment(str(path), checksum, names, path.stat().st_size, made)
    _log.info("the environment: %s", ", ".join(names))
    _log.log(
        30 if made else 20,
        "the environment of %d packages and %.0f MB is %s",
        len(names),
        environment.size / 1e6,
        f"packed in {time.monotonic() - began:.1f} s" if made else "packed already",
    )
    return environment


def _candidates(python: str | None) -> list[str]:
    if python is not None:
        return [_quoted(python)]
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return ["python3", version, f"/usr/bin/{version}", f"/usr/local/bin/{version}"]


def _quoted(text: str) -> str:
    escaped = text.replace("'", "'\\''")
    return f"'{escaped}'"


# -- which packages -----------------------------------------------------------------------------------------


def chosen(packages: Sequence[str] = ()) -> list[Distribution]:
    """The installed packages to ship, by name.

    >>> names = [dist.name.lower() for dist in chosen()]
    >>> "pyarrow" in names, "pyspark" in names, "pip" in names
    (True, False, False)
    """
    # The first on the path is the one that is imported.
    installed: dict[str, Distribution] = {}
    for dist in distributions():
        installed.setdefault(_plain(dist.name), dist)
    if "*" in packages:
        wanted = set(installed)
    else:
        named = [_plain(name) for name in packages]
        missing = [name for name in named if name not in installed]
        if missing:
            raise ConfigurationError(
                f"a package that is to be shipped is not installed here: {', '.join(missing)}",
                key="millstream.environment.packages",
                python=sys.executable,
                hint="install it in this environment, or take its name out",
            )
        roots = [*named, _SELF] if named else [*_imported(), _SELF]
        wanted = _closure(installed, roots, _extras())
    left = wanted - _SPARKS - _TOOLS
    return [installed[name] for name in sorted(left)]


def _plain(name: str) -> str:
    """
    >>> _plain("typing_extensions")
    'typing-extensions'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def _imported() -> set[str]:
    """The distributions of what this process has imported."""
    owners = packages_distributions()
    modules = {name.partition(".")[0] for name in list(sys.modules)}
    return {_plain(owner) for module in modules for owner in owners.get(module, ())}


def _extras() -> set[str]:
    """The extras of Millstream that the program uses: those of the connectors that it has imported."""
    own = [name for name in list(sys.modules) if name.startswith(f"{_SELF}.")]
    return {*_ALWAYS, *(part for name in own for part in name.split("."))} - _OF_DRIVERS


def _closure(
    installed: dict[str, Distribution], roots: Iterable[str], extras: set[str]
) -> set[str]:
    """The roots and all that they need and that is installed. What is needed on other systems is not."""
    found: set[str] = set()
    waiting = [(root, frozenset(extras if root == _SELF else ())) for root in roots]
    seen = set()
    while waiting:
        step = waiting.pop()
        name, asked = step
        if step in seen or name not in installed:
            continue
        seen.add(step)
        found.add(name)
        if name in _SPARKS:
            continue
        for line in installed[name].requires or ():
            match = _REQUIREMENT.match(line)
            if match is None:
                continue
            of_extra = set(_EXTRA.findall(match[4] or ""))
            if not of_extra or of_extra & asked:
                more = frozenset(
                    word.strip() for word in (match[2] or "").split(",") if word.strip()
                )
                waiting.append((_plain(match[1]), more))
    return found


# -- which files --------------------------------------------------------------------------------------------


def _files(found: Sequence[Distribution]) -> Iterator[tuple[str, str]]:
    """Names in the archive, and where the files are."""
    for dist in found:
        if _plain(dist.name) == _SELF:
            yield from _of_millstream(dist)
            continue
        for file in dist.files or ():
            parts = file.parts
            # Commands are beside `lib`, and would start a Python of this machine.
            if ".." in parts or file.is_absolute() or _is_waste(parts):
                continue
            place = Path(str(dist.locate_file(file)))
            if place.is_file():
                yield "/".join(("lib", *parts)), str(place)
                yield from _compiled(parts, place)


def _of_millstream(dist: Distribution) -> Iterator[tuple[str, str]]:
    """The package itself, however it was installed: its tests and documents are beside it."""
    import millstream

    package = Path(millstream.__file__).parent
    for path in package.rglob("*"):
        inside = path.relative_to(package).parts
        if path.is_file() and not _is_waste(inside) and not any(p.startswith(".") for p in inside):
            yield "/".join(("lib", _SELF, *inside)), str(path)
            yield from _compiled((_SELF, *inside), path)
    for file in dist.files or ():
        if file.name == "METADATA" and len(file.parts) == 2:
            yield "/".join(("lib", *file.parts)), str(dist.locate_file(file))


def _compiled(parts: Sequence[str], place: Path) -> Iterator[tuple[str, str]]:
    """What Python has made of a module here: each executor would compile all of them again, for seconds."""
    if place.suffix == ".py":
        made = Path(cache_from_source(str(place)))
        if made.is_file():
            yield "/".join(("lib", *parts[:-1], "__pycache__", made.name)), str(made)


def _unchecked(compiled: bytes, source: str) -> bytes | None:
    """A compiled module that Python takes without looking at its source, whose time will be another (PEP 552); None if
    it is not that of the source as it is now."""
    facts = os.stat(source)
    now = (int(facts.st_mtime) & 0xFFFFFFFF, facts.st_size & 0xFFFFFFFF)
    if compiled[:8] != MAGIC_NUMBER + bytes(4) or struct.unpack("<II", compiled[8:16]) != now:
        return None
    return (
        MAGIC_NUMBER + struct.pack("<I", 1) + source_hash(Path(source).read_bytes()) + compiled[16:]
    )


def _is_waste(parts: Sequence[str]) -> bool:
    return (
        "__pycache__" in parts
        or "tests" in parts[:-1]
        or parts[-1].endswith((".pyc", ".pth"))
        or (len(parts) == 2 and parts[0].endswith(".dist-info") and parts[1] in _NOT_SHIPPED)
    )


def _glibc(found: Sequence[Distribution]) -> list[int] | None:
    """The C library that the packages were built for; None if they have nothing of the kind."""
    needed: tuple[int, int] | None = None
    for dist in found:
        versions = []
        for match in _MANYLINUX.finditer(dist.read_text("WHEEL") or ""):
            old = match[3]
            versions.append(_OLD_NAMES[old] if old else (int(match[1]), int(match[2])))
        if versions:
            # Its tags are names for the same file: one of them is enough.
            needed = max(needed or (0, 0), min(versions))
    return None if needed is None else list(needed)


def _checksum(files: Sequence[tuple[str, str]], *texts: str) -> str:
    digest = hashlib.sha256("\n".join((*texts, _CHECK)).encode())
    for name, place in files:
        facts = os.stat(place)
        digest.update(f"{name}\n{facts.st_size}\n{facts.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:24]


def _write(target: Path, files: Sequence[tuple[str, str]], texts: dict[str, str]) -> None:
    # Level 1: three times as quick as the default, for a tenth more bytes.
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, text in texts.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o755 if name == PYTHON else 0o644) << 16
            archive.writestr(info, text)
        for name, place in files:
            info = zipfile.ZipInfo.from_file(place, name, strict_timestamps=False)
            if place.endswith(".pyc"):
                compiled = _unchecked(Path(place).read_bytes(), source_from_cache(place))
                if compiled is not None:
                    archive.writestr(info, compiled, zipfile.ZIP_DEFLATED)
                continue
            info.compress_type = zipfile.ZIP_DEFLATED
            with open(place, "rb") as source, archive.open(info, "w", force_zip64=True) as out:
                while chunk := source.read(1 << 20):
                    out.write(chunk)
