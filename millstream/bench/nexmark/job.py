"""One run of a query on Millstream, and the JSON line that tells of it.

Usage: python -m millstream.bench.nexmark.job --query q5 --records 1000000 [--parallelism 2] [-D key=value]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from millstream.api.sink import Committer, Sink, SinkWriter, WriterContext
from millstream.bench.nexmark.catalogue import QUERIES
from millstream.bench.nexmark.clock import MarkedBlocks, mark_end, timed
from millstream.bench.nexmark.generator import BLOCK, Generator
from millstream.bench.nexmark.model import Event
from millstream.bench.nexmark.tally import Tally
from millstream.common import Configuration, Duration, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.connectors.datagen import DataGeneratorSource
from millstream.datastream import DataStream, StreamExecutionEnvironment

__all__ = ["TallySink", "events", "main", "results"]

# A bounded job runs as one epoch, with no checkpoint on the way, unless its source has a rate: this one is too high to
# ever wait for.
_UNLIMITED = 1e12
CHECKPOINT_MS = 2_000


class EventTime(TimestampAssigner):
    """The time that every kind of event has."""

    def extract_timestamp(self, value: Event, record_timestamp: int) -> int:
        return value.time


def events(
    env: StreamExecutionEnvironment, blocks: Any, count: int, rate: float | None = _UNLIMITED
) -> DataStream[Event]:
    """The first `count` events; `blocks` makes them by fifty. Watermarks are four seconds behind, as in Nexmark."""
    source = DataGeneratorSource(blocks, count // BLOCK, rate)
    made = env.from_source(source, WatermarkStrategy.no_watermarks(), "nexmark").uid("nexmark")
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(4))
    stream: DataStream[Event] = made.flat_map(lambda block: block)
    return stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(EventTime()))


def results(query: str, stream: DataStream[Event]) -> DataStream[Any]:
    """The results of a query."""
    found: DataStream[Any] = import_module(f"millstream.bench.nexmark.queries.{query}").query(
        stream
    )
    return found


class TallySink(Sink):
    """An exactly-once sink: the tally of a subtask's epoch travels to the driver as the committable."""

    def __init__(self, query: str, folder: str) -> None:
        self.query, self.folder = query, folder

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A tally for one epoch."""
        return _Writer(Tally(self.query))

    def create_committer(self) -> Committer:
        """Writes the tallies of an epoch into the folder."""
        return _Committer(self.folder)

    def tally(self) -> Tally:
        """What has been committed."""
        files = Path(self.folder).glob("*.tally")
        return Tally(self.query).merge([path.read_bytes() for path in files])


class _Writer(SinkWriter):
    def __init__(self, tally: Tally) -> None:
        self._tally, self._add = tally, tally.add

    def write(self, value: Any) -> None:
        self._add(value)

    def prepare_commit(self) -> bytes:
        return self._tally.encode()


class _Committer(Committer):
    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def commit(self, epoch: int, committables: Sequence[bytes]) -> None:
        # A second commit of an epoch writes the same files.
        for index, body in enumerate(committables):
            (self._folder / f"{epoch}-{index}.tally").write_bytes(body)
        (self._folder / f"{epoch}.checkpoint").touch()
        mark_end(str(self._folder))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--query", choices=list(QUERIES), required=True)
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-D", dest="options", action="append", default=[], metavar="KEY=VALUE")
    opts = parser.parse_args(arguments)
    count = opts.records // BLOCK * BLOCK
    configuration = Configuration.from_dict(dict(o.split("=", 1) for o in opts.options))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(opts.parallelism)
    env.enable_checkpointing(CHECKPOINT_MS)
    # Events are made anew and nobody changes them, so that nothing need be copied between chained functions.
    env.get_config().enable_object_reuse()
    with tempfile.TemporaryDirectory() as folder:
        sink = TallySink(opts.query, folder)
        blocks = MarkedBlocks(Generator(opts.seed), folder)
        results(opts.query, events(env, blocks, count)).sink_to(sink)
        env.execute(f"nexmark {opts.query}")
        found = sink.tally()
        line = {"system": "millstream", "query": opts.query, **timed(folder, count)}
        line |= {"hash": found.digest(), "results": found.results}
        line["checkpoints"] = len(list(Path(folder).glob("*.checkpoint")))
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
