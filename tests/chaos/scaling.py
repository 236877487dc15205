"""Rescales 2-4-1-3 under load, upgrades that fail and that succeed, each also with processes that are killed in it.

    python -m tests.chaos.scaling --rounds 5 --seed 1

One job runs through all of it. What it has written in the end is each number once, with the counts of its key complete;
what is measured is the longest time in which no output became visible, from the moment of the request on. What is
killed, and when, follows from the seed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

from tests.chaos import scaling_job
from tests.integration.processes import MILLSTREAM, ROOT, Program
from tests.waiting import eventually

__all__ = ["World", "judge", "main", "play"]

PROGRAM = str(ROOT / "tests" / "chaos" / "scaling_job.py")
_SECONDS = 240


class Outputs:
    """When output became visible, seen from outside."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[str] = set()
        self.times: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            with contextlib.suppress(FileNotFoundError):
                names = {name for name in os.listdir(self._folder) if not name.startswith(".")}
                if names - self._seen:
                    self.times.append(time.monotonic())
                self._seen |= names

    def longest_since(self, began: float) -> float:
        """The longest time without output that has lasted, or begun, since a moment."""
        times = list(self.times)
        last = [at for at in times if at <= began]
        ends = [*last[-1:], *(at for at in times if at > began)]
        return max((b - a for a, b in itertools.pairwise(ends)), default=0.0)

    def count(self) -> int:
        return len(self.times)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class World:
    """A job's folder, the driver that runs it, and what is done to both."""

    def __init__(self, folder: Path, seed: int, rate: int) -> None:
        self.folder = folder
        self.rng = random.Random(seed)
        self.rate = rate
        self.driver: Program | None = None
        self.version = "1"
        self.outputs = Outputs(folder / "out")
        self.gaps: dict[str, list[float]] = defaultdict(list)
        self.killed: Counter[str] = Counter()
        self._programs: list[Program] = []

    # -- processes --------------------------------------------------------------------------------------

    def start(self, version: str, *words: str) -> Program:
        command = [*MILLSTREAM, "run", "-p", "2", "-Dspark.master=local[2,3]", *words, PROGRAM]
        command += [str(self.folder), version, str(self.rate)]
        program = Program(command, self.folder, PYTHONPATH=str(ROOT))
        self._programs.append(program)
        return program

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*MILLSTREAM, *words, "--dir", str(self.folder / "checkpoints")],
            cwd=ROOT, capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip

    def running(self) -> Program:
        """The driver; started, if there is none, with the program that ran last."""
        if self.driver is None or self.driver.process.poll() is not None:
            self.driver = self.start(self.version)
        self.flows(self.driver)
        return self.driver

    def flows(self, driver: Program, more: int = 3) -> None:
        """Wait until output comes."""
        before = self.outputs.count()
        done = eventually(
            lambda: self.outputs.count() >= before + more or driver.process.poll() is not None,
            _SECONDS,
        )
        assert done, "no output"
        assert driver.process.poll() is None, driver.errors[-4000:]

    def kill(self, program: Program, what: str) -> None:
        """SIGKILL to a driver, whose JVM has to see for itself that it is gone."""
        if program.process.poll() is None:
            self.killed[what] += 1
            os.kill(program.process.pid, signal.SIGKILL)
            program.process.wait(30)

    # -- rescaling --------------------------------------------------------------------------------------

    def rescale(self, parallelism: int) -> None:
        self.running()
        began = time.monotonic()
        done = self.command("rescale", scaling_job.JOB, "-p", str(parallelism))
        assert done.returncode == 0, done.stderr + done.stdout
        self.flows(self.running())
        self.gaps["rescale"].append(self.outputs.longest_since(began))
        _say(done.stdout.strip())

    def rescale_and_kill(self, parallelism: int) -> None:
        """The driver is killed at a moment of the rescale, and started again."""
        driver = self.running()
        began = time.monotonic()
        asking = threading.Thread(
            target=self.command, args=("rescale", scaling_job.JOB, "-p", str(parallelism))
        )
        asking.start()
        # The command itself takes a while to start.
        time.sleep(self.rng.uniform(0.3, 3.0))
        self.kill(driver, "driver in a rescale")
        asking.join()
        self.flows(self.running())
        self.gaps["rescale, driver killed"].append(self.outputs.longest_since(began))

    # -- upgrades ---------------------------------------------------------------------------------------

    def upgrade(self, version: str) -> None:
        """One that succeeds: the old driver ends, and the new one goes on."""
        old = self.running()
        began = time.monotonic()
        new = self.start(version, "--upgrade")
        assert old.end(_SECONDS) == 0, old.errors[-4000:]
        assert "Another program has taken over" in old.errors, old.errors[-4000:]
        self.driver, self.version = new, version
        self.flows(new)
        self.gaps["upgrade"].append(self.outputs.longest_since(began))
        _say(new.errors.strip().splitlines()[-1])

    def failing_upgrade(self) -> None:
        """One whose state does not fit: the running job goes on."""
        old = self.running()
        began = time.monotonic()
        new = self.start("bad", "--upgrade")
        assert new.end(_SECONDS) == 1, new.errors[-4000:]
        assert "does not have" in new.errors, new.errors[-4000:]
        self.flows(old)
        self.gaps["upgrade that fails"].append(self.outputs.longest_since(began))

    def upgrade_and_kill(self, version: str, whom: str) -> None:
        """The old or the new driver is killed at a moment of the upgrade; whoever is left, or started again, goes on.
        The moments: while the new one proves the state, while the old one hands over, while the new one starts."""
        old = self.running()
        began = time.monotonic()
        new = self.start(version, "--upgrade")
        moment = self.rng.choice(["proof", "handover", "start"])
        proved = "All state of checkpoint"
        seen = {"proof": None, "handover": proved, "start": "Savepoint of the program before"}[
            moment
        ]
        if seen is not None:
            eventually(lambda: seen in new.errors or new.process.poll() is not None, _SECONDS)
        time.sleep(self.rng.uniform(0.0, 8.0 if moment == "proof" else 1.0))
        self.kill(old if whom == "old" else new, f"{whom} driver in an upgrade ({moment})")
        # Who lives goes on, or is started again: either program.
        survivors = [one for one in (new, old) if one.process.poll() is None]
        if whom == "old":
            self.driver, self.version = new, version
        elif survivors and not self._is_ending(old):
            self.driver = old
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                old.end(60)
            if self.rng.random() < 0.5:
                self.version = version
            self.driver = None
        self.flows(self.running())
        self.gaps[f"upgrade, {whom} driver killed"].append(self.outputs.longest_since(began))

    def _is_ending(self, old: Program) -> bool:
        """True if the old driver was asked to hand over: it ends soon, or has."""
        return eventually(lambda: "taken over" in old.errors or old.process.poll() is not None, 15)

    # -- the end ----------------------------------------------------------------------------------------

    def finish(self) -> int:
        """Stop the job in order; how many numbers it has written, if all is right."""
        driver = self.running()
        done = self.command("stop", scaling_job.JOB)
        assert done.returncode == 0, done.stderr
        driver.end(_SECONDS)
        return judge(self.folder / "out")

    def close(self) -> None:
        self.outputs.stop()
        for program in self._programs:
            program.__exit__()


