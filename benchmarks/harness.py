"""What the benchmarks share: environments, running a peer, alternation, statistics, tables."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
ENVS = HERE / ".envs"
PROC = Path("/proc")


class BenchmarkError(Exception):
    """A peer failed, took too long, or gave a wrong result."""


@dataclass(frozen=True)
class Peer:
    """One system in one configuration. Without ``env`` it runs in the harness's environment."""

    name: str
    label: str
    script: str
    records: int
    quick_records: int
    env: str | None = None
    args: tuple[str, ...] = ()
    timeout: float = 600

    def size(self, quick: bool) -> int:
        return self.quick_records if quick else self.records


@dataclass
class Runs:
    """The timed runs of one peer, in records a second."""

    peer: Peer
    rates: list[float] = field(default_factory=list)
    whole_rates: list[float] = field(default_factory=list)
    clocks: set[str] = field(default_factory=set)

    @property
    def median(self) -> float:
        return statistics.median(self.rates)


# ---------------------------------------------------------------- environments


def environment(name: str) -> Path:
    """The Python of ``.envs/<name>``, made from ``requirements-<name>.txt`` when that changed."""
    requirements = PEERS / f"requirements-{name}.txt"
    folder = ENVS / name
    python = folder / "bin" / "python"
    stamp = folder / ".requirements-hash"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    say(f"making the environment of {name} ...")
    started = time.monotonic()
    quiet: dict[str, Any] = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], **quiet)
    install = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*install, "--requirement", str(requirements)], **quiet)
    stamp.write_text(wanted)
    say(f"made the environment of {name} in {time.monotonic() - started:.0f} s")
    return python


def jars(name: str) -> Path:
    """The folder of the jars that ``pom-<name>.xml`` names, fetched by Maven when that changed."""
    pom = PEERS / f"pom-{name}.xml"
    folder = ENVS / f"{name}-jars-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        say(f"fetching the jars of {name} ...")
        with tempfile.TemporaryDirectory() as made:
            copy = ["dependency:copy-dependencies", f"-DoutputDirectory={made}/libs"]
            command = ["mvn", "-q", "-B", "-f", str(pom), *copy]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            shutil.copytree(f"{made}/libs", folder)
    return folder


# ---------------------------------------------------------------- running


def child_environment() -> dict[str, str]:
    """Peers, and the Python workers they start, find the workload and Millstream by PYTHONPATH."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(PEERS), str(HERE.parent)]),
        "PYTHONWARNINGS": "ignore",
    }


def start(command: Sequence[str], output: Any, errors: Any) -> subprocess.Popen[bytes]:
    """A child in its own session, so that it can be ended with everything it started."""
    return subprocess.Popen(
        command, stdout=output, stderr=errors, env=child_environment(), start_new_session=True
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a child's session (a JVM may outlive its Python)."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def peer_command(peer: Peer, records: int, *extra: str) -> list[str]:
    python = str(environment(peer.env)) if peer.env else sys.executable
    return [python, str(PEERS / peer.script), "--records", str(records), *peer.args, *extra]


def run_peer(peer: Peer, records: int, *extra: str) -> dict[str, Any]:
    """Run a peer once and return the JSON line it printed last."""
    command = peer_command(peer, records, *extra)
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = start(command, output, errors)
        try:
            code: int | str = process.wait(peer.timeout)
        except subprocess.TimeoutExpired:
            code = f"none after {peer.timeout:.0f} s"
        finally:
            end(process)
        output.seek(0)
        errors.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
        found = [line for line in lines if line.startswith('{"system"')]
        if code != 0 or not found:
            tail = "\n".join(errors.read().decode(errors="replace").splitlines()[-30:])
            raise BenchmarkError(f"{peer.name}: exit code {code}, no result; it wrote:\n{tail}")
    result: dict[str, Any] = json.loads(found[-1])
    return result


def alternate(
    peers: Sequence[Peer],
    repetitions: int,
    quick: bool,
    expected: Callable[[Any], str],
    run: Callable[[Peer, int], dict[str, Any]] = run_peer,
) -> list[Runs]:
    """Run all peers in turn, ``repetitions`` times; ``expected`` gives a result's right hash."""
    runs = [Runs(peer) for peer in peers]
    for repetition in range(1, repetitions + 1):
        # Every other round goes backwards, so that nobody always follows the same neighbour.
        for item in runs if repetition % 2 else reversed(runs):
            result = run(item.peer, item.peer.size(quick))
            if result["hash"] != expected(result):
                raise BenchmarkError(f"{item.peer.name}: wrong output: {result}")
            item.rates.append(result["records"] / max(result["seconds"], 1e-9))
            whole = result.get("whole_seconds", result["seconds"])
            item.whole_rates.append(result.get("total_records", 0) / max(whole, 1e-9))
            item.clocks.add(result.get("clock", "steady"))
            done = f", {result['checkpoints']} checkpoints" if "checkpoints" in result else ""
            rate = f"{item.rates[-1]:,.0f}/s"
            say(f"round {repetition}: {item.peer.name} {rate}, output right{done}")
    return runs


def descendants(root: int) -> list[int]:
    """Every living process below (and with) ``root``."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                # The name in parentheses may hold spaces; the parent is the second field after it.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


# ---------------------------------------------------------------- printing


def say(text: str) -> None:
    """Progress goes to stderr; stdout carries results only."""
    print(text, file=sys.stderr, flush=True)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool) -> str:
    if markdown:
        lines = [header, ["---"] * len(header), *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def rates_table(runs: Sequence[Runs], base: Runs | None, markdown: bool) -> str:
    """Median, spread and the ratio of ``base`` to each system; (*) marks rates of whole runs."""
    header = ["system", "records/s (median)", "min", "max", "with warm-up", "runs"]
    if base:
        header.append(f"{base.peer.name} / system")
    rows = []
    for item in runs:
        numbers = [item.median, min(item.rates), max(item.rates)]
        mark = " (*)" if "whole" in item.clocks else ""
        row = [item.peer.label + mark, *(f"{number:,.0f}" for number in numbers)]
        row += [f"{statistics.median(item.whole_rates):,.0f}", str(len(item.rates))]
        if base:
            row.append("-" if item is base else f"{base.median / item.median:.2f}x")
        rows.append(row)
    return table(header, rows, markdown)


def facts() -> str:
    """The machine and the versions, without names of hosts or folders."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    parts = [
        f"{os.cpu_count()} cores ({cpu_model()}), {memory:.0f} GiB",
        f"load before the run {os.getloadavg()[0]:.1f}",
        f"{platform.system()} {platform.release().split('-')[0]}",
        f"Python {platform.python_version()}",
        java.stderr.splitlines()[0] if java.stderr else "no Java",
        *(f"{name} {installed(name)}" for name in ("millstream", "pyspark", "pyarrow")),
        time.strftime("%Y-%m-%d"),
    ]
    return "; ".join(parts)


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "from source"


# ---------------------------------------------------------------- arguments


def arguments(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repetitions", type=int, default=5, help="timed runs of each system")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one run: a smoke test")
    parser.add_argument("--markdown", action="store_true", help="print tables for RESULTS.md")
    return parser
