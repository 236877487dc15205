"""Runs the tests without Spark on every Python that pyproject.toml names and this machine has.

Each gets an environment of its own (`.venvs/3.12`), from requirements.lock, made again when the lock
changes. Pythons are looked for as `python3.12` on PATH and among pyenv's and uv's; the folder of
another is named by PYTHONS_PATH (folders with a `bin/python`, as in PATH). Those that are not found
are listed at the end, and are a failure only with --all.

Usage: python scripts/test_pythons.py [--all] [--only 3.12 ...] [-- arguments of pytest]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".venvs"
TESTS = ["millstream", "tests/unit", "tests/conformance", "tests/inprocess"]
# Docstrings too: what is recognized in bytecode is shown there, and bytecode is another in each Python.
DOCTESTS = ["--doctest-modules", "--ignore=millstream/spark"]
NEITHER = "not spark and not nightly"
_CLASSIFIER = re.compile(r"Programming Language :: Python :: (3\.\d+)")
_PROBE = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"


def named_versions(pyproject: str) -> list[str]:
    """The Pythons that the project says it runs on.

    >>> named_versions('[project]\\nclassifiers = ["Programming Language :: Python :: 3.11"]')
    ['3.11']
    """
    classifiers = tomllib.loads(pyproject)["project"]["classifiers"]
    return [found[1] for found in map(_CLASSIFIER.fullmatch, classifiers) if found]


def candidates(version: str) -> Iterator[Path]:
    """Where a Python of this version may be, the likeliest first."""
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield Path(on_path)
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        yield Path(sys.executable).resolve()
    homes = [Path(name) for name in os.environ.get("PYTHONS_PATH", "").split(os.pathsep) if name]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    homes += sorted(pyenv.glob(f"versions/{version}*"), reverse=True)
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local/share/uv/python")
    homes += sorted(uv.glob(f"cpython-{version}*"), reverse=True)
    for home in homes:
        yield home / "bin" / f"python{version}"
        yield home / "bin" / "python"


def find_python(version: str) -> Path | None:
    """A Python of this version that runs and can make environments; None if there is none.

    A name that is found need not run: version managers leave shims for versions that are switched off.
    """
    for candidate in candidates(version):
        try:
            answer = subprocess.run(
                [candidate, "-c", _PROBE], capture_output=True, text=True, check=False, timeout=30
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return candidate
    return None


def environment(version: str, base: Path) -> Path:
    """The Python of an environment with everything in the lock and the project; made if it is not there."""
    home = ENVIRONMENTS / version
    python = home / "bin" / "python"
    stamp = home / ".lock"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    inputs = (ROOT / "requirements.lock").read_text() + repr(project)
    wanted = hashlib.sha256(inputs.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    print(f"making {home.relative_to(ROOT)} with {base}", flush=True)
    subprocess.run([base, "-m", "venv", "--clear", home], check=True)
    install = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    lock = ["--require-hashes", "--requirement", "requirements.lock"]
    subprocess.run([*install, *lock], cwd=ROOT, check=True)
    itself = ["--no-deps", "--no-build-isolation", "--editable", "."]
    subprocess.run([*install, *itself], cwd=ROOT, check=True)
    stamp.write_text(wanted)
    return python


def main() -> int:
    """Run the tests on each; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="fail if a named Python is not found")
    parser.add_argument("--only", nargs="+", metavar="VERSION", help="these versions and no others")
    parser.add_argument("pytest", nargs="*", metavar="-- ARGUMENT", help="arguments of pytest")
    options = parser.parse_args()
    versions = options.only or named_versions((ROOT / "pyproject.toml").read_text())
    outcomes: dict[str, str] = {}
    for version in versions:
        base = find_python(version)
        if base is None:
            outcomes[version] = "not found on this machine"
            continue
        try:
            python = environment(version, base)
        except subprocess.CalledProcessError as error:
            print(error, file=sys.stderr)
            outcomes[version] = "FAILED: no environment could be made from requirements.lock"
            continue
        print(f"\n=== Python {version}", flush=True)
        command = [python, "-m", "pytest", "-q", "-m", NEITHER, *DOCTESTS, *TESTS, *options.pytest]
        path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"
        ran = subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": path}, check=False)
        outcomes[version] = "passed" if ran.returncode == 0 else f"FAILED ({ran.returncode})"
    print("\n=== tests without Spark")
    for version, outcome in outcomes.items():
        print(f"Python {version}: {outcome}")
    failed = [version for version, outcome in outcomes.items() if outcome.startswith("FAILED")]
    missing = [version for version, outcome in outcomes.items() if outcome.startswith("not")]
    if len(missing) == len(versions):
        print("test_pythons: none of these Pythons was found; see PYTHONS_PATH", file=sys.stderr)
        return 1
    return 1 if failed or (options.all and missing) else 0


if __name__ == "__main__":
    sys.exit(main())
