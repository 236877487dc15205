"""Runs every program of examples/pyflink under PyFlink and under Millstream and compares what they print.

PyFlink 2.3 is installed into an environment of its own (as for the benchmarks) and runs the programs on its
embedded cluster; Millstream runs the same files by `python -m millstream.pyflink`. Lines are compared as a
multiset, without the numbers of subtasks in front of them. Exit code 0 if there are no differences but those in
DIFFERENCES. `make parity`, or: python scripts/parity.py [--write] [--in-process] [name ...]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "examples" / "pyflink"
EXPECTED = PROGRAMS / "expected"

sys.path.insert(0, str(ROOT / "benchmarks"))

from harness import environment, table  # noqa: E402

# Lines that only one of the two prints, and the rule of tests/conformance that says why.
DIFFERENCES: dict[str, dict[str, tuple[list[str], list[str]]]] = {
    "differences": {
        "22: a window's result has the window's last moment": (
            ["window> a holds 2 at 2000"],
            ["window> a holds 2 at 9999"],
        ),
        "53: a side output that nobody reads does not stay in the stream": (
            [
                f"numbers> (<pyflink.datastream.output_tag.OutputTag object at 0x>, 'odd {n}')"
                for n in (1, 3)
            ],
            [],
        ),
    }
}


@dataclass
class Outcome:
    """What one run printed, and how long it took."""

    lines: list[str]
    seconds: float
    error: str = ""


def normal(text: str) -> list[str]:
    """The lines, sorted, without what differs from run to run.

    >>> normal("2> b\\nid:1> a\\n\\n")
    ['b', 'id> a']
    """
    lines = (re.sub(r"^(?:([^:>]+):)?\d+> ", _identifier, line) for line in text.splitlines())
    return sorted(re.sub(r"0x[0-9a-f]+", "0x", line) for line in lines if line.strip())


def _identifier(found: re.Match[str]) -> str:
    return f"{found[1]}> " if found[1] else ""


def run(command: list[str], path: str, timeout: float = 300) -> Outcome:
    """Run a program; what it prints to stdout counts."""
    started = time.monotonic()
    variables = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=variables, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome([], time.monotonic() - started, f"not done after {timeout:.0f} s")
    error = f"exit code {done.returncode}: {done.stderr[-2000:]}" if done.returncode else ""
    return Outcome(normal(done.stdout), time.monotonic() - started, error)


def compare(name: str, theirs: list[str], ours: list[str]) -> tuple[str, str]:
    """A verdict, and the lines that only one side has."""
    left, right = Counter(theirs), Counter(ours)
    known = []
    for rule, (only_theirs, only_ours) in DIFFERENCES.get(name, {}).items():
        expected = Counter(only_theirs), Counter(only_ours)
        if expected[0] <= left and expected[1] <= right:
            left, right = left - expected[0], right - expected[1]
            known.append(f"rule {rule}")
    if left != right:
        missing = "".join(f"\n  PyFlink only:    {line}" for line in (left - right).elements())
        extra = "".join(f"\n  Millstream only: {line}" for line in (right - left).elements())
        return "DIFFERENT", missing + extra
    return "; ".join(known) or "equal", ""


def main() -> int:
    """Run, compare, print a table."""
    parser = argparse.ArgumentParser(description="compare PyFlink and Millstream")
    parser.add_argument("names", nargs="*", help="programs, without .py; all if none")
    parser.add_argument("--write", action="store_true", help="write examples/pyflink/expected")
    parser.add_argument("--in-process", action="store_true", help="Millstream without Spark")
    options = parser.parse_args()
    python = environment("pyflink")
    rows = []
    failed = False
    for name in options.names or sorted(path.stem for path in PROGRAMS.glob("*.py")):
        script = str(PROGRAMS / f"{name}.py")
        theirs = run([str(python), script], str(python.parent))
        target = ["-Dexecution.target=in-process"] if options.in_process else []
        command = [sys.executable, "-m", "millstream.pyflink", *target, script]
        ours = run(command, str(Path(sys.executable).parent))
        for system, outcome in (("PyFlink", theirs), ("Millstream", ours)):
            if outcome.error:
                print(f"{name} under {system}: {outcome.error}", file=sys.stderr)
        verdict, details = compare(name, theirs.lines, ours.lines)
        if theirs.error or ours.error:
            verdict = "FAILED"
        failed = failed or verdict in ("FAILED", "DIFFERENT")
        print(f"{name}: {verdict}{details}", file=sys.stderr, flush=True)
        times = [f"{outcome.seconds:.1f} s" for outcome in (theirs, ours)]
        rows.append([name, str(len(theirs.lines)), *times, verdict])
        if options.write and not theirs.error:
            EXPECTED.mkdir(exist_ok=True)
            text = "".join(f"{line}\n" for line in theirs.lines)
            (EXPECTED / f"{name}.txt").write_text(text, encoding="utf-8")
    print(table(["program", "lines", "PyFlink", "Millstream", "output"], rows, markdown=False))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
