"""Kills the checker job again and again, and lets the oracle judge what it has written.

```
python -m tests.chaos --kills 200 --worker-kills 200 --seed 1 --job time
python -m tests.chaos --kills 60 --worker-kills 60 --broker-restarts 10 --job kafka
python -m tests.chaos --kills 50 --pauses 20 --broker-restarts 10 --job ha
```

A run is a fresh folder: a few drivers that are killed, at named points or at random times, each followed by another
that goes on from the last checkpoint, now and then with another parallelism or from a savepoint; then a driver that
stays while its workers are killed; then the end of the input, and the verdict.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.driver import Driver, archive_classes
from tests.chaos.jobs import JOBS
from tests.chaos.leaders import LeaderChaos
from tests.chaos.oracle import MOST_SUBTASKS, Verdict
from tests.waiting import eventually

__all__ = ["DRIVER_POINTS", "WORKER_POINTS", "Chaos", "Kill"]

RANDOM_TIME = "random time"
WHILE_ENDING = "while ending"
ONE_WORKER = "a worker"
DAEMON = "the workers' daemon"
BROKER = "the broker"

# Named points, and how often a driver may pass one before it dies there.
DRIVER_POINTS = {
    "restore": 1,
    "source read": 6,
    "before manifest": 6,
    "after manifest": 6,
    "between commits": 6,
    "after commit": 6,
    "cleaning up": 6,
    "savepoint": 1,
    RANDOM_TIME: 0,
    WHILE_ENDING: 0,
}
WORKER_POINTS = {
    "mid batch": 3,
    "before state flush": 3,
    "after state flush": 3,
    "snapshot half written": 3,
    "before pre-commit": 3,
    "after pre-commit": 3,
    "state open": 3,
    ONE_WORKER: 0,
    DAEMON: 0,
}

_ROUNDS = {"millstream.epoch.interval": "50 ms"}
_START = 180.0  # a driver that has not published anything by then never will
_END = 180.0
_GONE = 60.0


@dataclass
class Kill:
    point: str
    role: str
    struck: bool
    # A driver's: from the start of the next one to its first checkpoint. A worker's: from its death to that.
    recovery: float | None = None


@dataclass
class Chaos:
    """A series of runs. `kills` and `worker_kills` are how many must strike."""

    kills: int
    worker_kills: int
    seed: int
    folder: Path
    job: str = "state"
    per_run: int = 5
    say: bool = True
    broker_restarts: int = 0
    rounds: bool = False
    """Epochs have rounds, some ten of them."""
    planted: str = ""
    """A bug that the job has (`planted.py`)."""
    until_unclean: bool = False
    """End with the first run that is not clean."""
    verdict: Verdict = field(default_factory=Verdict)
    done: list[Kill] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    runs: int = 0
    starts: int = 0
    rescales: int = 0
    savepoints: int = 0
    java: str = ""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.program = JOBS[self.job]
        self.worker_points = {**WORKER_POINTS, **self.program.worker_points}
        self._points = self._forever([*DRIVER_POINTS])
        # A job's own points three times as often.
        own = [*self.program.worker_points] * 2
        self._next_worker_points = self._forever([*self.worker_points, *own])

    def _forever(self, points: list[str]) -> Iterator[str]:
        while True:
            self.rng.shuffle(points)
            yield from points

    def next_worker_point(self) -> str:
        """The points in turn; towards the end those at which none has died, unless nobody seems to come there."""
        missing = [
            point
            for point in self.missing("worker")
            if sum(kill.point == point for kill in self.done) < 4
        ]
        if missing and self.left("worker") <= len(missing):
            return missing[0]
        return next(self._next_worker_points)

    def spare_worker(self) -> bool:
        """True if a worker more can be killed while it opens state, and enough are left for the other points."""
        return self.left("worker") > len({*self.missing("worker")} - {"state open"})

    def left(self, role: str) -> int:
        """How many kills of a kind are still to come."""
        wanted = {"driver": self.kills, "worker": self.worker_kills}.get(role, self.broker_restarts)
        return max(0, wanted - sum(kill.struck and kill.role == role for kill in self.done))

    def run(self) -> None:
        """All runs; ends early if a job fails by itself."""
        with self.program.server():
            self._run_all()

    def _run_all(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.program.prepare(self.folder / "archive")
        self.java = archive_classes(self.folder, self.program.module)
        while any(map(self.left, ("driver", "worker", "broker"))) and not self.failures:
            if self.until_unclean and not self.clean:
                break
            runs_left = max(1, -(-self.left("driver") // self.per_run))
            workers = -(-self.left("worker") // runs_left)
            _Run(self, self.folder / f"run-{self.runs}", workers).run()
            self.runs += 1

    def missing(self, role: str) -> list[str]:
        """The points of a role at which no kill has struck yet."""
        points = DRIVER_POINTS if role == "driver" else self.worker_points
        struck = {kill.point for kill in self.done if kill.struck and kill.role == role}
        return [point for point in points if point not in struck]

    def log(self, text: str) -> None:
        if self.say:
            print(text, file=sys.stderr, flush=True)

    def table(self) -> str:
        """The results, in Markdown."""
        by_point: dict[tuple[str, str], list[Kill]] = defaultdict(list)
        for kill in self.done:
            by_point[kill.role, kill.point].append(kill)
        lines = ["| killed | point | kills | recovery p50 | p99 |", "|---|---|---:|---:|---:|"]
        for (role, point), kills in sorted(by_point.items()):
            lines.append(_row(role, point, kills))
        lines += [
            _row(role, "all", [kill for kill in self.done if kill.role == role])
            for role in ("driver", "worker", "broker")[: 3 if self.broker_restarts else 2]
        ]
        missed = sum(not kill.struck for kill in self.done)
        v = self.verdict
        return "\n".join(
            [
                *lines,
                "",
                f"job {self.job}, seed {self.seed}: {self.runs} runs, {self.starts} drivers started, "
                f"{self.rescales} with another parallelism, {self.savepoints} from a savepoint, "
                f"{missed} kills came too late; {v.records:,} ids: {v.lost} lost, "
                f"{v.duplicated} duplicated, {v.disordered} disordered, {v.wrong} wrong",
                *([", ".join(f"{v.facts[one]:,} {one}" for one in v.facts)] if v.facts else []),
                *v.examples,
                *self.failures,
            ]
        )

    @property
    def clean(self) -> bool:
        return self.verdict.clean and not self.failures


def _row(role: str, point: str, kills: list[Kill]) -> str:
    times = sorted(kill.recovery for kill in kills if kill.recovery is not None)
    middle, most = (
        (f"{times[int(len(times) * q)]:.1f} s" for q in (0.5, 0.99)) if times else ("", "")
    )
    return f"| {role} | {point} | {sum(kill.struck for kill in kills)} | {middle} | {most} |"


class _Run:
    """One folder, from nothing to the end of its input."""

    def __init__(self, chaos: Chaos, folder: Path, workers: int) -> None:
        self._chaos = chaos
        self._rng = chaos.rng
        self._folder = folder
        self._workers = workers
        backends = chaos.program.backends
        self._backend = backends[chaos.runs % len(backends)]
        self._number = 0
        self._parallelism = 2
        self._published = 2  # the parallelism of the last checkpoint
        self._savepoint: str | None = None
        self._last_kill: Kill | None = None
        self._drivers: list[Driver] = []
        self._ended = False

    def run(self) -> None:
        self._folder.mkdir(parents=True)
        chaos = self._chaos
        chaos.program.prepare(self._folder)
        try:
            count = min(chaos.per_run, chaos.left("driver"))
            points = [next(chaos._points) for _ in range(count)]
            # After that one, nothing is left to be read.
            for point in sorted(points, key=WHILE_ENDING.__eq__):
                self._one(point)
                if self._ended or chaos.failures:
                    break
            while not self._ended and not chaos.failures:
                # A start from a savepoint is killed too, as long as there are kills left.
                again = self._savepoint is not None and chaos.left("driver") > 0
                self._one("restore" if again else None)
            if not chaos.failures:
                verdict = chaos.program.judge(self._folder)
                chaos.verdict += verdict
                chaos.log(f"{self._folder.name}: {verdict}")
            self._check_gone()
        finally:
            for driver in self._drivers:
                driver.remove()
        if chaos.clean:
            shutil.rmtree(self._folder, ignore_errors=True)

    # -- one driver -------------------------------------------------------------------------------------

    def _one(self, point: str | None) -> None:
        """Start a driver; kill it at a point, or let it end."""
        chaos, rng = self._chaos, self._rng
        if self._number and self._number % 4 == 0:
            self._parallelism = rng.choice(
                [p for p in range(1, MOST_SUBTASKS + 1) if p != self._parallelism]
            )
        named = point is not None and DRIVER_POINTS[point] > 0
        failpoint = f"{point}:{rng.randint(1, DRIVER_POINTS[point])}" if named else None  # type: ignore[index]
        driver = Driver(
            self._folder,
            self._number,
            module=chaos.program.module,
            parallelism=self._parallelism,
            backend=self._backend,
            savepoint=self._savepoint,
            point=failpoint,
            java=chaos.java,
            options={**chaos.program.options, **(_ROUNDS if chaos.rounds else {})},
            interval=1000 if chaos.rounds else 100,
            planted=chaos.planted,
        )
        self._drivers.append(driver)
        self._number += 1
        chaos.starts += 1
        before = driver.latest()
        # Another layout, and a savepoint, begin with a checkpoint that says so and has run nothing.
        again = before >= 0 and self._parallelism != self._published
        chaos.rescales += again
        chaos.savepoints += self._savepoint is not None
        first = before + (2 if again or self._savepoint else 1)
        kill = None if point is None else Kill(point, "driver", struck=False)
        restarting = self._restart_broker()
        if point == RANDOM_TIME:
            self._at_random_time(driver, first, kill)
        elif named:
            self._at_named_point(driver, first, point, kill)
        else:
            self._to_the_end(driver, first, kill)
        if restarting is not None:
            restarting.join()
        self._after(driver, kill)
        chaos.log(
            f"{self._folder.name} driver {self._number - 1}, parallelism {self._parallelism}, "
            f"{failpoint or point or 'to the end'}: checkpoints {before} to {driver.latest()}, "
            f"exit code {driver.process.returncode}, {time.time() - driver.started:.1f} s"
        )

    def _restart_broker(self) -> threading.Thread | None:
        """Restart what the job reads from and writes to, some time while this driver runs."""
        chaos, restart = self._chaos, self._chaos.program.restart
        left = chaos.left("broker")
        if (
            restart is None
            or not left
            or self._rng.random() > max(0.3, left / (chaos.left("driver") + 1))
        ):
            return None
        wait = self._rng.uniform(1.0, 12.0)

        def run() -> None:
            time.sleep(wait)
            restart()
            chaos.done.append(Kill(BROKER, "broker", struck=True))
            chaos.log(f"{self._folder.name}: the broker was restarted")

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def _recovered(self, driver: Driver, first: int) -> bool:
        """Wait for its first checkpoint, and note how long it took after a kill."""
        if not driver.wait_for(first, _START):
            return False
        self._published = self._parallelism
        if self._last_kill is not None:
            self._last_kill.recovery = time.time() - driver.started
            self._last_kill = None
        return True

    def _at_random_time(self, driver: Driver, first: int, kill: Kill | None) -> None:
        assert kill is not None
        deadline = driver.started + self._rng.uniform(0.5, 9.0)
        if self._rng.random() < 0.4 and self._chaos.spare_worker():
            # Two faults at once.
            driver.arm("state open", self._rng.randint(1, 4))

        def gone() -> bool:
            if driver.latest() >= first:
                self._recovered(driver, first)
            return not driver.running

        eventually(gone, deadline - time.time())
        kill.struck = driver.kill()
        if driver.struck.exists():
            self._chaos.done.append(Kill("state open", "worker", struck=True))

    def _at_named_point(
        self, driver: Driver, first: int, point: str | None, kill: Kill | None
    ) -> None:
        assert kill is not None
        if self._recovered(driver, first) and point == "savepoint":
            driver.ask(self._rng.choice(["savepoint", "stop"]), self._saved(driver))
        if driver.running:
            driver.end(_START)
        kill.struck = driver.struck.exists()

    def _to_the_end(self, driver: Driver, first: int, kill: Kill | None) -> None:
        """The driver that stays: its workers are killed, it may be stopped with a savepoint, then the input ends."""
        rng, stop = self._rng, self._folder / "stop"
        if stop.exists():
            self._workers = 0
        if self._workers and rng.random() < 0.5 and self._chaos.spare_worker():
            # Crash during recovery: the first worker that opens state.
            driver.arm("state open", rng.randint(1, 3))
        if not self._recovered(driver, first):
            return
        if driver.struck.exists():
            self._workers -= 1
            self._chaos.done.append(Kill("state open", "worker", struck=True))
        driver.disarm()
        while self._workers > 0:
            self._workers -= 1
            self._kill_worker(driver)
            if not driver.running:
                return
        if kill is not None:
            # A driver that was to be killed while it ends.
            stop.touch()
            time.sleep(rng.uniform(0, 1.2))
            kill.struck = driver.kill()
        elif self._chaos.savepoints * 2 <= self._chaos.runs and not stop.exists():
            driver.ask("stop", self._saved(driver))
            driver.end(_END)
        else:
            stop.touch()
            driver.end(_END)

    def _kill_worker(self, driver: Driver) -> None:
        rng, point = self._rng, self._chaos.next_worker_point()
        kill = Kill(point, "worker", struck=False)
        self._chaos.done.append(kill)
        most = self._chaos.worker_points[point]
        if most:
            driver.arm(point, rng.randint(1, most))
            eventually(lambda: driver.struck.exists() or not driver.running, 20)
            kill.struck = driver.struck.exists()
            driver.disarm()
        else:
            time.sleep(rng.uniform(0, 0.3))
            kill.struck = driver.kill_worker(rng, daemon=point == DAEMON)
        died, latest = time.time(), driver.latest()
        if kill.struck and driver.wait_for(latest + 1, _START):
            kill.recovery = time.time() - died
        elif kill.struck:
            self._fail(driver, f"no checkpoint after a worker was killed ({point})")

    # -- what follows -----------------------------------------------------------------------------------

    def _saved(self, driver: Driver) -> Path:
        return self._folder / f"savepoints-{self._drivers.index(driver)}"

    def _after(self, driver: Driver, kill: Kill | None) -> None:
        if kill is not None:
            self._chaos.done.append(kill)
            if kill.struck:
                self._last_kill = kill
        if driver.running:
            self._fail(driver, "a driver neither goes on nor ends")
            return
        if driver.process.returncode not in (0, -9):
            self._fail(driver, f"exit code {driver.process.returncode}")
            return
        self._savepoint = None
        if driver.latest() >= 0:
            return
        saved = [
            path
            for path in self._folder.glob("savepoints-*/*/_metadata")
            if path.stat().st_mtime > driver.started
        ]
        if saved:
            # It was stopped with a savepoint, and has removed its checkpoints.
            self._savepoint = str(saved[0].parent)
        elif (self._folder / "stop").exists():
            # A job that has finished has no checkpoints any more.
            self._ended = True

    def _fail(self, driver: Driver, text: str) -> None:
        where = f"{self._folder.name} driver {self._drivers.index(driver)}"
        self._chaos.failures.append(f"{where}: {text}\n{driver.errors}")

    def _check_gone(self) -> None:
        """No JVM and no worker outlives its driver for long."""
        for driver in self._drivers:
            if not eventually(lambda driver=driver: not driver.family(), _GONE):  # type: ignore[misc]
                self._fail(driver, f"left behind: {driver.family()}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of drivers")
    parser.add_argument("--worker-kills", type=int, help="by default twice as many")
    parser.add_argument(
        "--broker-restarts", type=int, default=0, help="of the job kafka; of ha, of ZooKeeper"
    )
    parser.add_argument("--pauses", type=int, default=0, help="of the job ha, of leaders")
    parser.add_argument("--election", choices=["zookeeper", "file"], default="zookeeper")
    parser.add_argument("--timeout", type=float, default=4.0, help="of a leader that is silent")
    parser.add_argument(
        "--watch-process",
        action="store_true",
        help="standbys see that the leader's process is gone",
    )
    parser.add_argument("--rounds", action="store_true", help="epochs have rounds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--job", choices=[*JOBS, "ha"], default="state", help="which one is killed")
    parser.add_argument("--folder", type=Path, help="where to work; kept if anything is wrong")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="millstream-chaos-"))
    workers = 2 * given.kills if given.worker_kills is None else given.worker_kills
    restarts = given.broker_restarts
    chaos: Chaos | LeaderChaos
    if given.job == "ha":
        chaos = LeaderChaos(
            given.kills,
            given.pauses,
            restarts,
            given.seed,
            folder,
            given.election,
            given.timeout,
            given.watch_process,
        )
    else:
        chaos = Chaos(
            *(given.kills, workers, given.seed, folder, given.job),
            broker_restarts=restarts,
            rounds=given.rounds,
        )
    # So that nothing is left running, whoever ends this.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    chaos.run()
    print(chaos.table())
    if chaos.clean:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"what was written is in {folder}")
    return 0 if chaos.clean else 1
