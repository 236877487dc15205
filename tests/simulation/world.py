"""One seed, one run: the checker job under random faults, then the oracle.

What is real: coordinator, epoch driver, job folder, lease, savepoints, restart loop, tasks, state. What is simulated:
the disk, which worker runs which attempt of a task and which attempt wins, the systems behind the sinks, the threads
that compact and copy, and every fault. The same seed gives the same run.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import logging
import os
import pickle
import random
import tempfile
import threading
import types
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from millstream.checkpoint import claim, commands, lease, savepoint
from millstream.checkpoint.manifest import list_epochs, read_manifest
from millstream.common.restart_strategy import RestartStrategies
from millstream.connectors.file import sink as file_sink
from millstream.errors import JobLocked, MillstreamError, SinkError, StateMismatch
from millstream.runtime.codegen import code
from millstream.runtime.driver import epochs, job, job_folder, savepoints
from millstream.runtime.driver.epochs import EpochDriver, Outcome
from millstream.runtime.driver.job import JobSettings
from millstream.runtime.driver.job_folder import JobFolder
from millstream.runtime.driver.local import _rows, _source_task
from millstream.runtime.driver.outputs import EpochRow
from millstream.runtime.driver.run import JobRun
from millstream.runtime.state import store
from millstream.runtime.state.operator_state import parts_of
from millstream.runtime.state.store import StateStore, compact
from millstream.runtime.task import slot, spec, task
from millstream.runtime.task.task import LevelTask
from millstream.runtime.wire.rows import RowBatch
from millstream.state import edit, editor
from millstream.storage import open as storages
from tests.simulation import program
from tests.simulation.disk import SCHEME, Crash, SimDisk, SimStorage
from tests.simulation.outlets import Outlets, Violation

ATTEMPTS = 4
# True: in every third seed the program asks for its keyed state with the first record, not in open().
LATE_STATE = os.environ.get("MILLSTREAM_LATE_STATE", "1") == "1"


class TaskFault(Exception):
    """A task fails by itself."""


class Killed(BaseException):
    """A worker process is killed."""


# How likely each fault is at each opportunity; a seed takes some of them, more or less likely.
RATES = {
    "task fails": 0.05,
    "worker killed": 0.03,
    "result ignored": 0.06,
    "zombie": 0.06,
    "cache dropped": 0.05,
    "driver dies at a command": 0.02,
    "crash in storage": 0.10,
    "disk error": 0.06,
    "commit refused": 0.04,
    "reply lost": 0.05,
    "crash after commit": 0.02,
    "driver pauses": 0.012,
    "driver dies before the commit": 0.15,
    "consumer fails": 0.03,
    "savepoint": 0.08,
    "stop with savepoint": 0.03,
    "rescale": 0.5,
    "files taken": 0.2,
    "start by path": 0.3,
    "checkpoint edited": 0.3,
    "program changed": 0.2,
    "second job": 0.2,
    "what was started from removed": 0.3,
}


class Attempt:
    """What is to become of an attempt: `fate` comes at the n-th point it passes."""

    def __init__(self, fate: str, after: int) -> None:
        self.fate = fate
        self.left = after
        self.zombie: Zombie | None = None


class Zombie:
    """An attempt in a thread of its own, which stops where it is told to and goes on when it is told to."""

    def __init__(self, world: World, slots: dict, attempt: Attempt, call: Any) -> None:
        self._world = world
        self._slots = slots
        self._attempt = attempt
        self._call = call
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self.done = False
        self._thread = threading.Thread(target=self._main, daemon=True)
        attempt.zombie = self

    def start(self) -> None:
        with self._world.acting(self._attempt, self._slots):
            self._thread.start()
            self._back.acquire()

    def go_on(self) -> None:
        with self._world.acting(self._attempt, self._slots):
            self._go.release()
            self._back.acquire()

    def pause(self) -> None:
        """Called in the thread."""
        self._back.release()
        self._go.acquire()

    def _main(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self._world.note("zombie failed", type(error).__name__)
        self.done = True
        self._back.release()


class SimThread:
    """Stands for `threading.Thread` where savepoints are copied."""

    def __init__(self, target: Any, args: tuple, name: str, daemon: bool) -> None:
        self._call = lambda: target(*args)
        self._done = False

    def start(self) -> None:
        world = program.outside
        if world.random.random() < 0.5:
            self.join()
        else:
            world.background.append(self.join)

    def join(self) -> None:
        if not self._done:
            self._done = True
            self._call()


class SimRun(JobRun):
    """The real restart loop around simulated tasks."""

    def __init__(self, one: job.Job, world: World) -> None:
        super().__init__(one)
        self.world = world
        self.outcome: Outcome | None = None
        self.last = 0

    def _attempt(self, spec, driver) -> None:
        world = self.world
        try:
            while True:
                world.between_epochs(driver)
                outcome = driver.epoch(lambda epoch, work: world.run_epoch(spec, epoch, work))
                if world.disk.crashed:
                    raise Crash("noticed")
                world.check_retained(driver.folder)
                if outcome is not Outcome.GO_ON:
                    self.outcome = outcome
                    return
        finally:
            world.workers = [{} for _ in world.workers]

    def _compact(self, name, segments) -> None:
        driver, world = self._driver, self.world
        assert driver is not None
        folder = driver.folder.storage

        def write() -> Any:
            try:
                return compact(folder, name, segments, world.new_id()[:16])
            except (OSError, MillstreamError):
                return None

        match world.random.randrange(5):
            case 0:
                driver.compacted(name, write())
            case 1:
                world.background.append(lambda: driver.compacted(name, write()))
            case 2:
                file = write()
                world.background.append(lambda: driver.compacted(name, file))
            case 3:
                driver.compacted(name, None)
            case 4:
                world.note("compaction lost", name)


class World(Outlets):
    """The outside of one run."""

    def __init__(
        self,
        seed: int,
        *,
        origin: World | None = None,
        path: str | None = None,
        claim_mode: str | None = None,
    ) -> None:
        super().__init__(f"{program.scratch}/{seed}")
        self.seed = seed
        self.random = rng = random.Random(seed)
        self._ids = random.Random(-seed - 1)
        self.log: list[str] = []
        self.acting_attempt: Attempt | None = None
        self.workers: list[dict] = [{} for _ in range(rng.randint(2, 3))]
        self.zombies: list[Zombie] = []
        self.background: list[Any] = []
        self.depth = 0
        self.halt_in: int | None = None
        self.crash_in: int | None = None
        self.error_in: int | None = None
        self.finished = False
        self.fenced = 0
        self.broken: Violation | None = None
        self.held = True
        self.savepoints: list[Any] = []
        self.stopping: Any = None
        self.power_lost = False
        self.start_at: dict[str, int] = {}
        self.path = path
        self.parallelism = rng.randint(1, 3), rng.randint(1, 3)
        self.jobs = 0
        self.visits = 0
        self.variant = program.VARIANTS[0]
        self.claim_mode = claim_mode
        # What jobs were started from by path, and is not needed once they run.
        self.left: list[str] = []
        # Keyed state that is asked for with the first record: a subtask without one has nothing to keep.
        self.lazy = LATE_STATE and seed % 3 == 0 if origin is None else origin.lazy
        if origin is None:
            self.disk = SimDisk(random.Random(seed + 1))
            self.counts = {s: rng.randint(3, 14) for s in ("a", "bb", "ccc")[: rng.randint(1, 3)]}
            self.mode = rng.choices(["EXACTLY_ONCE", "AT_LEAST_ONCE", "AT_MOST_ONCE"], [10, 1, 1])[
                0
            ]
            self.retained = rng.randint(1, 3)
            self.budget = rng.choice([1, 3, 8, 15])
            some = rng.sample(sorted(RATES), rng.randint(2, len(RATES)))
            scale = rng.choice([1, 2, 4])
            self.rates = {name: min(0.5, RATES[name] * scale) for name in some}
            self.name = "job"
        else:
            self.disk, self.counts, self.mode = origin.disk, origin.counts, origin.mode
            self.retained, self.budget, self.rates = 1, 2, {"task fails": 0.1}
            self.name = "fork"
        self.disk.before = self.storage_step
        self.note("mode", self.mode, "counts", self.counts, "parallelism", self.parallelism)

    # -- chance ---------------------------------------------------------------------------------------------

    def note(self, *what: Any) -> None:
        self.log.append("  " * self.depth + " ".join(map(str, what)))

    def chance(self, fault: str, *, free: bool = False) -> bool:
        rate = self.rates.get(fault, 0.0)
        if (not self.budget and not free) or not rate or self.random.random() >= rate:
            return False
        if not free:
            self.budget -= 1
        self.note("*", fault)
        return True

    def new_id(self) -> str:
        return f"{self._ids.getrandbits(128):032x}"

    # -- what the program sees ------------------------------------------------------------------------------

    def point(self, name: str) -> None:
        attempt = self.acting_attempt
        if attempt is None or attempt.fate == "ok":
            return
        attempt.left -= 1
        if attempt.left != 0:
            return
        self.note("    at", name)
        match attempt.fate:
            case "fail":
                raise TaskFault(name)
            case "kill":
                raise Killed(name)
            case "zombie":
                assert attempt.zombie is not None
                attempt.zombie.pause()

    # -- the disk ---------------------------------------------------------------------------------------------

    def storage_step(self, what: str, path: str) -> None:
        if self.acting_attempt is not None and self.acting_attempt.fate == "zombie":
            return
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in <= 0:
                self.crash_in = None
                self.note("    at", what, path)
                self.disk.crashed = True
                raise Crash(path)
        if self.error_in is not None and what in ("open", "write"):
            self.error_in -= 1
            if self.error_in <= 0:
                self.error_in = None
                self.note("    at", what, path)
                number = self.random.choice([errno.ENOSPC, errno.EIO, errno.EACCES])
                raise OSError(number, os.strerror(number), path)

    # -- tasks -------------------------------------------------------------------------------------------------

    @contextmanager
    def acting(self, attempt: Attempt, slots: dict):
        before = self.acting_attempt, slot._slots
        self.acting_attempt, slot._slots = attempt, slots
        try:
            yield
        finally:
            self.acting_attempt, slot._slots = before

    def run_epoch(self, spec, epoch: int, work) -> list[EpochRow]:
        if epoch > 500:
            raise Violation("the job does not come to its end")
        self.note(
            "epoch",
            epoch,
            [
                [(r.progress.split, r.progress.start, r.progress.end) for r in one.ranges]
                for one in work
            ],
        )
        rows: list[Any] = []
        for ranges in self.shuffled(work):
            rows.extend(self.run_task(lambda r=ranges: list(_rows(_source_task(spec, epoch, r)))))
        for index in range(1, len(spec.levels)):
            parallelism = spec.levels[index].parallelism
            by_target = [RowBatch() for _ in range(parallelism)]
            for row in rows:
                by_target[row[0] % parallelism].add(*row)
            inputs = [batch.take() for batch in by_target]
            rows = []
            for subtask in self.shuffled(range(parallelism)):

                def call(subtask: int = subtask, index: int = index, inputs: list = inputs) -> list:
                    level = LevelTask(spec, index, subtask, epoch)
                    return list(_rows(level.run([inputs[subtask]])))

                rows.extend(self.run_task(call))
        return [EpochRow(r[3], r[2], r[1], r[4]) for r in rows]

    def shuffled(self, items) -> list:
        items = list(items)
        self.random.shuffle(items)
        return items

    def run_task(self, call: Any) -> list:
        """Attempts at one task until one wins."""
        failures = 0
        while True:
            if self.zombies and self.random.random() < 0.1:
                self.wake_zombie()
            number = self.random.randrange(len(self.workers))
            if self.chance("cache dropped"):
                self.workers[number] = {}
            slots = self.workers[number]
            after = self.random.randint(1, 8)
            if self.chance("zombie"):
                # Its process is busy with it; others take its place.
                self.workers[number] = {}
                zombie = Zombie(self, slots, Attempt("zombie", after), call)
                zombie.start()
                if not zombie.done:
                    self.zombies.append(zombie)
                continue
            fate = "fail" if self.chance("task fails") else "ok"
            fate = "kill" if fate == "ok" and self.chance("worker killed") else fate
            try:
                with self.acting(Attempt(fate, after), slots):
                    rows: list = call()
            except Crash:
                raise
            except Killed:
                self.workers[number] = {}
            except (Exception, Violation) as error:
                if isinstance(error, Violation) or isinstance(error.__cause__, Violation):
                    raise
                failures += 1
                if failures == ATTEMPTS:
                    raise
                self.note("attempt failed:", str(error).splitlines()[0])
                if not isinstance(error, OSError) and not self.injected(error):
                    raise
            else:
                if not self.chance("result ignored"):
                    return rows

    @staticmethod
    def injected(error: BaseException | None) -> bool:
        seen: set[int] = set()
        while error is not None and id(error) not in seen:
            if isinstance(error, TaskFault | OSError | SinkError) or "TaskFault" in str(error):
                return True
            seen.add(id(error))
            error = error.__cause__
        return False

    def wake_zombie(self) -> None:
        zombie = self.zombies.pop(self.random.randrange(len(self.zombies)))
        self.note("zombie wakes")
        zombie.go_on()

    # -- the driver --------------------------------------------------------------------------------------------

    def between_epochs(self, driver: EpochDriver) -> None:
        self.some_background(0.4)
        if self.halt_in is not None:
            self.halt_in -= 1
            if self.halt_in < 0:
                # Nothing that comes after reaches the disk, not even the end of the lease.
                self.disk.crashed = True
                raise Crash("its time is over")
        if self.zombies and self.random.random() < 0.3:
            self.wake_zombie()
        if self.chance("files taken", free=True):
            self.take_files(self.random.random(), self.random)
        if (
            self.left
            and self.depth == 0
            and self.chance("what was started from removed", free=True)
        ):
            self.remove_what_is_left()
        if self.depth == 0:
            if self.chance("crash in storage"):
                self.crash_in = self.random.randint(1, 60)
            if self.chance("savepoint"):
                self.savepoints.append(driver.savepoints.ask(f"{self.base}/savepoints"))
            if self.stopping is None and self.chance("stop with savepoint"):
                drain = self.random.random() < 0.3
                path = f"{self.base}/savepoints"
                self.stopping = driver.savepoints.ask(path, stop=True, drain=drain)
        if self.chance("disk error"):
            self.error_in = self.random.randint(1, 20)

    def some_background(self, rate: float) -> None:
        for call in list(self.background):
            if self.random.random() < rate and call in self.background:
                self.background.remove(call)
                call()

    def before_command(self, driver: EpochDriver, command: Any) -> None:
        self.note(type(command).__name__, getattr(command, "epoch", ""))
        self.some_background(0.1)
        if self.depth == 0 and self.chance("driver dies at a command"):
            self.disk.crashed = True
            raise Crash(type(command).__name__)
        if (
            self.depth == 0
            and isinstance(command, commands.Commit)
            and self.chance("driver dies before the commit")
        ):
            self.disk.crashed = True
            raise Crash("before a commit")
        if self.depth == 0 and not self.finished and self.chance("driver pauses"):
            self.second_driver()

    def after_command(self, command: Any) -> None:
        if self.depth == 0 and self.chance("driver dies at a command"):
            self.disk.crashed = True
            raise Crash(f"after {type(command).__name__}")

    def second_driver(self) -> None:
        """The driver at hand sleeps for longer than its lease lives; another runs the job for a while."""
        self.fenced += 1
        self.beside(self.random.randint(0, 5), self.make_job)
        self.note("the first driver wakes up")

    def second_job(self) -> None:
        """Somebody starts a job of another name from the latest checkpoint, and ends it before it has read anything."""
        path = self.latest()
        if path is None:
            return
        mode = self.random.choice([None, "LEGACY", "NO_CLAIM"])
        self.visits += 1
        before = self.committed()
        settings = self.settings(f"{self.name}-beside{self.visits}", path, claim_mode=mode)
        self.note("job beside it from", path, mode)
        self.beside(0, lambda: self.job_with(settings))
        if mode == "NO_CLAIM":
            self.check("a checkpoint that is not claimed was committed", self.committed(), before)

    def beside(self, halt_in: int, make_job: Any) -> None:
        """Another driver, while the one at hand stands still."""
        crash_in, self.crash_in = self.crash_in, None
        background, self.background = self.background, []
        workers, self.workers = self.workers, [{} for _ in self.workers]
        asked, self.stopping = self.stopping, None
        mark = self.mark
        self.depth += 1
        self.halt_in = halt_in
        try:
            self.one_driver(make_job)
        finally:
            self.depth -= 1
            self.halt_in = None
            self.stopping = asked
            self.mark = mark
            self.crash_in, self.background, self.workers = crash_in, background, workers

    @property
    def base(self) -> str:
        return f"{SCHEME}{self.seed}"

    def make_job(self) -> job.Job:
        if self.chance("rescale", free=True):
            self.parallelism = self.random.randint(1, 3), self.random.randint(1, 3)
        by_path = allow = False
        claim_mode = None
        latest = self.latest() if self.depth == 0 else None
        if latest is not None and self.chance("start by path", free=True):
            by_path, self.path = True, self.as_good_as(latest)
            if self.chance("checkpoint edited", free=True):
                with self.untroubled():
                    copy = f"{self.base}/edited-{self.new_id()[:8]}"
                    self.path = edit(self.path, allow_pickle=True).write(copy)
                self.left.append(copy)
            # Under the name that it has, or under another.
            if self.random.random() < 0.6:
                self.left.append(self.folder)
                self.jobs += 1
            claim_mode = self.random.choice([None, "LEGACY", "CLAIM"])
        if (
            latest is not None
            and self.mode == "EXACTLY_ONCE"
            and self.chance("program changed", free=True)
        ):
            self.variant = self.random.choice(program.VARIANTS)
            allow = self.random.random() < 0.3
            if allow:
                self.given_up.update(self.without_sink(self.path if by_path else latest))
        path = self.path if by_path or not self.has_checkpoint() else None
        name = f"{self.name}{self.jobs}"
        return self.job_with(self.settings(name, path, allow=allow, claim_mode=claim_mode))

    def settings(
        self, name: str, path: str | None, *, allow: bool = False, claim_mode: str | None = None
    ) -> JobSettings:
        return JobSettings(
            name=name,
            checkpoint_dir=f"{self.base}/checkpoints",
            mode=self.mode,
            retained=self.retained,
            restart=RestartStrategies.fixed_delay_restart(self.random.randint(0, 4), 0),
            epoch_records=self.random.randint(2, 12),
            recovery_path=path,
            allow_non_restored=allow,
            claim_mode=claim_mode or self.claim_mode,
        )

    def job_with(self, settings: JobSettings) -> job.Job:
        self.note(
            "driver:", settings.name, self.variant, "from", settings.recovery_path,
            settings.claim_mode, "parallelism", self.parallelism, "epochs of",
            settings.epoch_records,
        )  # fmt: skip
        found = program.checker_job(*self.parallelism, self.variant)
        return dataclasses.replace(found, id=self.new_id(), settings=settings)

    @contextmanager
    def untroubled(self):
        """What is done here meets no faults."""
        before, self.disk.before = self.disk.before, lambda step, path: None
        try:
            yield
        finally:
            self.disk.before = before

    def latest(self) -> str | None:
        """The path of the job's latest checkpoint, if there is one to start from."""
        if f"{self.folder}/finished" in self.disk.files:
            return None
        with self.untroubled():
            epochs = list_epochs(SimStorage(self.folder, self.disk))
        return f"{self.folder}/chk-{epochs[-1]}" if epochs else None

    def as_good_as(self, path: str) -> str:
        """A checkpoint to start from in place of the latest: if that is what a job begins with, and no epoch has run
        since, it may be the one that the job was started from."""
        where = SimStorage(self.folder, self.disk)
        with self.untroubled():
            present = list_epochs(where)
            latest = read_manifest(where, present[-1])
            before = read_manifest(where, present[-2]) if len(present) > 1 else None
        if before is not None and latest.origin == before.made and self.random.random() < 0.8:
            return f"{self.folder}/chk-{before.epoch}"
        return path

    def remove_what_is_left(self) -> None:
        """Once a job has a checkpoint of its own, it needs nothing of what it was started from."""
        where = SimStorage(self.folder, self.disk)
        with self.untroubled():
            present = list_epochs(where)
            if present and read_manifest(where, present[-1]).origin is None:
                for folder in self.left:
                    self.note("removed:", folder)
                    for name in [one for one in self.disk.files if one.startswith(f"{folder}/")]:
                        del self.disk.files[name]
                self.left.clear()

    def without_sink(self, path: str) -> list[str]:
        """What a checkpoint has left to commit of sinks that the program does not have."""
        sinks = self.sinks(self.variant)
        with self.untroubled():
            manifest, _ = savepoint.open_checkpoint(path)
        made = manifest.committables.items()
        return [one.decode() for uid, several in made if uid not in sinks for one in several]

    @staticmethod
    def sinks(variant: str) -> frozenset[str]:
        return program.checker_job(1, 1, variant).layout("").sinks

    def refused(self, run: SimRun, error: StateMismatch) -> None:
        """The program lacks a sink: right if that had output to commit. The user goes back to one that has it."""
        path = run.job.settings.recovery_path or self.latest()
        missing = [] if path is None else self.without_sink(path)
        if not missing or run.job.settings.allow_non_restored:
            raise Violation(f"refused without reason: {error}") from error
        self.note("refused:", str(error).splitlines()[0])
        with self.untroubled():
            pending, _ = savepoint.open_checkpoint(path)
        self.variant = next(
            one for one in program.VARIANTS if self.sinks(one) >= set(pending.committables)
        )

    def one_driver(self, make_job: Any = None) -> None:
        """Run the job with one driver until it ends, fails or dies."""
        run = SimRun((make_job or self.make_job)(), self)
        self.mark = self.new_id()[:8]
        try:
            run._run()
        except Crash as crash:
            self.note("crash:", crash)
            if self.depth:
                self.disk.come_back()
            else:
                self.after_crash()
        except JobLocked as error:
            if not self.depth and not self.fenced:
                raise Violation(f"fenced without reason: {error}") from error
            self.note("fenced:", error)
        except StateMismatch as error:
            self.refused(run, error)
        except (TaskFault, OSError, SinkError, MillstreamError) as error:
            if not self.injected(error):
                raise Violation(f"the job was refused: {error!r}") from error
            self.note("job failed:", str(error).splitlines()[0])
        else:
            self.ended(run)
        finally:
            self.error_in = None
            self.driver_ended(run._driver)

    def has_checkpoint(self) -> bool:
        # Not what a crash has left of one that was being written: who sees no checkpoint starts by path again.
        start, end = f"{self.folder}/chk-", "/_metadata"
        return any(path.startswith(start) and path.endswith(end) for path in self.disk.files)

    def ended(self, run: SimRun) -> None:
        if run.outcome is Outcome.STOPPED:
            assert self.stopping is not None
            self.path, self.stopping = self.stopping.result(0), None
            self.note("stopped with", self.path)
            self.jobs += 1
        elif self.held:
            self.finished = True

    @property
    def folder(self) -> str:
        return f"{self.base}/checkpoints/{self.name}{self.jobs}"

    def after_crash(self) -> None:
        self.crash_in = None
        self.disk.come_back()
        if self.random.random() < 0.5:
            self.note("power lost")
            self.power_lost = True
            self.disk.lose_power()
        self.background.clear()
        self.stopping = None
        self.workers = [{} for _ in self.workers]

    def run(self) -> None:
        program.enter(self)
        try:
            for _ in range(100):
                self.one_driver()
                if self.broken is not None:
                    raise self.broken
                if self.finished:
                    break
                if self.chance("second job", free=True):
                    self.second_job()
                if self.chance("files taken", free=True):
                    self.take_files(self.random.random(), self.random)
            else:
                raise Violation("the job does not come to its end")
            while self.zombies:
                self.wake_zombie()
            self.check_outputs()
            self.check_savepoints()
        finally:
            for zombie in self.zombies:
                zombie.go_on()
            self.forget_files()

    # -- the oracle --------------------------------------------------------------------------------------------

    def check_start(self, folder: JobFolder, start: Any) -> None:
        """After a start there is nothing in the folder that no checkpoint names."""
        needed: set[str] = set()
        for manifest in start.kept:
            needed |= manifest.files()
        place = folder.storage.root
        there = {
            path[len(place) + 1 :]
            for path in self.disk.files
            if path.startswith(f"{place}/shared/") and "/." not in path
        }
        self.check("orphans after a start", there - needed, set())

    def check_retained(self, folder: JobFolder) -> None:
        """Whatever a checkpoint that would be used names is there."""
        present = list_epochs(folder.storage)
        for epoch in present[-1:] if self.power_lost or self.fenced else present:
            for name in read_manifest(folder.storage, epoch).files():
                if not folder.storage.exists(name):
                    raise Violation(f"checkpoint {epoch} names {name}, which is gone")

    def check_state(self, folder: JobFolder) -> None:
        """The state of the last checkpoint, read back, is what all input makes."""
        where = folder.storage
        self.check_retained(folder)
        manifest = read_manifest(where, list_epochs(where)[-1])
        self.check("the last checkpoint says that it is the last", manifest.ended, True)
        if self.mode == "AT_MOST_ONCE":
            return
        counts: dict[str, int] = {}
        ids: Counter = Counter()
        splits: Counter = Counter()
        seen = 0
        for name, version in manifest.stores.items():
            read = StateStore(where, name, operators=version.operators)
            read.open(version)
            for table in read.tables.values():
                match table.name:
                    case "tally/count":
                        for key in table.keys():  # noqa: SIM118 - a table is no dictionary
                            self.check(f"{key} in two stores", key in counts, False)
                            counts[key] = table.read(key, None)
                    case "tally/ids":
                        for key in table.keys():  # noqa: SIM118
                            ids.update((key, one) for one in table.read(key, []))
                    case "tally/splits":
                        for key in table.keys():  # noqa: SIM118
                            for entry in table.read_entries(key):
                                splits[(key, *_map_entry(entry))] += 1
            found = read.operator_state.content().get("counting/n")
            for _, _, elements in parts_of(found) if found else ():
                seen += sum(pickle.loads(e) if isinstance(e, bytes) else e for e in elements)
        every = [(s, n) for s, count in self.counts.items() for n in range(count)]
        by_key = Counter(program.key_of(one) for one in every)
        self.check("value state", counts, dict(by_key))
        self.check(
            "list state", ids, Counter((program.key_of((s, n)), f"{s}{n}") for s, n in every)
        )
        by_split = Counter((program.key_of((s, n)), s) for s, n in every)
        self.check("map state", splits, Counter((k, s, c) for (k, s), c in by_split.items()))
        self.check("operator state", seen, len(every))

    def check_savepoints(self) -> None:
        """A job that is started from a savepoint ends with what was still to come, and with the same state."""
        done = [f for f in self.savepoints if f.done() and f.exception() is None]
        if not done or self.mode == "AT_MOST_ONCE":
            return
        path = self.random.choice(done).result(0)
        manifest, _ = savepoint.open_checkpoint(path)
        for number, mode in enumerate([None, "NO_CLAIM", "CLAIM"], 1):
            seed = self.seed + number * 10**9
            fork = World(seed, origin=self, path=path, claim_mode=mode)
            fork.start_at = {
                split: ~at if at < 0 else at
                for split, at in manifest.offsets.get("ids", {}).items()
            }
            try:
                fork.run()
            except BaseException:
                self.log += ["fork:", *fork.log]
                raise
            there = f"{path}/_metadata" in self.disk.files
            self.check(f"a savepoint is there, {mode}", there, mode != "CLAIM")