def judge(folder: Path) -> int:
    """Each number of each split once, up to one; each key's counts once, up to one. How many numbers there are."""
    numbers: Counter[int] = Counter()
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for path in folder.iterdir():
        if not path.name.startswith("."):
            for line in path.read_text().splitlines():
                number, key, count = map(int, line.split())
                numbers[number] += 1
                counts[key][count] += 1
                assert number % scaling_job.KEYS == key, line
    for split in range(scaling_job.SPLITS):
        own = sorted(n for n in numbers if n % scaling_job.SPLITS == split)
        wanted = [split + scaling_job.SPLITS * place for place in range(len(own))]
        lost = sorted(set(wanted) - set(own))[:5]
        assert own == wanted, f"split {split}: {lost} are lost, the last is {own[-1]}"
    doubled = [n for n, times in numbers.items() if times > 1]
    assert not doubled, f"{len(doubled)} are doubled: {doubled[:5]}"
    for key, seen in counts.items():
        assert seen == Counter(range(1, len(seen) + 1)), f"the state of key {key} is wrong"
    return len(numbers)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def play(world: World, rounds: int) -> None:
    """Everything that is done to a job, so many times."""
    for number in range(rounds):
        _say(f"round {number + 1} of {rounds}")
        _round(world, number)


def _round(world: World, number: int) -> None:
    for parallelism in (4, 1, 3, 2):
        world.rescale(parallelism)
    world.rescale_and_kill(world.rng.choice([1, 3, 4]))
    world.failing_upgrade()
    # There and back: a program may have less state than the one before only if it leaves it behind.
    if number == 0:
        world.upgrade("2")
    else:
        world.upgrade(world.version)
    world.upgrade_and_kill(world.version, "old")
    world.upgrade_and_kill(world.version, "new")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=2000)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="millstream-scaling-"))
    folder.mkdir(parents=True, exist_ok=True)
    world = World(folder, options.seed, options.rate)
    try:
        play(world, options.rounds)
        total = world.finish()
    finally:
        world.close()
    figures = {
        kind: {
            "times": len(gaps),
            "p50 s": round(statistics.median(gaps), 2),
            "max s": round(max(gaps), 2),
        }
        for kind, gaps in world.gaps.items()
    }
    result = {
        "seed": options.seed, "rounds": options.rounds, "records": total, "lost": 0, "doubled": 0,
        "killed": dict(world.killed), "without output": figures,
    }  # fmt: skip
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
