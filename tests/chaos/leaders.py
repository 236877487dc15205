"""Kills and pauses the leader of a job that other drivers stand by for, and restarts what elects them.

```
python -m tests.chaos --job ha --kills 50 --pauses 20 --broker-restarts 10 --election zookeeper --seed 1
```

A run is a fresh folder with three drivers of the checker job. Its leader is killed (SIGKILL), or paused (SIGSTOP, its
process alone or with its JVM and workers) for longer than its session lasts, or ZooKeeper is killed and started again;
each time it is measured how long it takes until a record is to be read that a new leader has written. A driver that was
killed is replaced, one that was paused goes on. At the end the input ends, all drivers must too, and the oracle judges.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from millstream.testing.zookeeper import ZooKeeperServer
from tests.chaos import checker, oracle
from tests.chaos.driver import Driver, archive_classes
from tests.chaos.oracle import Verdict
from tests.waiting import eventually

__all__ = ["Fault", "LeaderChaos"]

KILL = "killed"
PAUSE = "paused"
PAUSE_ALL = "paused with its JVM and workers"
RESTART = "ZooKeeper restarted"

_READY = 240.0
_RECOVERY = 120.0
_END = 180.0


@dataclass
class Fault:
    """What was done to a leader. Seconds from then until another's term, and until the first record of its own."""

    kind: str
    elected: float = 0.0
    first_record: float = 0.0


