"""A program with keys, states, windows and sinks of every kind, whose savepoints are kept too (see `programs.py`).

What Millstream writes by name, it writes here: rows and windows and times as keys, as values of states without a
declared type, in windows' contents, in operator and broadcast state, in what is fed back, in a generator of watermarks.

`python -m tests.compat.kinds <label>` writes a savepoint for each backend; they are committed once and never changed.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import sys
import tarfile
import tempfile
import uuid
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from millstream.api.error_policy import DeadLetter
from millstream.api.evictor import TimestampedValue
from millstream.api.source import Timestamped, Watermark
from millstream.common import Duration, Encoder, Instant, Row, RowKind, Time, Types
from millstream.common.configuration import Configuration
from millstream.common.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkStrategy,
)
from millstream.datastream import (
    AggregateFunction,
    BroadcastProcessFunction,
    CheckpointedFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    TimeDomain,
)
from millstream.datastream.connectors.file_system import FileSink
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.datastream.window import (
    CountEvictor,
    CountTrigger,
    CountWindow,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeWindow,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
    WindowAssigner,
)
from millstream.graph.operators import CollectOp
from tests.compat.programs import Numbers
from tests.waiting import until

SAVEPOINTS = Path(__file__).with_name("savepoints_of_kinds")
BACKENDS = ("hashmap", "lmdb")
RESULTS = "results.txt"
COUNT, STEP = 240, 20
RULES = MapStateDescriptor("rules")


class Colour(enum.Enum):
    RED = 1


class Place(NamedTuple):
    name: str
    number: int


@dataclasses.dataclass(frozen=True)
class Account:
    name: str
    since: dt.date = dt.date(2026, 1, 1)


class Slice(Window):
    """A window of the program's own class."""

    def __init__(self, number: int) -> None:
        self.number = number

    def max_timestamp(self) -> int:
        return (self.number + 1) * 1000 + 99

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slice) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)


class Span(TimeWindow):
    """A window of a class that is made of one of Millstream's."""


KEYS: list[Any] = [
    "text",
    1,
    (2, "x"),
    3.0,
    b"bytes",
    None,
    dt.date(2026, 1, 6),
    dt.datetime(2026, 1, 7, 12, tzinfo=dt.UTC),
    Row(name="row", n=8),
    Row.of_kind(RowKind.DELETE, "row", dt.date(2026, 1, 9)),
    Account("x"),
    Colour.RED,
    frozenset({("a", 1)}),
    [dt.date(2026, 1, 13), None],
    {"a": Row(n=1)},
    decimal.Decimal("1.5"),
    uuid.UUID(int=16),
    Place("here", 17),
    True,
    TimeWindow(0, 19),
    CountWindow(20),
    GlobalWindow.get(),
    Instant(22, 1),
    (Time.seconds(23), Duration.of_millis(23)),
    RowKind.UPDATE_AFTER,
    Timestamped("a", 25),
    complex(2, 6),
    Row,
    (Account("y"), Row(at=Instant(28, 0), of=(TimeDomain.EVENT_TIME, Colour.RED))),
    TimestampedValue(Row("z"), 29),
]


def values(n: int) -> list[Any]:
    """What a state without a declared type may hold."""
    return [
        Row(n=n, inner=Row(n)),
        Row.of_kind(RowKind.UPDATE_BEFORE, n),
        RowKind.DELETE,
        TimeWindow(n, n + 1),
        CountWindow(n),
        GlobalWindow.get(),
        Instant(n, 0),
        Time.seconds(n),
        Duration.of_millis(n),
        Timestamped(n, n),
        TimestampedValue(n, n),
        Watermark(n),
        TriggerResult.FIRE,
        TimeDomain.EVENT_TIME,
        DeadLetter(str(n), "operator", 0, "source", "split", n, b""),
        Account(str(n)),
        Colour.RED,
        Place("p", n),
        {Row(n): {Instant(n, 1)}},
    ]


def key_of(n: int) -> Any:
    """Each key's numbers come from one split."""
    return KEYS[n % len(KEYS)]


