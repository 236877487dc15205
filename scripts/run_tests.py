"""Run pytest, and what has failed once more, alone.

    python scripts/run_tests.py [--coverage] -- pytest's arguments

Tests that kill processes and wait for clusters run on machines that others use too. One that fails only now and then is
said to be unsteady, with its first failure above, and does not fail the run; one that fails twice does, and so do more
failures than such a thing explains. With `--coverage` the first run is measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["main"]

# More at once is not bad luck.
_MOST = 3
_FAILED = 1


def main(arguments: Sequence[str], run: Callable[[list[str]], int] = subprocess.call) -> int:
    """The exit code for whoever asked for the tests."""
    options, tests = list(arguments), []
    if "--" in options:
        place = options.index("--")
        options, tests = options[:place], options[place + 1 :]
    python = [sys.executable, "-m"]
    measured = [*python, "coverage", "run", "-m"] if "--coverage" in options else python
    with tempfile.TemporaryDirectory(prefix="millstream-tests-") as cache:
        remembering = ["pytest", "-o", f"cache_dir={cache}"]
        code = run([*measured, *remembering, *tests])
        failed = _failed(Path(cache))
        if code != _FAILED or not 0 < len(failed) <= _MOST:
            return code
        _say(f"{len(failed)} failed, and run once more", failed)
        again = run([*python, *remembering, "--last-failed", *_without_processes(tests)])
    _say("UNSTEADY, for they passed the second time" if again == 0 else "failed twice", failed)
    return again


def _failed(cache: Path) -> list[str]:
    try:
        return sorted(json.loads((cache / "v/cache/lastfailed").read_text()))
    except FileNotFoundError:
        return []


def _without_processes(tests: Sequence[str]) -> list[str]:
    """A few tests need no process for each core."""
    kept = list(tests)
    for option in ("-n", "--dist", "--max-worker-restart"):
        if option in kept:
            place = kept.index(option)
            del kept[place : place + 2]
    return kept


def _say(what: str, tests: Sequence[str]) -> None:
    print(f"\n=== {what}:", *tests, sep="\n    ", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
