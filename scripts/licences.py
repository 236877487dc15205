"""Writes docs/licences.md: the licence of every package of requirements.lock, and what each is needed for.

What a package says of itself is read where it is installed; one that is not (of another system, or because the
environment is older than the lock) is fetched with pip. With --check nothing is written or fetched: the page must
name the packages of the lock in their versions, with the licences of those that are installed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from email.message import Message
from email.parser import Parser
from functools import cache
from importlib import metadata
from pathlib import Path

from locked import Package, normal, packages

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "licences.md"
HEAD = """# Licences

Millstream is [Apache-2.0](../LICENSE). This page is written by `make licences` from `requirements.lock` and what the
packages say of themselves. "always" is what `pip install millstream` brings, with all that comes along; the names of
extras stand for `pip install 'millstream[..]'`; "development" is installed in a clone only.

The wheel itself holds code of others, for the dashboard, its licences beside it in `millstream/web/vendor`: Preact,
uPlot and dagre (MIT), htm (Apache-2.0). PySpark's wheel holds Spark's jars, whose licences are in Spark's distribution.

| licence | packages |
|---|---|
"""
TABLE = """
| package | version | licence | needed by |
|---|---|---|---|
"""
# Spellings of one licence. A plain "BSD" does not say which, and stays.
SAME = {
    "MIT License": "MIT",
    "MIT license": "MIT",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "Modified BSD License": "BSD-3-Clause",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "ISC License (ISCL)": "ISC",
    "ISC license": "ISC",
    "PSF": "PSF-2.0",
}
SAYS_NOTHING = {"Dual License", "UNKNOWN"}
# Where wheels of packages are that this machine has no use for.
OTHER_MACHINES = [
    ["--python-version", "3.14"],
    ["--platform", "win_amd64"],
    ["--platform", "macosx_11_0_arm64"],
]


def licence(about: Message) -> str:
    """The licence that a package's metadata states: an expression, a short name, or classifiers.

    >>> from email import message_from_string
    >>> licence(message_from_string("License-Expression: MIT OR Apache-2.0"))
    'MIT OR Apache-2.0'
    >>> licence(
    ...     message_from_string(
    ...         "License: Dual License\\nClassifier: License :: OSI Approved :: BSD License"
    ...     )
    ... )
    'BSD'
    """
    if about["License-Expression"]:
        return str(about["License-Expression"])
    named = str(about["License"] or "").strip()
    if named and "\n" not in named and len(named) < 40 and named not in SAYS_NOTHING:
        return SAME.get(named, named)
    kinds = [str(line).split(" :: ") for line in about.get_all("Classifier") or []]
    told = [kind[-1] for kind in kinds if kind[0] == "License" and kind[-1] != "DFSG approved"]
    return " or ".join(SAME.get(kind, kind) for kind in told) or "not stated"


def installed(package: Package) -> Message | None:
    """The metadata of a package, if it is installed in the version of the lock."""
    try:
        found = metadata.distribution(package.name)
    except metadata.PackageNotFoundError:
        return None
    if normal(found.metadata["Name"]) != normal(package.name) or found.version != package.version:
        return None
    return found.metadata  # type: ignore[return-value]


@cache
def fetched(package: Package) -> Message:
    """The metadata of a package that is not installed, from its wheel."""
    for where in [[], *OTHER_MACHINES]:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *where]
            command += [
                "--only-binary=:all:",
                "--dest",
                folder,
                f"{package.name}=={package.version}",
            ]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                (wheel,) = Path(folder).glob("*.whl")
                with zipfile.ZipFile(wheel) as files:
                    (name,) = (n for n in files.namelist() if n.endswith(".dist-info/METADATA"))
                    return Parser().parsestr(files.read(name).decode())
    sys.exit(f"licences: {package.name} {package.version} is not installed and cannot be fetched")


def required(lines: Iterable[str], extras: frozenset[str]) -> set[tuple[str, frozenset[str]]]:
    """Names and extras that requirements name, whatever the machine; those of extras only if they are asked for.

    >>> sorted(required(["a>=1", "b[c]; extra == 'x'", "d; extra == 'y'"], frozenset({"x"})))
    [('a', frozenset()), ('b', frozenset({'c'}))]
    """
    found = set()
    for line in lines:
        wanted = re.search(r"""extra\s*==\s*["']([\w.-]+)["']""", line)
        if wanted is None or normal(wanted[1]) in extras:
            named = re.match(r"\s*([\w.-]+)\s*(?:\[([^\]]*)\])?", line)
            assert named is not None, line
            parts = frozenset(normal(part.strip()) for part in (named[2] or "").split(",") if part)
            found.add((normal(named[1]), parts))
    return found


def closure(roots: Iterable[str], about: dict[str, Message]) -> set[str]:
    """All packages that requirements bring along."""
    waiting = list(required(roots, frozenset()))
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen or name not in about:
            continue
        seen.add((name, extras))
        lines = [str(line) for line in about[name].get_all("Requires-Dist") or []]
        waiting.extend(required(lines, extras))
    return {name for name, _ in seen}


def needed_by(about: dict[str, Message]) -> dict[str, str]:
    """What each package is needed by: "always", the names of extras, or "development"."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    always = closure(project["dependencies"], about)
    extras = {
        extra: closure(lines, about)
        for extra, lines in project["optional-dependencies"].items()
        if extra != "dev"
    }
    told = {}
    for name in about:
        named = [extra for extra, brought in sorted(extras.items()) if name in brought]
        told[name] = "always" if name in always else ", ".join(named) or "development"
    return told


def page(read: Callable[[Package], Message]) -> str:
    """The text of the page."""
    # One name may have two versions, for different Pythons.
    about = {package: read(package) for package in packages()}
    uses = needed_by({normal(package.name): told for package, told in about.items()})
    counts = Counter(licence(told) for told in about.values())
    summary = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    totals = "".join(f"| {name} | {count} |\n" for name, count in summary)
    lines = sorted(
        f"| {normal(package.name)} | {package.version} | {licence(told)} | {uses[normal(package.name)]} |\n"
        for package, told in about.items()
    )
    return HEAD + totals + TABLE + "".join(lines)


def rows() -> dict[tuple[str, str], tuple[str, str]]:
    """Licence and use of each package and version, as the page has them."""
    table = PAGE.read_text().partition(TABLE)[2]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()]
    return {(name, version): (told, use) for name, version, told, use in cells}


def complaints() -> list[str]:
    """What of the page is not so any more."""
    told = rows()
    locked = {(normal(package.name), package.version): package for package in packages()}
    found = [f"{' '.join(name)} is not in the lock" for name in told.keys() - locked.keys()]
    found += [f"{' '.join(name)} is not on the page" for name in locked.keys() - told.keys()]
    for name in told.keys() & locked.keys():
        stated, _ = told[name]
        about = installed(locked[name])
        if about is not None and licence(about) != stated:
            found.append(f"{' '.join(name)} is {stated} on the page and says {licence(about)}")
    return sorted(found)


def main(arguments: list[str]) -> int:
    """Write the page, or say what is wrong with it."""
    if "--check" not in arguments:
        PAGE.write_text(page(lambda package: installed(package) or fetched(package)))
        return 0
    wrong = complaints()
    for line in wrong:
        print(f"docs/licences.md: {line}; run make licences", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