class Times(TimestampAssigner):
    def extract_timestamp(self, value: int, record_timestamp: int) -> int:
        return value * STEP


class Generator(WatermarkGenerator):
    """Keeps a row and an instant, which are then in every checkpoint."""

    def __init__(self) -> None:
        self.latest = Row(at=Instant(0, 0))

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        self.latest = Row(at=Instant.of_epoch_milli(event_timestamp))
        output.emit_watermark(self.latest.at.to_epoch_milli() - 1)


class Rows(AggregateFunction):
    """Sums up in a row."""

    def create_accumulator(self) -> Row:
        return Row(n=0, last=Instant(0, 0))

    def add(self, value: int, accumulator: Row) -> Row:
        return Row(n=accumulator.n + value, last=Instant(value, 0))

    def get_result(self, accumulator: Row) -> Row:
        return accumulator

    def merge(self, acc_a: Row, acc_b: Row) -> Row:
        last = max(acc_a.last, acc_b.last, key=lambda one: one.seconds)
        return Row(n=acc_a.n + acc_b.n, last=last)


class States(KeyedProcessFunction):
    """Every kind of keyed state, with a declared type and without, and timers."""

    def open(self, ctx: Any) -> None:
        row = Types.ROW_NAMED(["n", "at"], [Types.LONG(), Types.INSTANT()])
        kept = StateTtlConfig.new_builder(Time.days(100_000)).build()
        timed = ValueStateDescriptor("timed")
        timed.enable_time_to_live(kept)
        self.any = ctx.get_state(ValueStateDescriptor("any"))
        self.row = ctx.get_state(ValueStateDescriptor("row", row))
        self.timed = ctx.get_state(timed)
        self.list = ctx.get_list_state(ListStateDescriptor("list"))
        self.rows = ctx.get_list_state(ListStateDescriptor("rows", row))
        self.map = ctx.get_map_state(MapStateDescriptor("map"))
        self.typed = ctx.get_map_state(MapStateDescriptor("typed", Types.INSTANT(), row))
        self.latest = ctx.get_reducing_state(ReducingStateDescriptor("latest", lambda a, b: b))
        self.sum = ctx.get_aggregating_state(AggregatingStateDescriptor("sum", Rows()))

    def process_element(self, value: int, ctx: Any) -> Any:
        before = self.any.value(), self.row.value(), self.timed.value(), self.latest.get()
        old = list(self.list.get()), list(self.rows.get()), self.sum.get()
        maps = sorted(map(repr, self.map.items())), sorted(map(repr, self.typed.items()))
        row = Row(n=value, at=Instant(value, 0))
        self.any.update(values(value))
        self.row.update(row)
        self.timed.update(Row(timed=value))
        self.list.update([*old[0], Row(value)][-2:])
        self.rows.update([*old[1], row][-2:])
        self.map.put(key_of(value), TimeWindow(value, value + 1))
        self.map.put(Row(value % 4), Instant(value, 0))
        self.typed.put(Instant(value % 3, 0), row)
        self.latest.add(Row.of_kind(RowKind.UPDATE_AFTER, value))
        self.sum.add(value)
        ctx.timer_service().register_event_time_timer(value * STEP + 3000)
        ctx.timer_service().register_processing_time_timer(2**55)
        yield "element", value, ctx.get_current_key(), before, old, maps

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer", timestamp, ctx.get_current_key()


