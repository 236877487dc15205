"""Makes a release in a folder: wheel, source archive, bill of materials, checksums. Uploads nothing.

Refused is what a release must not be: a tree with changes, a version that CHANGELOG.md has no notes and no date of or
tests/compat no savepoint of, a page of licences that is out of date. The archives are built twice and must be the same,
byte by byte. A rehearsal may have changes and no date. Usage: python scripts/release.py [--rehearsal] FOLDER
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from base64 import urlsafe_b64encode
from email.parser import Parser
from pathlib import Path

import licences
import sbom

ROOT = Path(__file__).parents[1]
# What people look for in a source archive; hatchling adds the rest of pyproject.toml's list.
IN_SOURCE = ["pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md"]


def notes(changelog: str, version: str) -> str | None:
    """The notes of a version, None if there are none.

    >>> notes("## [0.2.0] - 2026-11-18\\n\\nGood.\\n\\n## [0.1.0]\\n\\nOld.", "0.2.0")
    'Good.'
    >>> notes("## [Unreleased]\\n", "0.2.0") is None
    True
    """
    parts = re.split(r"^## \[(.+?)\].*$", changelog, flags=re.MULTILINE)[1:]
    found = dict(zip(parts[::2], parts[1::2], strict=True)).get(version, "").strip()
    return found or None


def refusals(version: str) -> list[str]:
    """Why this tree cannot be released."""
    found = []
    told = notes((ROOT / "CHANGELOG.md").read_text(), version)
    if told is None:
        found.append(f"CHANGELOG.md has no notes of {version}")
    always = ("**Breaking:**", "**State compatibility:**")
    found += [
        f"the notes of {version} do not say {line}" for line in always if line not in (told or line)
    ]
    if not (ROOT / "tests/compat/savepoints" / version).is_dir():
        command = f"python -m tests.compat.programs {version}"
        found.append(f"there is no savepoint of {version} for later ones to restore: {command}")
    return found + [f"docs/licences.md: {line}" for line in licences.complaints()]


def not_final(version: str) -> list[str]:
    """What a rehearsal may still lack."""
    found = []
    dated = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$"
    if not re.search(dated, (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE):
        found.append(f"CHANGELOG.md has no date for {version}")
    command = ["git", "status", "--porcelain"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    if done.stdout.strip():
        found.append("the tree has changes that are not committed")
    return found


def build(folder: Path) -> list[Path]:
    """Source archive and wheel, with the time of the last commit in them."""
    command = ["git", "log", "-1", "--format=%ct"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": done.stdout.strip()}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    built = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if built.returncode:
        sys.exit(f"release: the archives do not build\n{built.stdout}{built.stderr}")
    return sorted(folder.glob("millstream-*"))


def check_wheel(path: Path, version: str) -> list[str]:
    """What is wrong with a wheel: its files against its own record, its name, its metadata."""
    found = []
    if path.name != f"millstream-{version}-py3-none-any.whl":
        found.append(f"the wheel is called {path.name}")
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
        info = record.removesuffix("RECORD")
        lines = list(csv.reader(io.StringIO(wheel.read(record).decode())))
        listed = {name: digest for name, digest, _ in lines}
        for name in sorted(names - {record}):
            digest = urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest()).rstrip(b"=")
            if listed.get(name) != f"sha256={digest.decode()}":
                found.append(f"{name} is not what the wheel's record says")
        found += [f"{name} is missing from the wheel" for name in listed.keys() - names]
        about = Parser().parsestr(wheel.read(f"{info}METADATA").decode())
        wanted = {"Name": "millstream", "Version": version, "License-Expression": "Apache-2.0"}
        for field, value in wanted.items():
            if about[field] != value:
                found.append(f"the wheel's {field} is {about[field]}")
        if about["Description-Content-Type"] != "text/markdown" or not about.get_payload():
            found.append("the wheel has no description in Markdown")
        if not {f"{info}entry_points.txt", f"{info}licenses/LICENSE"} <= names:
            found.append("the wheel has no licence or no command")
    return found


def check_source(path: Path, version: str) -> list[str]:
    """What is wrong with a source archive."""
    with tarfile.open(path) as archive:
        names = set(archive.getnames())
    top = f"millstream-{version}/"
    outside = sorted(name for name in names if not f"{name}/".startswith(top))
    missing = [name for name in IN_SOURCE if top + name not in names]
    return [f"{name} is outside of {top}" for name in outside] + [
        f"{name} is missing from the source archive" for name in missing
    ]


def checksums(folder: Path) -> str:
    """The lines of SHA256SUMS, as `sha256sum --check` reads them."""
    files = sorted(path for path in folder.iterdir() if path.name != "SHA256SUMS")
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    return "".join(lines)


def main(arguments: list[str]) -> int:
    """Make the release, or say why not."""
    *options, target = arguments
    folder = Path(target)
    version = sbom.version()
    wrong = refusals(version)
    if "--rehearsal" not in options:
        wrong += not_final(version)
    if folder.exists() and any(folder.iterdir()):
        wrong.append(f"{target} is not empty")
    if not wrong:
        folder.mkdir(parents=True, exist_ok=True)
        built = build(folder)
        with tempfile.TemporaryDirectory() as other:
            again = build(Path(other))
            wrong += [
                f"{one.name} is another file when it is built again"
                for one, two in zip(built, again, strict=True)
                if one.read_bytes() != two.read_bytes()
            ]
        wheel, source = folder / built[0].name, folder / built[1].name
        wrong += check_wheel(wheel, version) + check_source(source, version)
    for line in wrong:
        print(f"release: {line}", file=sys.stderr)
    if wrong:
        return 1
    sbom.main([str(folder / f"millstream-{version}.cdx.json")])
    (folder / "SHA256SUMS").write_text(checksums(folder))
    print((folder / "SHA256SUMS").read_text(), end="")
    print(f"release: {version} is in {target}; nothing was uploaded")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