@dataclass
class LeaderChaos:
    kills: int
    pauses: int
    restarts: int
    seed: int
    folder: Path
    election: str = "zookeeper"
    timeout: float = 4.0
    watch_process: bool = False
    standbys: int = 2
    per_run: int = 16
    say: bool = True
    verdict: Verdict = field(default_factory=Verdict)
    done: list[Fault] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    runs: int = 0
    starts: int = 0
    java: str = ""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        if self.election == "file":
            self.restarts = 0

    def run(self) -> None:
        """All runs; ends early if anything is wrong."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.kills > 1:
            self.java = archive_classes(self.folder, "tests.chaos.checker")
        pauses = [PAUSE if number % 2 else PAUSE_ALL for number in range(self.pauses)]
        left = [KILL] * self.kills + pauses + [RESTART] * self.restarts
        self.rng.shuffle(left)
        while left and not self.failures:
            faults, left = left[: self.per_run], left[self.per_run :]
            _Run(self, self.folder / f"run-{self.runs}").run(faults)
            self.runs += 1

    def log(self, text: str) -> None:
        if self.say:
            print(text, file=sys.stderr, flush=True)

    @property
    def clean(self) -> bool:
        return self.verdict.clean and not self.failures

    def table(self) -> str:
        """The results, in Markdown."""
        lines = [
            "| leader | times | elected p50 | p99 | first new record p50 | p99 | max |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        kinds = [kind for kind in (KILL, PAUSE, PAUSE_ALL, RESTART) if self.of(kind)]
        lines += [_row(kind, self.of(kind)) for kind in kinds]
        lines.append(_row("killed or paused", self.of(KILL) + self.of(PAUSE) + self.of(PAUSE_ALL)))
        v = self.verdict
        return "\n".join(
            [
                *lines,
                "",
                f"election by {self.election}, {self.timeout:g} s, processes "
                f"{'watched' if self.watch_process else 'not watched'}, seed {self.seed}: {self.runs} runs, "
                f"{self.starts} drivers started; {v.records:,} ids: {v.lost} lost, {v.duplicated} duplicated, "
                f"{v.disordered} disordered, {v.wrong} wrong",
                *v.examples,
                *self.failures,
            ]
        )

    def of(self, kind: str) -> list[Fault]:
        return [fault for fault in self.done if fault.kind == kind]


def _row(kind: str, faults: list[Fault]) -> str:
    elected = sorted(fault.elected for fault in faults)
    first = sorted(fault.first_record for fault in faults)
    if not faults:
        return f"| {kind} | 0 | | | | | |"
    return (
        f"| {kind} | {len(faults)} | {statistics.median(elected):.1f} s | {_p99(elected):.1f} s | "
        f"{statistics.median(first):.1f} s | {_p99(first):.1f} s | {first[-1]:.1f} s |"
    )


def _p99(times: list[float]) -> float:
    return times[min(len(times) - 1, int(len(times) * 0.99))]


class _Run:
    """One folder, from nothing to the end of its input."""

    def __init__(self, chaos: LeaderChaos, folder: Path) -> None:
        self._chaos = chaos
        self._rng = chaos.rng
        self._folder = folder
        self._job = folder / "checkpoints" / checker.JOB
        self._drivers: list[Driver] = []
        self._alive: list[Driver] = []
        self._server: ZooKeeperServer | None = None

    def run(self, faults: list[str]) -> None:
        self._folder.mkdir(parents=True)
        chaos = self._chaos
        try:
            with self._election() as self._server:
                for _ in range(chaos.standbys + 1):
                    self._start()
                for kind in faults:
                    if not self._all_ready():
                        break
                    self._strike(kind)
                    if chaos.failures:
                        break
                if not chaos.failures:
                    self._end()
        finally:
            for driver in self._drivers:
                driver.remove()
        if chaos.clean:
            shutil.rmtree(self._folder, ignore_errors=True)

    @contextlib.contextmanager
    def _election(self) -> Iterator[ZooKeeperServer | None]:
        if self._chaos.election == "file":
            yield None
        else:
            with ZooKeeperServer() as server:
                yield server

    def _start(self) -> None:
        chaos = self._chaos
        options = {
            "high-availability.type": chaos.election,
            "high-availability.storageDir": str(self._folder / "ha"),
            "high-availability.zookeeper.client.session-timeout": f"{chaos.timeout} s",
            "millstream.high-availability.lease-timeout": f"{chaos.timeout} s",
            "millstream.high-availability.watch-process": str(chaos.watch_process).lower(),
            "millstream.rest.enabled": "false",
        }
        if self._server is not None:
            options["high-availability.zookeeper.quorum"] = self._server.quorum
        driver = Driver(
            self._folder,
            len(self._drivers),
            module="tests.chaos.checker",
            parallelism=2,
            java=chaos.java,
            options=options,
            interval=200,
        )
        self._drivers.append(driver)
        self._alive.append(driver)
        chaos.starts += 1

    # -- who leads ------------------------------------------------------------------------------------------

    def _leader(self) -> tuple[Driver, int] | None:
        """The driver whose term is the last, and the term."""
        try:
            record = json.loads((self._job / "lease.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        for driver in self._alive:
            if driver.process.pid == record["pid"]:
                return driver, record["term"]
        return None

    def _term(self) -> tuple[int, float]:
        """The number of the last term, and when it began."""
        terms = sorted((self._job / "terms").glob("[0-9]*"))
        with contextlib.suppress(FileNotFoundError, IndexError):
            return int(terms[-1].name), terms[-1].stat().st_mtime
        return 0, 0.0

    def _all_ready(self) -> bool:
        """Wait until one leads and has published something, and the others are warm."""

        def ready() -> bool:
            if any(not driver.running for driver in self._alive):
                return True
            leader = self._leader()
            if leader is None or leader[0].latest() < 0:
                return False
            rest = [driver for driver in self._alive if driver is not leader[0]]
            return all(_is_ready(driver) for driver in rest)

        if not eventually(ready, _READY):
            self._fail("not all drivers became ready", self._alive[-1])
        for driver in self._alive:
            if not driver.running:
                self._fail(f"a driver has ended with code {driver.process.returncode}", driver)
        return not self._chaos.failures

    # -- a fault --------------------------------------------------------------------------------------------

    def _strike(self, kind: str) -> None:
        chaos, rng = self._chaos, self._rng
        time.sleep(rng.uniform(0.5, 2.5))
        found = self._leader()
        if found is None:
            self._fail("nobody leads", self._alive[0])
            return
        driver, term = found
        fault = Fault(kind)
        began = time.time()
        if kind == KILL:
            driver.kill()
            self._alive.remove(driver)
        elif kind == RESTART:
            assert self._server is not None
            (self._server.kill if rng.random() < 0.7 else self._server.stop)()
            time.sleep(rng.uniform(0, 2 * chaos.timeout))
            self._server.start()
            began = time.time()
        else:
            _signal(driver, signal.SIGSTOP, alone=kind == PAUSE)
        if not eventually(lambda: self._term()[0] > term, _RECOVERY):
            self._fail(f"nobody was elected after the leader was {kind}", driver)
        elif not eventually(self._new_record, _RECOVERY):
            self._fail(f"no new record after the leader was {kind}", self._alive[0])
        else:
            fault.elected = max(0.0, self._term()[1] - began)
            fault.first_record = time.time() - began
            chaos.done.append(fault)
        if kind in (PAUSE, PAUSE_ALL):
            time.sleep(rng.uniform(0, 2))
            _signal(driver, signal.SIGCONT, alone=kind == PAUSE)
        elif kind == KILL:
            self._start()
        chaos.log(
            f"{self._folder.name}: {kind}, term {term} to {self._term()[0]}, elected after {fault.elected:.2f} s, "
            f"first record after {fault.first_record:.2f} s"
        )

    def _new_record(self) -> bool:
        """True once a record is to be read that was written in the last term."""
        _, since = self._term()
        if not since:
            return False
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._folder / "out"):
                if not entry.name.startswith(".") and entry.stat().st_mtime > since:
                    return True
        return False

    # -- the end --------------------------------------------------------------------------------------------

    def _end(self) -> None:
        if not self._all_ready():
            return
        (self._folder / "stop").touch()
        waiting = [threading.Thread(target=driver.end, args=(_END,)) for driver in self._alive]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()
        for driver in self._alive:
            if driver.process.returncode != 0:
                self._fail(
                    f"the job has ended, and a driver with code {driver.process.returncode}", driver
                )
        if not self._chaos.failures:
            verdict = oracle.judge(self._folder)
            self._chaos.verdict += verdict
            self._chaos.log(f"{self._folder.name}: {verdict}")

    def _fail(self, text: str, driver: Driver) -> None:
        where = f"{self._folder.name} driver {self._drivers.index(driver)}"
        self._chaos.failures.append(f"{where}: {text}\n{driver.errors}")


def _is_ready(driver: Driver) -> bool:
    """True if the driver has warmed up since it last began to stand by."""
    text = driver.said
    return text.rfind("ready to take over") > text.rfind("leading, term")


def _signal(driver: Driver, number: signal.Signals, *, alone: bool) -> None:
    pids = [driver.process.pid] if alone else list(driver.family())
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