class Numbering(MapFunction, CheckpointedFunction):
    """Keeps rows in operator state, split and for all."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.counts = store.get_list_state(ListStateDescriptor("counts"))
        self.union = store.get_union_list_state(ListStateDescriptor("union"))
        self.count = sum(row.n for row, _ in self.counts.get())
        self.found = sorted(map(repr, self.union.get()))

    def snapshot_state(self, context: Any) -> None:
        self.counts.update([(Row(n=self.count), TimeWindow(0, 1))])
        self.union.update([Instant(1, 2), Row(RowKind.DELETE)])

    def map(self, value: int) -> int:
        self.count += 1
        return value


class Rules(BroadcastProcessFunction):
    def process_element(self, value: int, ctx: Any) -> Any:
        found = ctx.get_broadcast_state(RULES)
        yield value, found.get(Row(1)), found.get(Instant(0, 0))

    def process_broadcast_element(self, value: int, ctx: Any) -> None:
        ctx.get_broadcast_state(RULES).put(Row(value), TimeWindow(value, 5))
        ctx.get_broadcast_state(RULES).put(Instant(value, 0), Row(value=value))


class Slices(WindowAssigner):
    """Windows of the program's own class, and some of a class derived from Millstream's."""

    def assign_windows(self, element: int, timestamp: int, context: Any) -> list[Any]:
        start = timestamp // 1000 * 1000
        return [Slice(timestamp // 1000), Span(start, start + 1000)]

    def get_default_trigger(self, env: Any) -> Any:
        return EventTimeTrigger()

    def get_window_serializer(self) -> Any:
        return None

    def is_event_time(self) -> bool:
        return True


class Show(ProcessWindowFunction):
    """A window and what is in it; state of the window and of the key beside it."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        seen = context.window_state().get_state(ValueStateDescriptor("seen"))
        rows = context.global_state().get_state(ValueStateDescriptor("rows"))
        before = seen.value(), rows.value()
        seen.update(Row(window=context.window()))
        rows.update(Row(last=context.window(), at=Instant(1, 1)))
        window = context.window()
        shown = window if not isinstance(window, Slice) else window.number
        yield key, repr(shown), sorted(map(repr, elements)), *map(_text, before)


class Bounds(ProcessWindowFunction):
    """A window and what is in it, kept as compactly as can be."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, repr(context.window()), sorted(map(repr, elements))


class Cleared(Bounds):
    """The same, with a `clear` of its own, so that the general operator runs it."""

    def clear(self, context: Any) -> None:
        pass


def _text(value: Any) -> str:
    """Windows of the program's own class have no text of their own."""
    return "Slice" if "Slice" in repr(value) else repr(value)


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield left, right


class Again(FlatMapFunction):
    """A row goes round and round."""

    def flat_map(self, value: Row) -> Any:
        if value.left:
            yield Row(n=value.n, left=value.left - 1, at=Instant(value.n, 0))


def _windowed(keyed: Any) -> dict[str, Any]:
    """Windows of every implementation."""
    tumbling, sliding = TumblingEventTimeWindows.of, SlidingEventTimeWindows.of
    session = EventTimeSessionWindows.with_gap
    purging = PurgingTrigger.of(CountTrigger.of(4))
    return {
        "panes": keyed.window(tumbling(1000)).aggregate(Rows(), Bounds()),
        "shared": keyed.window(sliding(2000, 1000)).aggregate(Rows(), Bounds()),
        "reduced": keyed.window(tumbling(1000)).reduce(max, Bounds()),
        "rows": keyed.window(tumbling(1000)).process(Bounds()),
        "sessions": keyed.window(session(800)).aggregate(Rows(), Bounds()),
        "general": keyed.window(tumbling(1000)).trigger(CountTrigger.of(3)).process(Show()),
        "merging": keyed.window(session(800)).process(Cleared()),
        "evicted": keyed.window(tumbling(1000)).evictor(CountEvictor.of(2)).process(Show()),
        "own": keyed.window(Slices()).process(Show()),
        "global": keyed.window(GlobalWindows.create()).trigger(purging).process(Show()),
        "counted": keyed.count_window(4).process(Bounds()),
        "clock": keyed.window(TumblingProcessingTimeWindows.of(Time.days(99_999))).process(Show()),
    }


