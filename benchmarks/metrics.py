"""What it costs to watch a job: everything on, against everything that can be turned off.

Usage: python benchmarks/metrics.py [--rounds 5] [--cases keyed,tumbling] [--quick]

On: REST and dashboard, latency markers each second, Prometheus' page read each second. Off: none of them. Rounds
alternate, and the ratio is taken within a round. What tasks count for every job is in both; `compare.py` holds it
against another tree.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import statistics
import threading
import urllib.request
from collections.abc import Iterator

import compare
import harness
from harness import BenchmarkError, Peer, say

OFF = ("millstream.rest.enabled=false", "metrics.latency.interval=0 ms")


def on(port: int) -> tuple[str, ...]:
    """Everything, with Prometheus' page at a port."""
    return (
        "millstream.rest.enabled=true",
        "metrics.latency.interval=1 s",
        "metrics.reporters=prom",
        f"metrics.reporter.prom.port={port}",
    )


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@contextlib.contextmanager
def scraped(port: int, pages: list[int]) -> Iterator[None]:
    """Read the page each second; `pages` gets the sizes of those that were there."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(1):
            with contextlib.suppress(OSError):
                address = f"http://127.0.0.1:{port}/metrics"
                with urllib.request.urlopen(address, timeout=1) as page:
                    pages.append(len(page.read()))

    thread = threading.Thread(target=scrape, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def rate(case: Peer, records: int, options: tuple[str, ...]) -> float:
    """Records a second of one run, whose result must be right."""
    result = harness.run_peer(case, records, *(f"-D{option}" for option in options))
    if result["hash"] != compare.expected(case.name, records):
        raise BenchmarkError(f"{case.label}: a wrong result")
    found: float = result["records"] / result["seconds"]
    return found


def main() -> None:
    """The command line."""
    args = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    args.add_argument("--rounds", type=int, default=5)
    args.add_argument("--cases", default="keyed,tumbling")
    args.add_argument("--quick", action="store_true")
    opts = args.parse_args()
    ratios: dict[str, list[float]] = {}
    for number in range(opts.rounds):
        for name in opts.cases.split(","):
            case = compare.CASES[name]
            records, port, pages = case.size(opts.quick), free_port(), list[int]()
            rates: dict[bool, float] = {}
            for watched in (False, True) if number % 2 else (True, False):
                with scraped(port, pages) if watched else contextlib.nullcontext():
                    rates[watched] = rate(case, records, on(port) if watched else OFF)
            if not pages:
                raise BenchmarkError(f"{case.label}: nobody has read Prometheus' page")
            ratios.setdefault(name, []).append(rates[True] / rates[False])
            say(
                f"round {number + 1}, {name}: {rates[True]:,.0f}/s watched, {rates[False]:,.0f}/s not, "
                f"{ratios[name][-1]:.3f}; {len(pages)} pages of {max(pages):,} bytes"
            )
    print("| case | watched / not (median) | min | max |\n|---|---|---|---|")
    for name, found in ratios.items():
        middle = statistics.median(found)
        print(
            f"| {compare.CASES[name].label} | {middle:.3f} | {min(found):.3f} | {max(found):.3f} |"
        )


if __name__ == "__main__":
    main()
