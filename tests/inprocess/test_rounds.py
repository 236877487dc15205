"""Epochs in rounds: what is seen at once, what waits for the checkpoint, and what a failure in between costs."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import msgspec
import pytest

import millstream.state
from millstream.api.error_policy import ErrorPolicy
from millstream.api.functions import SourceFunction
from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.checkpoint.manifest import list_epochs
from millstream.common.restart_strategy import RestartStrategies
from millstream.common.serialization import Encoder
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.file.sink import FileSink
from millstream.connectors.source_function import SourceFunctionSource
from millstream.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RuntimeExecutionMode,
    SinkFunction,
)
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import StateLost, UserFunctionError
from millstream.graph.operators import CollectOp
from millstream.runtime.driver.local import run_epoch
from millstream.runtime.driver.plan_file import (
    EpochPlan,
    LaterRound,
    bytes_of,
    planned,
    read_plan,
    replayable,
    write_plan,
)
from millstream.runtime.driver.replay import replay_epoch
from millstream.runtime.driver.rounds import Rounds, can_have_rounds, longest_round
from millstream.runtime.operators.watching import Watcher
from millstream.runtime.task.slot import close_run
from millstream.runtime.wire.ranges import Round, SplitRange, SubtaskRanges, round_of
from millstream.runtime.wire.reports import SplitProgress
from tests.replaying import folder_of, job_of
from tests.support import environment
from tests.waiting import until

_numbers = itertools.count()
_there: dict[int, int] = {}
_seen: dict[int, list] = {}
_fails: dict[int, int] = {}

NEVER = 3_600_000
"""So long, in milliseconds, that no test sees the checkpoint that is due then."""


class Given(Source):
    """So many numbers as the test has said."""

    def __init__(self, number):
        self.number = number

    def boundedness(self):
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, parallelism):
        return _Splits(self.number)

    def create_reader(self):
        return _Reader()


class _Splits(SplitEnumerator):
    def __init__(self, number):
        self._number = number

    def discover(self):
        return ["only"]

    def available(self, split, position):
        return _there[self._number]


class _Reader(SourceReader):
    def read(self, split, start, end):
        return range(start, end)


class See(SinkFunction):
    def __init__(self, number):
        self.number = number

    def invoke(self, value, context):
        _seen[self.number].append(value)


class Fail(MapFunction):
    """Fails at a number, so often as the test has said."""

    def __init__(self, number, at):
        self.number, self.at = number, at

    def map(self, value):
        if value == self.at and _fails[self.number] > 0:
            _fails[self.number] -= 1
            raise ValueError("as it was told to")
        return value


class Count(KeyedProcessFunction):
    def open(self, ctx):
        self.count = ctx.get_state(ValueStateDescriptor("count"))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.count.value()


class CountTo(SourceFunction):
    def __init__(self, end):
        self.end = end

    def run(self, ctx):
        for number in range(self.end):
            ctx.collect(number)

    def cancel(self):
        pass


def restarted(env):
    """Have the job started again at once, five times."""
    strategy = RestartStrategies.fixed_delay_restart(5, 0)
    for key, value in strategy.to_configuration().to_dict().items():
        env.get_configuration().set_string(key, value)
    return env


class World:
    """A job that counts numbers by their last digit, in epochs that end when they are asked to."""

    def __init__(self, folder, *, fails_at=None, fails=1, parallelism=2, **options):
        self.number = next(_numbers)
        _there[self.number], _seen[self.number], _fails[self.number] = 0, [], fails
        self.collected: list = []
        self.out = folder / "out"
        env = environment(
            parallelism, execution__checkpointing__dir=folder / "checkpoints", **options
        )
        self.env = env.enable_checkpointing(NEVER)
        restarted(env)
        numbers = env.from_source(
            Given(self.number), WatermarkStrategy.no_watermarks(), "numbers"
        ).uid("numbers")
        counts = (
            numbers.map(Fail(self.number, fails_at))
            .key_by(lambda n: n % 10)
            .process(Count())
            .uid("count")
        )
        counts.add_sink(See(self.number))
        counts._sink("collected", CollectOp(self.collected.extend))
        counts.map(str).sink_to(
            FileSink.for_row_format(str(self.out), Encoder.simple_string_encoder()).build()
        )

    def start(self):
        self.client = self.env.execute_async("job")
        return self

    def give(self, upto):
        """Have the job read numbers, and wait until it has."""
        _there[self.number] = upto
        until(lambda: len(_seen[self.number]) >= upto or self.over)
        return self

    def stop(self, folder):
        """Stop with a savepoint; its path."""
        return self.client.stop_with_savepoint(False, str(folder)).result()

    @property
    def over(self):
        return is_over(self.client)

    @property
    def seen(self):
        return _seen[self.number]

    @property
    def written(self):
        """What readers of the folder see."""
        files = [f for f in self.out.rglob("*") if f.is_file() and not f.name.startswith(".")]
        return Counter(line for file in files for line in file.read_text().splitlines())


def is_over(client):
    return client.get_job_status().result().is_terminal_state()


def counts(upto):
    """What the job gives for that many numbers."""
    given = Counter()
    result = []
    for n in range(upto):
        given[n % 10] += 1
        result.append((n % 10, given[n % 10]))
    return Counter(result)


def as_text(results):
    return Counter({str(one): times for one, times in results.items()})


def test_results_come_before_the_checkpoint_and_exactly_once_ones_with_it(tmp_path):
    world = World(tmp_path).start()
    for upto in (7, 20, 50):
        world.give(upto)
        assert Counter(world.seen) == counts(upto)
    assert not world.collected
    assert not world.written
    assert list_epochs(folder_of(tmp_path / "checkpoints")) == []
    path = world.stop(tmp_path / "savepoint")
    assert Counter(world.collected) == counts(50)
    assert world.written == as_text(counts(50))
    frame = millstream.state.read_pandas(path, "count", "count", allow_pickle=True)
    assert dict(zip(frame["key"], frame["value"], strict=True)) == dict.fromkeys(range(10), 5)


def test_a_job_goes_on_from_a_savepoint_taken_between_two_rounds(tmp_path):
    world = World(tmp_path).start().give(13)
    first = world.client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    assert world.written == as_text(counts(13))
    world.give(25)
    world.client.cancel().result()
    assert world.written == as_text(counts(13))
    again = World(tmp_path / "again", execution__state_recovery__path=first)
    again.start()
    _there[again.number] = 30
    until(lambda: len(again.seen) == 17)
    again.stop(tmp_path / "last")
    assert as_text(counts(13)) + again.written == as_text(counts(30))


def test_a_failure_in_a_later_round_repeats_the_epoch(tmp_path):
    world = World(tmp_path, fails_at=33, fails=2).start().give(10)
    world.client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    world.give(25)
    _there[world.number] = 60
    # Three times what came after the checkpoint, for it failed twice.
    until(lambda: counts(60) <= Counter(world.seen))
    assert Counter(world.seen) > counts(60)
    world.stop(tmp_path / "last")
    assert Counter(world.collected) == counts(60)
    assert world.written == as_text(counts(60))
    assert world.client.get_metrics().restarts == 2


def test_what_an_epoch_repeats_is_counted_once(tmp_path):
    world = World(tmp_path, fails_at=33, fails=2).start().give(10)
    world.client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    world.give(25)
    _there[world.number] = 60
    until(lambda: counts(60) <= Counter(world.seen))
    world.stop(tmp_path / "last")
    metrics = world.client.get_metrics()
    assert metrics.restarts == 2
    assert metrics.records == 60
    (sources,) = (v for v in metrics.vertices.values() if "numbers" in v.operators)
    assert sum(sources.num_records_in) == 60
    assert sum(part.records_in for part in sources.operators["numbers"]) == 60


def test_bad_records_of_an_epoch_that_is_repeated_are_not_more_than_they_are(tmp_path):
    number = next(_numbers)
    _there[number], _seen[number], _fails[number] = 0, [], 2
    env = restarted(environment().enable_checkpointing(NEVER))
    numbers = env.from_source(Given(number), WatermarkStrategy.no_watermarks(), "numbers")
    # One of a hundred is borne, and one of a hundred is bad.
    divided = numbers.map(lambda n: (1 // (n - 3), n)[1]).uid("divide")
    divided = divided.on_error(ErrorPolicy.skip(max_share=0.01))
    divided.map(Fail(number, 70)).add_sink(See(number))
    client = env.execute_async("bad")
    for upto in (60, 100):
        _there[number] = upto
        until(lambda: _seen[number][-1:] == [_there[number] - 1] or is_over(client))
    client.stop_with_savepoint(True, str(tmp_path)).result()
    metrics = client.get_metrics()
    assert (metrics.restarts, metrics.bad_records) == (2, {"divide": (1, 100)})


def test_a_failure_in_a_later_round_closes_the_files_of_all_subtasks(tmp_path):
    world = World(tmp_path, fails_at=33).start().give(25)
    _there[world.number] = 60
    until(lambda: counts(60) <= Counter(world.seen))
    # Of each subtask one, of the attempt that runs.
    hidden = [file for file in world.out.rglob(".*") if file.is_file()]
    assert len(hidden) == 2
    world.client.cancel().result()
    assert not [file for file in world.out.rglob("*") if file.is_file()]


def test_a_source_that_waits_for_a_commit_gets_one():
    """A full buffer makes room when there is a checkpoint, which nobody would wait an hour for."""
    number = next(_numbers)
    _seen[number] = []
    env = environment().enable_checkpointing(NEVER)
    source = SourceFunctionSource(CountTo(1000), buffer_size=100)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "count").add_sink(See(number))
    env.execute("full")
    assert _seen[number] == list(range(1000))


def test_a_job_that_fails_for_good_in_a_later_round_says_why(tmp_path):
    world = World(tmp_path, fails_at=12, fails=100).start().give(10)
    _there[world.number] = 20
    with pytest.raises(UserFunctionError, match="as it was told to"):
        world.client.get_job_execution_result().result()
    assert not world.written


def test_an_epoch_is_replayed_with_all_its_rounds(tmp_path):
    world = World(tmp_path).start().give(10)
    world.client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    world.give(20).give(30)
    world.client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    folder = folder_of(tmp_path / "checkpoints")
    epoch = replayable(folder)[-1]
    plan = read_plan(folder, epoch - 1)
    assert plan is not None
    assert len(plan.later) >= 2
    job = job_of(lambda: World(tmp_path / "other").env.execute("job"))
    replayed = replay_epoch(job, folder, epoch, Watcher())
    assert replayed.error is None
    assert replayed.completed
    assert not replayed.differences
    assert not replayed.counts
    assert {change.key: change.after for change in replayed.changes if change.state == "count"} == (
        dict.fromkeys(range(10), 3)
    )
    world.client.cancel().result()


def test_the_plan_of_an_epoch_of_many_rounds_is_written_in_parts(tmp_path):
    storage = folder_of(tmp_path)
    part = SplitRange(0, SplitProgress("numbers", "only", 0, 2, False, 0, {}), ["x" * 100_000] * 2)
    work, sizes = [SubtaskRanges(3, 0, (part,), False)], []
    first = planned(work, {3: "numbers"})
    held = bytes_of(first)
    plan = EpochPlan(
        token="now",
        epoch=7,
        base=6,
        job_id="",
        at=0,
        first=False,
        strict=True,
        operators={},
        work=first,
    )
    write_plan(storage, plan)
    for at in range(300):
        more = planned(work, {3: "numbers"}, held)
        held += bytes_of(more)
        plan = msgspec.structs.replace(plan, later=[*plan.later, LaterRound(at, more)])
        write_plan(storage, plan)
        sizes.append(max(file.stat().st_size for file in tmp_path.rglob("_plan*")))
    assert held < 1 << 20
    assert max(sizes) < 1.1 * (1 << 20)
    assert read_plan(storage, 6) == plan
    assert sum(p.left_out for later in plan.later for w in later.work for p in w.ranges) > 200
    # What another attempt writes is not mixed with this.
    for upto in (0, 64):
        again = msgspec.structs.replace(plan, token="again", later=plan.later[:upto])
        write_plan(storage, again)
        assert read_plan(storage, 6) == again


def test_epochs_end_when_they_are_due(tmp_path):
    world = World(tmp_path, millstream__epoch__interval="10 ms")
    world.env.enable_checkpointing(300)
    world.start()
    for upto in itertools.count(5, 5):
        world.give(upto)
        if world.client.get_metrics().checkpoints >= 3:
            break
    metrics = world.client.get_metrics()
    assert metrics.checkpoint_log.completed >= 3
    # Rounds are not checkpoints.
    assert metrics.checkpoint_log.completed < upto // 5
    # What is in the file, if nothing more comes, is all that came.
    until(lambda: world.written == as_text(counts(upto)))
    world.client.cancel().result()


def test_what_was_lost_with_a_process_is_not_made_up(tmp_path):
    """The next round of an epoch, in a process that has not run the one before."""
    job = job_of(lambda: World(tmp_path).env.execute("job"))
    spec = job.spec(
        str(tmp_path / "state"), job_id=job.id, durable=False, first_epoch=0, base_epoch=None
    )
    (source,) = job.split_sources
    work = [
        SubtaskRanges(source.vertex, subtask, (), False, round=Round(0, last=False))
        for subtask in range(source.parallelism)
    ]
    _there[0] = 0
    run_epoch(spec, 0, work)
    again = [replace(part, round=Round(1, last=False)) for part in work]
    run_epoch(spec, 0, again)
    with pytest.raises(StateLost):
        run_epoch(spec, 0, again)
    with pytest.raises(StateLost):
        run_epoch(spec, 0, [replace(part, round=Round(2)) for part in work])
    close_run(spec.run_id)


def test_who_tries_a_failed_round_again_hears_what_it_failed_with(tmp_path):
    """Spark starts a task anew, in another process, and shows what the last attempt raised."""
    number = next(_numbers)
    _fails[number] = 1

    def program():
        env = environment(1)
        numbers = env.from_source(Given(number), WatermarkStrategy.no_watermarks(), "numbers")
        numbers.map(Fail(number, 3)).print()
        env.execute("job")

    job = job_of(program)
    state = str(tmp_path / "state")
    spec = job.spec(state, job_id=job.id, durable=False, first_epoch=0, base_epoch=None)
    (source,) = job.split_sources

    def work(start, end, of_epoch):
        progress = SplitProgress(source.uid, "only", start, end, False, 0, {})
        ranges = (SplitRange(0, progress),)
        return [SubtaskRanges(source.vertex, 0, ranges, False, round=of_epoch)]

    run_epoch(spec, 0, work(0, 2, Round(0, last=False)))
    for _ in range(2):
        with pytest.raises(UserFunctionError, match="as it was told to"):
            run_epoch(spec, 0, work(2, 5, Round(1, last=False)))
    close_run(spec.run_id)


# -- which jobs, and when ------------------------------------------------------------------------------------


def job_with(interval=10_000, mode=None, build=None, **options):
    def program():
        env = environment(1, **options)
        if interval is not None:
            env.enable_checkpointing(interval)
        if mode is not None:
            env.set_runtime_mode(mode)
        source = Given(0) if mode is None else None
        stream = (
            env.from_collection([1])
            if source is None
            else env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        )
        (build or (lambda stream: stream.print()))(stream)
        env.execute("job")

    return job_of(program)


def loop(stream):
    stream.close_with(stream.filter(lambda n: False))
    stream.print()


def test_jobs_with_long_epochs_have_rounds():
    assert can_have_rounds(job_with())
    assert can_have_rounds(job_with(1500))
    assert can_have_rounds(job_with(execution__checkpointing__mode="AT_LEAST_ONCE"))


@pytest.mark.parametrize(
    "options",
    [
        {"interval": 1000},
        {"interval": None},
        {"millstream__epoch__interval": "10 s"},
        {"millstream__epoch__records": 100},
        {"execution__checkpointing__mode": "AT_MOST_ONCE"},
        {"restart_strategy__type": "none"},
        {"mode": RuntimeExecutionMode.BATCH},
        {"build": lambda stream: loop(stream.iterate())},
    ],
    ids=lambda options: next(iter(options)),
)
def test_other_jobs_have_not(options):
    assert not can_have_rounds(job_with(**options))


@pytest.mark.parametrize(
    ("interval", "length", "longest"),
    [(10_000, "1 s", 10.0), (1_800_000, "1 s", 60.0), (1_800_000, "5 min", 300.0)],
)
def test_no_round_is_so_long_that_processes_seem_idle(interval, length, longest):
    job = job_with(interval, millstream__epoch__interval=length)
    assert longest_round(job.settings) == longest


class TestRounds:
    @pytest.fixture
    def now(self):
        return [100.0]

    @pytest.fixture
    def rounds(self, now):
        return Rounds(10.0, lambda: now[0])

    @staticmethod
    def next(rounds, *, ended=False, last=False, takes=0.0):
        work = [SubtaskRanges(1, 0, (), ended)]
        return round_of(rounds.begin(work, last=last, takes=takes))

    def test_an_epoch_ends_when_its_time_is_over(self, rounds, now):
        assert not rounds.open
        for number in range(10):
            assert self.next(rounds) == Round(number, last=False)
            assert rounds.open
            assert not rounds.due
            now[0] += 1.0
        assert rounds.due
        assert self.next(rounds) == Round(10, last=True)
        rounds.reset()
        assert not rounds.open
        assert self.next(rounds) == Round(0, last=False)

    def test_a_round_that_will_take_long_is_the_last_before_it_is_late(self, rounds, now):
        self.next(rounds)
        now[0] += 8.9
        assert not self.next(rounds, takes=2.0).last
        now[0] += 0.2
        assert self.next(rounds, takes=2.0).last

    def test_the_end_of_the_input_ends_it(self, rounds):
        self.next(rounds)
        assert self.next(rounds, ended=True).last

    def test_it_ends_when_it_is_told_to(self, rounds):
        self.next(rounds)
        assert self.next(rounds, last=True).last

    def test_one_that_nothing_more_comes_for_ends_early(self, now):
        rounds = Rounds(3600.0, lambda: now[0])
        self.next(rounds)
        now[0] += 59
        assert not rounds.due
        now[0] += 2
        assert rounds.due

    def test_without_an_interval_there_is_one(self, now):
        assert self.next(Rounds(None, lambda: now[0])) == Round(0, last=True)

    def test_counts_are_added_up(self, rounds):
        rounds.count({"a": [1, 2], "b": [3]})
        assert rounds.count({"a": [10, 20]}) == {"a": [11, 22], "b": [3]}
