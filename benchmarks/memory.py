"""The memory of every Python worker while a Millstream keyed count passes 50 million records.

Usage: python benchmarks/memory.py [--records N] [--quick] [--markdown]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

import harness

sys.path.insert(0, str(harness.PEERS))
from workload import expected_digest

INTERVAL = 0.5


@dataclass
class Worker:
    """The samples of one process, in MiB."""

    pid: int
    role: str
    samples: list[tuple[float, float]] = field(default_factory=list)
    peak: float = 0

    def largest(self, start: float, end: float) -> float:
        return max((size for at, size in self.samples if start <= at <= end), default=0.0)


def sizes(pid: int) -> tuple[float, float]:
    """Resident memory now and at its highest, in MiB."""
    fields = dict(
        line.split(":", 1) for line in (harness.PROC / str(pid) / "status").read_text().splitlines()
    )
    now, peak = (int(fields.get(name, "0 kB").split()[0]) for name in ("VmRSS", "VmHWM"))
    return now / 1024, peak / 1024


def role(pid: int, root: int) -> str:
    command = (harness.PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    if pid == root:
        return "driver"
    if "python" not in command.split(" ", 1)[0]:
        return "other"
    return "worker"


def watch(process: subprocess.Popen[bytes]) -> list[Worker]:
    """Sample all processes of the job until it ends."""
    workers: dict[int, Worker] = {}
    while process.poll() is None:
        for pid in harness.descendants(process.pid):
            try:
                worker = workers.setdefault(pid, Worker(pid, role(pid, process.pid)))
                now, peak = sizes(pid)
            except OSError:
                continue
            worker.samples.append((time.monotonic(), now))
            worker.peak = max(worker.peak, peak)
        time.sleep(INTERVAL)
    return [worker for worker in workers.values() if worker.samples and worker.role != "other"]


def main() -> None:
    parser = harness.arguments(__doc__ or "")
    parser.add_argument("--records", type=int, default=50_000_000)
    opts = parser.parse_args()
    records = 200_000 if opts.quick else opts.records
    script = str(harness.PEERS / "millstream_keyed_count.py")
    facts = harness.facts()
    with tempfile.TemporaryFile() as output:
        started = time.monotonic()
        process = harness.start(
            [sys.executable, script, "--records", str(records)], output, subprocess.DEVNULL
        )
        try:
            workers = watch(process)
        finally:
            harness.end(process)
        ended = time.monotonic()
        output.seek(0)
        right = f'"hash": "{expected_digest(records)}"' in output.read().decode()
    if process.returncode or not right:
        sys.exit(f"the job failed: exit code {process.returncode}, output right: {right}")
    middle = (started + ended) / 2
    rows = [
        [
            f"{worker.role} {number}",
            f"{worker.peak:,.0f}",
            f"{worker.largest(started, middle):,.0f}",
            f"{worker.largest(middle, ended):,.0f}",
        ]
        for number, worker in enumerate(workers, 1)
    ]
    print(f"Memory of a keyed count of {records:,} records, {ended - started:.0f} s. {facts}\n")
    header = ["process", "peak MiB", "largest in first half", "largest in second half"]
    print(harness.table(header, rows, opts.markdown))
    largest = max((worker.peak for worker in workers if worker.role == "worker"), default=0.0)
    print(f"\nLargest Python worker: {largest:,.0f} MiB; output right.")


if __name__ == "__main__":
    main()