def _map_entry(entry: tuple[Any, Any]) -> tuple[Any, Any]:
    key, kept = entry
    return kept if isinstance(kept, tuple) else (key, kept)


# -- what is replaced while worlds run -------------------------------------------------------------------------


class _Ids:
    @staticmethod
    def uuid4() -> Any:
        return types.SimpleNamespace(hex=program.outside.new_id())

    @staticmethod
    def token_hex(size: int) -> str:
        return program.outside.new_id()[: 2 * size]


def _open_sim(original: Any) -> Any:
    def open_storage(root: str, *, durable: bool = True, seal: Any = None) -> Any:
        if root.startswith(SCHEME):
            return SimStorage(root, program.outside.disk)
        return original(root, durable=durable, seal=seal)

    return open_storage


def _do(original: Any) -> Any:
    def wrapped(driver: EpochDriver, command: Any, run: Any) -> Any:
        world = program.outside
        world.before_command(driver, command)
        event = original(driver, command, run)
        world.after_command(command)
        return event

    return wrapped


def _start(original: Any) -> Any:
    def wrapped(folder: JobFolder, **options: Any) -> Any:
        start = original(folder, **options)
        program.outside.check_start(folder, start)
        return start

    return wrapped


def _close(original: Any) -> Any:
    def wrapped(folder: JobFolder, *, finished: bool, cancelled: bool) -> None:
        world = program.outside
        world.held = world.disk.crashed or folder._is_held()
        if finished and not world.disk.crashed:
            # From here on the job is over; a machine that dies now has only left-overs to remove.
            world.error_in = world.crash_in = None
        if finished and world.stopping is None and world.held and not world.disk.crashed:
            world.check_state(folder)
        original(folder, finished=finished, cancelled=cancelled)

    return wrapped


