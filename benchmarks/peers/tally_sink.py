"""Millstream's sink for both workloads: exactly-once, one tally per subtask and epoch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workload import WARM_UP, Tally, mark_start, merge, report

from millstream.datastream.connectors.base import Committer, Sink, SinkWriter, WriterContext

# A bounded job runs as one epoch, hence with no checkpoint on the way, unless its source has a
# rate: so the benchmarks give it one, too high to ever wait for.
UNLIMITED = 1e12


class TallyWriter(SinkWriter):
    """The tally of one epoch travels to the driver as the committable."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self.add = tally.add

    def write(self, value: object) -> None:
        self.add(value)  # type: ignore[arg-type]

    def prepare_commit(self) -> bytes | None:
        return self._tally.encode()


class TallyCommitter(Committer):
    """Runs on the driver once the checkpoint of the epoch is complete."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)

    def commit(self, epoch: int, committables: Sequence[bytes]) -> None:
        for index, body in enumerate(committables):
            (self.directory / f"{epoch}-{index}.json").write_bytes(body)
        (self.directory / f"{epoch}.checkpoint").touch()


class TallySink(Sink):
    def __init__(self, directory: str, kind: type[Tally] = Tally) -> None:
        self.directory, self.kind = directory, kind

    def create_writer(self, context: WriterContext) -> SinkWriter:
        if context.epoch == 0:
            mark_start(self.directory)
        return TallyWriter(self.kind())

    def create_committer(self) -> Committer:
        return TallyCommitter(self.directory)


def report_epochs(
    system: str, records: int, directory: str, kind: type[Tally] = Tally, **more: Any
) -> None:
    """The JSON line, with the number of checkpoints completed.

    The sink's clock needs epochs to choose from; with fewer than five the whole run is reported.
    """
    completed = len(list(Path(directory).glob("*.checkpoint")))
    share = WARM_UP if completed >= 5 else None
    report(system, records, merge(directory, kind), share, checkpoints=completed, **more)
