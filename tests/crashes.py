"""Ends of drivers at named places, and the systems behind sinks, as whoever reads them sees them.

The tests of crash points draw on both: a job dies at a place (`dying_at`), somebody does something, the job is started
again in one way or another, and what has come out is each record once.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from millstream.api.sink import Committer, Sink, SinkWriter
from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.common.configuration import Configuration
from millstream.common.serialization import Encoder
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.file.bucket_assigner import BucketAssigner
from millstream.connectors.file.sink import FileSink
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.state import MapStateDescriptor
from millstream.runtime.driver import epochs, outputs, rescale
from millstream.runtime.driver.epochs import EpochDriver

COUNT = 60
EPOCH = 20


class Died(BaseException):
    """The driver is gone."""


@contextmanager
def dying_at(place: str, times: int = 1) -> Iterator[None]:
    """A driver that comes to a place for the n-th time ends there: its threads and its lease go, and nothing else
    happens."""
    left = itertools.count(1)

    def reached(here: str) -> None:
        if here == place and next(left) == times:
            raise Died(place)

    def close(driver: EpochDriver, **how: Any) -> None:
        driver.rescales.close()
        driver.savepoints.close()
        driver.planner.close()
        if driver.folder.lease is not None:
            driver.folder.lease.release()

    with (
        patch.object(epochs, "reached", reached),
        patch.object(outputs, "reached", reached),
        patch.object(rescale, "reached", reached),
        patch.object(EpochDriver, "close", close),
    ):
        yield


class Numbers(Source):
    """0..count-1 in two splits."""

    def __init__(self, count: int = COUNT, *, unbounded: bool = False) -> None:
        self.count = count
        self.unbounded = unbounded

    def boundedness(self) -> Boundedness:
        kind = Boundedness
        return kind.CONTINUOUS_UNBOUNDED if self.unbounded else kind.BOUNDED

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        return _Halves(self)

    def create_reader(self) -> SourceReader:
        return _Reader()


class _Halves(SplitEnumerator):
    def __init__(self, source: Numbers) -> None:
        self._half = source.count // 2
        self._unbounded = source.unbounded

    def discover(self):
        return ["even", "odd"]

    def available(self, split, position):
        return self._half

    def finished(self, split, position):
        return not self._unbounded and position == self._half


class _Reader(SourceReader):
    def read(self, split, start, end):
        return [2 * n + (split == "odd") for n in range(start, end)]


# -- outside systems -----------------------------------------------------------------------------------------


class Outlet:
    """A system that a sink writes to. `read` is what has ever come out of it, also what was taken away."""

    # True if what was pre-committed has to be committed to be seen.
    two_phases = True

    def sink(self) -> Sink:
        raise NotImplementedError

    def read(self) -> Counter:
        raise NotImplementedError

    def take(self) -> None:
        """A consumer takes away what is there."""


class Files(Outlet):
    """A folder that is written by the file sink."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.taken = folder / "out", folder / "taken"
        self.taken.mkdir()

    def sink(self) -> Sink:
        builder = FileSink.for_row_format(self.folder, Encoder.simple_string_encoder())
        return builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()

    def visible(self) -> list[Path]:
        return [path for path in self.folder.glob("*") if not path.name.startswith(".")]

    def read(self) -> Counter:
        files = [*self.visible(), *self.taken.iterdir()]
        return Counter(int(line) for file in files for line in file.read_text().splitlines())

    def take(self) -> None:
        for path in self.visible():
            shutil.move(path, self.taken / f"{len(os.listdir(self.taken))}")


class Removed(Files):
    """The same, with a consumer that removes what it has read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._seen: Counter = Counter()

    def read(self) -> Counter:
        return self._seen + super().read()

    def take(self) -> None:
        self._seen = self.read()
        for path in self.visible():
            path.unlink()


class ByName(Outlet):
    """A two-phase sink of one's own whose committables have names; a second commit finds the name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "by-name"
        (self.folder / "staged").mkdir(parents=True)
        (self.folder / "committed").mkdir()

    def sink(self) -> Sink:
        return TwoPhases(str(self.folder), _CommitByName)

    def read(self) -> Counter:
        found: Counter = Counter()
        for file in (self.folder / "committed").iterdir():
            found.update(number for part in json.loads(file.read_text()) for number in part)
        return found


class ByEpoch(ByName):
    """A two-phase sink of one's own that remembers which epochs of which jobs it has committed, and nothing else."""

    def sink(self) -> Sink:
        return TwoPhases(str(self.folder), _CommitByEpoch)


class BySink(ByName):
    """The same for several sinks of a job, which it tells apart by their uids."""

    def sink(self) -> Sink:
        return TwoPhases(str(self.folder), _CommitBySink)


