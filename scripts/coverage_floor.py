"""Holds what the tests run against a floor that only rises: the one number in `.coverage-floor`.

Reads the data of `coverage run` (lines and branches together, in percent). Half a point or more below the
floor it fails, and if the floor is lower than it was in any commit; half a point or more above, it says how
to raise it, and with --raise it does.

Usage: python scripts/coverage_floor.py [--raise] [--data-file FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

FLOOR = Path(__file__).parents[1] / ".coverage-floor"
CLEARLY_ABOVE = 0.5
# What tests of random programs run is not the same each time.
CLEARLY_BELOW = 0.5


def measured(data_file: str) -> float:
    """The percentage that the data says, as `coverage report` counts it."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        command = ["coverage", "json", "--quiet", "--data-file", data_file, "-o", str(report)]
        subprocess.run([sys.executable, "-m", *command], check=True)
        return float(json.loads(report.read_text())["totals"]["percent_covered"])


def highest(history: str) -> float:
    """The highest floor that a file's history (`git log -p`) shows.

    >>> highest("+++ b/.coverage-floor\\n-94.7\\n+95.1\\n+94.7\\n")
    95.1
    """
    return max(
        (float(found) for found in re.findall(r"^\+([\d.]+)$", history, re.MULTILINE)), default=0.0
    )


def past() -> float:
    """The highest floor of all commits; 0 where there is no history, as in a source archive."""
    command = ["git", "log", "--format=", "--patch", "--", FLOOR.name]
    try:
        log = subprocess.run(command, cwd=FLOOR.parent, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return 0.0
    return highest(log.stdout)


def verdict(percent: float, floor: float) -> tuple[bool, str]:
    """Whether it passes, and what to say.

    >>> verdict(91.239, 92.0)
    (False, 'coverage is 91.23%, below the floor of 92.0%: test what the change added (make coverage lists the lines)')
    >>> verdict(92.3, 92.0)
    (True, 'coverage is 92.30%, the floor 92.0%')
    >>> verdict(93.26, 92.0)
    (True, 'coverage is 93.26%, the floor 92.0%: raise it to 93.2 with make coverage-raise')
    """
    shown = math.floor(percent * 100) / 100
    if percent <= floor - CLEARLY_BELOW:
        todo = "test what the change added (make coverage lists the lines)"
        return False, f"coverage is {shown:.2f}%, below the floor of {floor}%: {todo}"
    if percent >= floor + CLEARLY_ABOVE:
        new = raised(percent)
        return True, (
            f"coverage is {shown:.2f}%, the floor {floor}%: raise it to {new} with make coverage-raise"
        )
    return True, f"coverage is {shown:.2f}%, the floor {floor}%"


def raised(percent: float) -> float:
    """The floor under a percentage: a tenth of a point, rounded down."""
    return math.floor(percent * 10) / 10


def main() -> int:
    """Compare, and raise the floor if told to; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data-file", default=".coverage")
    parser.add_argument("--raise", action="store_true", dest="raise_it")
    options = parser.parse_args()
    floor = float(FLOOR.read_text())
    if floor < past():
        print(f"the floor was {past()}% before, and only rises: put it back", file=sys.stderr)
        return 1
    percent = measured(options.data_file)
    passes, said = verdict(percent, floor)
    print(said, file=sys.stdout if passes else sys.stderr)
    if passes and options.raise_it and raised(percent) > floor:
        FLOOR.write_text(f"{raised(percent)}\n")
        print(f"the floor is now {raised(percent)}%: commit {FLOOR.name}")
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main())