@contextmanager
def simulated():
    """Everything that worlds need is in place."""
    for variant in program.VARIANTS:
        for parallelism in range(1, 4):
            for keyed in range(1, 4):
                program.checker_job(parallelism, keyed, variant)
    job_ship = job._ship

    @functools.cache
    def shipped(vertex, edges):
        own = {}
        return job_ship(vertex, list(edges), own), own

    def ships(vertex, edges, classes):
        body, own = shipped(vertex, tuple(edges))
        classes.update(own)
        return body

    compiled = functools.cache(compile)
    level = logging.getLogger("millstream").level
    logging.getLogger("millstream").setLevel(logging.CRITICAL + 1)
    opening = _open_sim(storages.open_storage)
    defaults = dict(lease.Lease.acquire.__func__.__kwdefaults__)
    replaced = [
        *(
            (module, "open_storage", opening)
            for module in (storages, spec, job_folder, store, savepoint, editor)
        ),
        (job, "_ship", ships),
        (job, "uuid", _Ids),
        (task, "uuid", _Ids),
        (lease, "uuid", _Ids),
        (savepoint, "secrets", _Ids),
        (editor, "secrets", _Ids),
        (file_sink, "uuid", _Ids),
        (
            savepoints,
            "threading",
            types.SimpleNamespace(Thread=SimThread, Lock=threading.Lock, Event=threading.Event),
        ),
        (savepoints.SavepointRequests, "watch", lambda self: None),
        (lease.Lease, "keep", lambda self: None),
        (lease, "is_gone", lambda holder: False),
        (claim, "await_end", lambda storage: None),
        (claim, "standing", lambda holder: "dead"),
        (lease, "_process", lambda pid: ("R", 1)),
        (lease, "_machine", lambda: "simulated"),
        (epochs, "needs_compaction", lambda segments: len(segments) >= 3),
        (epochs, "_SWEEP_EVERY", 4),
        (EpochDriver, "_do", _do(EpochDriver._do)),
        (JobFolder, "start", _start(JobFolder.start)),
        (JobFolder, "close", _close(JobFolder.close)),
        (slot, "_slots", {}),
    ]
    with ExitStack() as stack:
        memory = "/dev/shm"
        place = memory if os.access(memory, os.W_OK) else None
        program.scratch = stack.enter_context(tempfile.TemporaryDirectory(dir=place))
        for owner, name, value in replaced:
            stack.enter_context(patch.object(owner, name, value))
        stack.enter_context(patch.object(code, "compile", compiled, create=True))
        stack.enter_context(
            patch.dict(
                lease.Lease.acquire.__func__.__kwdefaults__,
                {**defaults, "sleep": lambda seconds: None},
            )
        )
        try:
            yield
        finally:
            program.enter(None)
            logging.getLogger("millstream").setLevel(level)


def run_seed(seed: int) -> World:
    """One run; raises `Violation`, which has the log of events in its notes."""
    world = World(seed)
    try:
        world.run()
    except BaseException as error:
        error.add_note(f"seed {seed}\n" + "\n".join(world.log))
        raise
    return world


__all__ = ["RATES", "Violation", "World", "run_seed", "simulated"]