class TwoPhases(Sink):
    def __init__(self, folder: str, committer: Callable[[str], Committer]) -> None:
        self.folder = folder
        self.committer = committer

    def create_writer(self, context):
        return _Stage(self.folder, context)

    def create_committer(self):
        return self.committer(self.folder)


class _Stage(SinkWriter):
    def __init__(self, folder, context):
        self._name = f"{context.epoch}-{context.subtask}-{context.attempt}-{context.sink}"
        self._folder = folder
        self._records = []

    def write(self, value):
        self._records.append(value)

    def prepare_commit(self):
        if not self._records:
            return None
        Path(self._folder, "staged", self._name).write_text(json.dumps(self._records))
        return self._name.encode()


class _Commits(Committer):
    def __init__(self, folder):
        self._folder = Path(folder)

    def staged(self, name):
        return json.loads((self._folder / "staged" / name.decode()).read_text())

    def save(self, name, parts):
        # At once, for whoever looks while the job runs.
        written = self._folder / f"writing-{name}"
        written.write_text(json.dumps(parts))
        written.rename(self._folder / "committed" / name)


class _CommitByName(_Commits):
    def commit(self, epoch, committables):
        for name in committables:
            self.save(name.decode(), [self.staged(name)])


class _CommitByEpoch(_Commits):
    def commit(self, epoch, committables):
        name = f"{self.job_id}-{epoch}"
        if not (self._folder / "committed" / name).exists():
            self.save(name, [self.staged(one) for one in committables])


class _CommitBySink(_Commits):
    def commit(self, epoch, committables):
        name = f"{self.job_id}-{self.sink}-{epoch}"
        if not (self._folder / "committed" / name).exists():
            self.save(name, [self.staged(one) for one in committables])


class FailsOnce(Sink):
    """Any sink, whose n-th commit fails before it has done anything, or after it has done all."""

    def __init__(self, sink: Sink, *, at: int, after: bool) -> None:
        self.sink, self.at, self.after = sink, at, after
        self.guarantee = sink.guarantee

    def create_writer(self, context):
        return self.sink.create_writer(context)

    def create_committer(self):
        return _FailsOnce(self.sink.create_committer(), self.at, after=self.after)


class _FailsOnce(Committer):
    def __init__(self, committer, at, *, after):
        self._committer, self._left, self._after = committer, at, after

    def commit(self, epoch, committables):
        self._through(self._committer.commit, epoch, committables)

    def commit_again(self, epoch, committables):
        self._through(self._committer.commit_again, epoch, committables)

    def _through(self, commit, epoch, committables):
        self._committer.job_id, self._committer.sink = self.job_id, self.sink
        self._left -= 1
        if self._left == 0 and not self._after:
            raise ConnectionError("nothing done")
        commit(epoch, committables)
        if self._left == 0:
            raise ConnectionError("done, but the reply is lost")

    def close(self):
        self._committer.close()


# -- programs ------------------------------------------------------------------------------------------------


class Seen(KeyedProcessFunction):
    """Gives what it gets, and refuses what it has seen before: the job has state, and rescales it."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen"))

    def process_element(self, value, ctx):
        assert not self.seen.contains(value)
        self.seen.put(value, True)
        yield value


def environment(
    folder: Path, *, parallelism: int = 2, target: str = "in-process", **options: Any
) -> StreamExecutionEnvironment:
    """An environment with checkpoints; other options with `__` for a hyphen and `_` for a dot."""
    configuration = Configuration()
    configuration.set_string("execution.target", target)
    configuration.set_string("execution.checkpointing.dir", str(folder / "checkpoints"))
    configuration.set_string("execution.checkpointing.num-retained", "3")
    configuration.set_string("millstream.epoch.records", str(EPOCH))
    for key, value in options.items():
        configuration.set_string(key.replace("__", "-").replace("_", "."), str(value))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism)
    return env


def run(
    folder: Path,
    sink: Sink,
    *,
    name: str = "job",
    uid: str | None = "sink",
    added: bool = False,
    **options: Any,
) -> None:
    """Run the program; raises what it fails with. `added`: with one operator more before the sink."""
    env = environment(folder, **options)
    numbers = env.from_source(Numbers(), WatermarkStrategy.no_watermarks(), "numbers")
    stream = numbers.uid("numbers").key_by(lambda n: n % 7).process(Seen()).uid("each")
    if added:
        stream = stream.map(lambda n: n)
    made = stream.sink_to(sink).name("out")
    if uid is not None:
        made.uid(uid)
    env.execute(name)


def latest(folder: Path, name: str = "job") -> str:
    """The path of a job's last checkpoint."""
    found = [
        int(p.name.removeprefix("chk-")) for p in (folder / "checkpoints" / name).glob("chk-*")
    ]
    return str(folder / "checkpoints" / name / f"chk-{max(found)}")


EACH_ONCE = Counter(range(COUNT))
