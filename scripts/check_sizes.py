"""Keeps modules small enough to read: fails when one grows past the ceiling or the median does.

Counts physical lines of every module in the folders given (`millstream` when none), empty files
left out. Usage: python scripts/check_sizes.py [folder ...]
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

CEILING = 800
MEDIAN_LIMIT = 200
P90_BUDGET = 500


def measure(folders: list[Path]) -> dict[Path, int]:
    """Lines of each module that has any."""
    counts = {
        path: len(path.read_text(encoding="utf-8").splitlines())
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
    }
    return {path: lines for path, lines in counts.items() if lines}


def complaints(counts: dict[Path, int]) -> list[str]:
    """What is over its limit, in words; nothing when all is well."""
    found = [
        f"{path}: {lines} lines, the ceiling is {CEILING}; split it"
        for path, lines in counts.items()
        if lines > CEILING
    ]
    median = statistics.median(counts.values())
    if median > MEDIAN_LIMIT:
        found.append(f"the median module has {median:g} lines, the limit is {MEDIAN_LIMIT}")
    return found


def main(arguments: list[str]) -> int:
    """Print the sizes; return the exit code."""
    counts = measure([Path(name) for name in arguments or ["millstream"]])
    if not counts:
        print("check_sizes: no modules found", file=sys.stderr)
        return 1
    lines = sorted(counts.values())
    p90 = lines[min(len(lines) - 1, int(len(lines) * 0.9))]
    largest = max(counts, key=lambda path: counts[path])
    print(
        f"{len(lines)} modules, {sum(lines)} lines: median {statistics.median(lines):g}, "
        f"p90 {p90}{' (over the budget of 500)' if p90 > P90_BUDGET else ''}, "
        f"max {counts[largest]} ({largest})"
    )
    problems = complaints(counts)
    for problem in problems:
        print(f"check_sizes: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
