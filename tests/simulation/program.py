"""The checker job: unique ids, keyed counters with three kinds of state, operator state, a side output, five sinks, and
records for the driver. There are several programs of it, as somebody would change it.

Functions, sources and sinks are shipped to the tasks as in a real job; what they have to do with the outside goes
through `outside`, the world of the run at hand.
"""

from __future__ import annotations

import functools
from typing import Any

from millstream.api.output_tag import OutputTag
from millstream.api.sink import Committer, DeliveryGuarantee, Sink, SinkWriter
from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.common.configuration import Configuration
from millstream.common.serialization import Encoder
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.file.bucket_assigner import BucketAssigner
from millstream.connectors.file.commit import FileCommitter
from millstream.connectors.file.sink import FileSink
from millstream.datastream import (
    CheckpointedFunction,
    KeyedProcessFunction,
    MapFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from millstream.graph.operators import CollectOp
from millstream.runtime.driver.job import Job

KEYS = 5
# What becomes of the sink without a uid.
VARIANTS = ("as it was", "operator added", "renamed", "removed")
SIDE = OutputTag("side")

outside: Any = None
# Where worlds have their real files.
scratch = ""


def enter(world: Any) -> None:
    """Make a world the one that programs see."""
    global outside
    outside = world


def key_of(record: tuple[str, int]) -> str:
    return f"k{(record[1] * 7 + len(record[0])) % KEYS}"


class Ids(Source):
    """Splits of (split, 0), (split, 1), ..."""

    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        return _Splits()

    def create_reader(self) -> SourceReader:
        return _Reader()


class _Splits(SplitEnumerator):
    def discover(self):
        return list(outside.counts)

    def available(self, split, position):
        return outside.counts[split]

    def finished(self, split, position):
        return position == outside.counts[split]


class _Reader(SourceReader):
    def read(self, split, start, end):
        for n in range(start, end):
            outside.point("source read")
            yield split, n


class Counting(MapFunction, CheckpointedFunction):
    """How many records each subtask has seen, in an attribute that operator state makes durable."""

    def initialize_state(self, context):
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("n"))
        self.parts = list(self.state.get())

    def snapshot_state(self, context):
        outside.point("snapshot")
        self.state.update(self.parts)

    def map(self, value):
        if self.parts and len(self.parts) > 3:
            self.parts[0] += 1
        else:
            self.parts.append(1)
        return value


class Tally(KeyedProcessFunction):
    """Value, map and list state of each key."""

    def open(self, ctx):
        self.later = ctx
        if not outside.lazy:
            self.ask()

    def ask(self):
        ctx, self.later = self.later, None
        self.count = ctx.get_state(ValueStateDescriptor("count"))
        self.splits = ctx.get_map_state(MapStateDescriptor("splits"))
        self.ids = ctx.get_list_state(ListStateDescriptor("ids"))

    def process_element(self, value, ctx):
        outside.point("process")
        if self.later is not None:
            self.ask()
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        split, n = value
        self.splits.put(split, (self.splits.get(split) or 0) + 1)
        self.ids.add(f"{split}{n}")
        if n % 3 == 0:
            yield SIDE, (split, n)
        yield split, n, ctx.get_current_key(), count


class Outgoing(Sink):
    """A sink into the world's outside system of that name."""

    def __init__(self, system: str, guarantee: DeliveryGuarantee, *, audited: bool) -> None:
        self.system = system
        self.guarantee = guarantee
        self.audited = audited

    def create_writer(self, context):
        return _Writer(self, context)

    def create_committer(self):
        return _Committer(self.system)


class _Writer(SinkWriter):
    def __init__(self, sink, context):
        self._sink = sink
        self._context = context
        self._records = []

    def write(self, value):
        self._records.append(value)

    def prepare_commit(self):
        if not self._records:
            return None
        outside.point("prepare")
        sink = self._sink
        return outside.prepare(
            sink.system, self._context, self._records, audited=sink.audited
        ).encode()

    def abort(self):
        return


class _Committer(Committer):
    def __init__(self, system):
        self._system = system

    def commit(self, epoch, committables):
        outside.commit(self._system, self.job_id, epoch, [one.decode() for one in committables])


class Folder(FileSink):
    """The file sink, into the folder of the world at hand."""

    def __init__(self) -> None:
        builder = FileSink.for_row_format("/", Encoder.simple_string_encoder())
        made = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
        for name in ("encoder", "assigner", "policy", "config", "compaction"):
            setattr(self, name, getattr(made, name))

    path = property(lambda self: outside.files)
    mark = property(lambda self: outside.mark)

    def create_committer(self):
        return _FolderCommitter(self.path, self.mark)


class _FolderCommitter(FileCommitter):
    def _commit(self, epoch, committables):
        outside.before_commit()
        gone = super()._commit(epoch, committables)
        if committables:
            outside.after_commit()
        return gone

    def close(self):
        # The machine of a driver that is gone removes nothing.
        if not outside.disk.crashed:
            super().close()


def collected(records: list) -> None:
    outside.collect(records)


@functools.cache
def checker_job(parallelism: int, keyed_parallelism: int, variant: str = VARIANTS[0]) -> Job:
    """The job; its settings are replaced for each run."""
    configuration = Configuration()
    configuration.set_string("execution.target", "in-process")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(parallelism)
    env.set_max_parallelism(16)
    ids = env.from_source(Ids(), WatermarkStrategy.no_watermarks(), "ids").uid("ids")
    counted = ids.map(Counting()).uid("counting")
    tally = counted.key_by(key_of).process(Tally()).uid("tally")
    tally.set_parallelism(keyed_parallelism)
    once, audited = DeliveryGuarantee.EXACTLY_ONCE, variant != "removed"

    def sink(stream, sink, uid):
        made = stream.sink_to(sink)
        made.set_parallelism(keyed_parallelism)
        if uid is not None:
            made.uid(uid)

    sink(tally, Outgoing("transactions", once, audited=audited), "transactions")
    upserts = Outgoing("upserts", DeliveryGuarantee.EFFECTIVELY_ONCE, audited=False)
    sink(tally, upserts, "upserts")
    side = tally.get_side_output(SIDE)
    sink(side, Outgoing("ledger", once, audited=False), "ledger")
    sink(tally, Folder(), "files")
    if audited:
        before = tally
        if variant == "operator added":
            before = tally.map(lambda one: one).set_parallelism(keyed_parallelism)
        audit = Outgoing("audit", once, audited=False)
        sink(before, audit, "audit" if variant == "renamed" else None)
    tally._sink("collected", CollectOp(collected), like_input=True)
    return env._take_job("checker")
