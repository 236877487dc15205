"""What requirements.lock pins: packages, versions, and the hashes of their files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements.lock"


@dataclass(frozen=True)
class Package:
    """One line of the lock. `marker` says on which machines it is installed, empty for all."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]


def normal(name: str) -> str:
    """A package's name as all its spellings are compared.

    >>> normal("Jupyter_Core"), normal("ruamel.yaml")
    ('jupyter-core', 'ruamel-yaml')
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def packages(text: str | None = None) -> list[Package]:
    r"""All packages of the lock, or of a text of its form.

    >>> packages(
    ...     "six==1.17.0 ; python_version > '3' \\\n    --hash=sha256:ab \\\n    --hash=sha256:cd\n"
    ... )
    [Package(name='six', version='1.17.0', marker="python_version > '3'", hashes=('ab', 'cd'))]
    """
    lines = (LOCK.read_text() if text is None else text).replace("\\\n", "").splitlines()
    found = []
    for line in lines:
        pinned = re.match(
            r"([\w.-]+)(?:\[[^\]]*\])?==([^\s;]+)\s*(?:;\s*(.*?))?\s*(?=--hash|$)", line
        )
        if pinned is None:
            continue
        name, version, marker = pinned.groups()
        hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]+)", line))
        found.append(Package(name, version, marker or "", hashes))
    return found