def start(out: list[Any], parallelism: int, path: Any, backend: str, to: str) -> Any:
    """Run the program; results are appended to `out`, files written to `to`."""
    config = Configuration().set_string("execution.target", "in-process")
    config.set_string("millstream.epoch.records", "60")
    config.set_string("state.backend.type", backend)
    if path is not None:
        config.set_string("execution.state-recovery.path", str(path))
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(parallelism)
    times = WatermarkStrategy.for_generator(Generator).with_timestamp_assigner(Times())
    numbers = env.from_source(Numbers(COUNT), times, "numbers").uid("numbers")
    numbers = numbers.map(Numbering()).uid("numbering")
    keyed = numbers.key_by(key_of)
    streams = {name: one.uid(name) for name, one in _windowed(keyed).items()}
    streams["states"] = keyed.process(States()).uid("states")
    others = numbers.map(lambda n: Row(n=n, of=TimeWindow(n, n + 1))).uid("others")
    joined = keyed.interval_join(others.key_by(lambda row: key_of(row.n)))
    joined = joined.between(Time.milliseconds(-600), Time.milliseconds(600))
    streams["joined"] = joined.process(Pairs()).uid("joined")
    factors = env.from_source(Numbers(2), WatermarkStrategy.no_watermarks(), "factors")
    ruled = numbers.connect(factors.uid("factors").broadcast(RULES))
    streams["ruled"] = ruled.process(Rules()).uid("ruled")
    loop = (
        numbers.map(lambda n: Row(n=n, left=0 if n % 50 else 60, at=Instant(n, 0)))
        .uid("rounds")
        .iterate()
    )
    again = loop.uid("loop").flat_map(Again()).uid("again")
    loop.close_with(again)
    streams["again"] = again
    texts = numbers.map(str).uid("texts")
    texts.sink_to(FileSink.for_row_format(to, Encoder.simple_string_encoder()).build()).uid("files")
    for name, stream in streams.items():
        stream.map(lambda value, name=name: (name, repr(value)))._sink(
            f"to {name}", CollectOp(out.extend)
        )
    return env.execute_async("compatibility of kinds")


def wait_for(client: Any, out: list[Any], count: int) -> None:
    """Until the states have seen so many numbers, and the rules too."""

    def seen() -> bool:
        if client.get_job_status().result(10).name in ("FAILED", "FINISHED"):
            client.get_job_execution_result().result(10)
        return min(_seen(out, "states", "('element'"), _seen(out, "ruled", "(")) >= count

    until(seen, 120, lambda: f"{len(out)} results")


def _seen(out: list[Any], name: str, begin: str) -> int:
    return sum(one == name and value.startswith(begin) for one, value in list(out))


def finish(client: Any, folder: str) -> str:
    """End all input, and so all windows and timers."""
    path: str = client.stop_with_savepoint(True, folder).result(120)
    client.get_job_execution_result().result(60)
    return path


def lines(out: list[Any]) -> Counter[str]:
    """The results, each as a line of text."""
    return Counter(f"{name}\t{value}" for name, value in out)


def written() -> list[str]:
    """The savepoints that are kept: "label-backend"."""
    return sorted(path.name.removesuffix(".tar.gz") for path in SAVEPOINTS.glob("*.tar.gz"))


def unpack(name: str, folder: Path) -> tuple[str, Counter[str]]:
    """The path of a kept savepoint, unpacked, and the results that had come out before it."""
    with tarfile.open(SAVEPOINTS / f"{name}.tar.gz") as archive:
        archive.extractall(
            folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
        )
    return str(folder / "savepoint"), Counter((folder / RESULTS).read_text().splitlines())


def write(label: str, backend: str) -> None:
    """Write a savepoint in the midst of the input, with what has come out before it."""
    with tempfile.TemporaryDirectory() as folder:
        out: list[Any] = []
        client = start(out, 2, None, backend, f"{folder}/files")
        wait_for(client, out, COUNT // 3)
        path = client.stop_with_savepoint(False, folder).result(60)
        client.get_job_execution_result().result(60)
        (Path(folder) / RESULTS).write_text("\n".join(sorted(lines(out).elements())))
        SAVEPOINTS.mkdir(exist_ok=True)
        with tarfile.open(SAVEPOINTS / f"{label}-{backend}.tar.gz", "w:gz") as archive:
            archive.add(path, "savepoint")
            archive.add(f"{folder}/{RESULTS}", RESULTS)


if __name__ == "__main__":
    # Not from here: a class of `__main__` is another one whenever the savepoint is read.
    from tests.compat import kinds

    for kind in BACKENDS:
        kinds.write(sys.argv[1], kind)
