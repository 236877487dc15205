"""A job's rate while its REST server is asked by many clients at once, and while nobody asks.

A keyed count runs without a limit; a second process opens the connections, and a part of its requests is hostile: paths
that lead out, changes without a header, another server's name. None may fail inside (500) or change the job.

The clients ask as fast as they are answered, with the lowest priority: elsewhere they would cost this machine nothing,
and what is asked for here is what the server takes from the job. The rate of the job alone is taken before and after,
and held against its rate beside them, in alternating rounds.

Usage: python benchmarks/rest_load.py [--clients 1000] [--rounds 5] [--target spark] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from millstream.common import Configuration
from millstream.connectors.datagen import DataGeneratorSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.runtime.driver.run import JobRun

PATHS = (
    "/jobs/overview",
    "/jobs/{job}",
    "/jobs/{job}/checkpoints",
    "/jobs/{job}/exceptions",
    "/jobs/{job}/metrics?get=numRestarts,uptime",
    "/millstream/jobs/{job}",
    "/taskmanagers",
    "/overview",
)
HOSTILE: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("GET", "/jobmanager/logs/..%252f..%252f..%252fetc%252fpasswd", {}),
    ("GET", "/assets/%2e%2e/%2e%2e/etc/passwd", {}),
    ("GET", "/jobs/{job}/yarn-cancel", {}),
    ("PATCH", "/jobs/{job}", {}),
    ("PATCH", "/jobs/{job}", {"X-Millstream": "1", "Origin": "http://evil.example"}),
    ("POST", "/jobs/{job}/stop", {"Content-Type": "text/plain"}),
    ("GET", "/jobs", {"Host": "evil.example"}),
)


def start(target: str) -> JobRun:
    """A keyed count that reads as fast as it can."""
    options = {
        "execution.target": target,
        "parallelism.default": "2",
        "millstream.rest.enabled": "true",
        "rest.port": "0",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
    source = DataGeneratorSource(lambda n: (n % 1000, 1), splits=2)
    counted = env.from_source(source, None, "numbers").key_by(lambda pair: pair[0])  # type: ignore[arg-type]
    counted.reduce(lambda a, b: (a[0], a[1] + b[1])).filter(lambda pair: pair[1] < 0).print()
    run = env.execute_async("beside the load")._run
    assert isinstance(run, JobRun)
    return run


def rate(run: JobRun, seconds: float, until: subprocess.Popen[str] | None = None) -> float:
    """Records a second over a time, or for as long as the clients run."""
    assert run.metrics is not None
    began, before = time.monotonic(), run.metrics.records
    while (
        until.poll() is None if until is not None else time.monotonic() - began < seconds
    ) and not run.done:
        time.sleep(0.05)
    return (run.metrics.records - before) / (time.monotonic() - began)


class Clients:
    """Many connections that ask one thing after the other."""

    def __init__(self, port: int, job: str, seconds: float) -> None:
        self.port, self.job, self.until = port, job, time.monotonic() + seconds
        self.statuses: Counter[str] = Counter()
        self.took: list[float] = []

    async def run(self, clients: int) -> None:
        """All of them at once, until the time is over."""
        everybody = [asyncio.create_task(self._client(random.Random(n))) for n in range(clients)]
        await asyncio.wait(everybody, timeout=self.until - time.monotonic())
        for client in everybody:
            client.cancel()
        await asyncio.gather(*everybody, return_exceptions=True)

    async def _client(self, draw: random.Random) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                self.statuses["no connection"] += 1
                await asyncio.sleep(0.05)
                continue
            try:
                while await self._ask(draw, reader, writer):
                    pass
                # Who finds no room comes again a little later.
                await asyncio.sleep(draw.random())
            except (OSError, asyncio.IncompleteReadError, ValueError, IndexError):
                self.statuses["connection lost"] += 1
            finally:
                writer.close()

    async def _ask(
        self, draw: random.Random, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        method, path, more = (
            draw.choice(HOSTILE) if draw.random() < 0.2 else ("GET", draw.choice(PATHS), {})
        )
        headers = {"Host": f"127.0.0.1:{self.port}", **more}
        lines = [f"{method} {path.format(job=self.job)} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        began = time.monotonic()
        writer.write("\r\n".join([*lines, "Content-Length: 0", "", ""]).encode())
        status = (await reader.readline()).split()[1].decode()
        length, stays = 0, True
        while (line := (await reader.readline()).lower()) not in (b"\r\n", b""):
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
            stays = stays and line.strip() != b"connection: close"
        body = await reader.readexactly(length)
        self.took.append(time.monotonic() - began)
        self.statuses[status] += 1
        if b"root:" in body or status == "202":
            self.statuses["BREACH"] += 1
        return stays


def ask_all(arguments: argparse.Namespace) -> None:
    """The second process: print what came back."""
    clients = Clients(arguments.port, arguments.job, arguments.seconds)
    began = time.monotonic()
    asyncio.run(clients.run(arguments.clients))
    took = sorted(clients.took)
    print(
        json.dumps(
            {
                "answered": len(took),
                "seconds": round(time.monotonic() - began, 1),
                "p50_ms": round(1000 * took[len(took) // 2], 1),
                "p99_ms": round(1000 * took[int(len(took) * 0.99)], 1),
                "statuses": dict(sorted(clients.statuses.items())),
            }
        )
    )


def beside(run: JobRun, clients: int, seconds: float) -> tuple[float, dict[str, Any]]:
    """The job's rate while clients ask, and what they were answered."""
    command = ["nice", "-n", "19", sys.executable, __file__]
    command += ["--port", str(run.web_address).rpartition(":")[2]]
    command += ["--job", run.job.id, "--clients", str(clients), "--seconds", str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asking:
        asked = rate(run, 0, asking)
        said, _ = asking.communicate()
    found: dict[str, Any] = json.loads(said)
    return asked, found


def main() -> int:
    """The job, the clients, the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--target", choices=["spark", "in-process"], default="spark")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--port", type=int)
    parser.add_argument("--job")
    arguments = parser.parse_args()
    if arguments.port:
        ask_all(arguments)
        return 0
    if arguments.quick:
        arguments.clients, arguments.rounds, arguments.seconds = 50, 1, 2.0
    run = start(arguments.target)
    while (run.metrics is None or run.metrics.epoch < 20) and not run.done:
        time.sleep(0.05)
    statuses: Counter[str] = Counter()
    ratios, alone = [], rate(run, arguments.seconds)
    for number in range(arguments.rounds):
        asked, found = beside(run, arguments.clients, arguments.seconds)
        after = rate(run, arguments.seconds)
        statuses.update(found.pop("statuses"))
        ratios.append(2 * asked / (alone + after))
        print(
            f"round {number + 1}: alone {alone:,.0f}, asked {asked:,.0f}, after {after:,.0f}; {found}"
        )
        alone = after
    running = run.status.name
    run.cancel()
    print(f"answers to {arguments.clients} clients at once: {dict(sorted(statuses.items()))}")
    print(
        f"the job's rate beside them: {statistics.median(ratios):.3f} of that alone"
        f" ({min(ratios):.3f} to {max(ratios):.3f})"
    )
    failed = [name for name in statuses if name == "BREACH" or name == "500"]
    return 1 if failed or running != "RUNNING" else 0


if __name__ == "__main__":
    sys.exit(main())
