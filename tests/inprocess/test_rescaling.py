"""Rescaling a running job: exact results whatever its state, its exchanges and the moment; what is refused; and what a
driver that dies in the middle leaves to the next one."""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter

import pytest

from millstream.api.functions import MapFunction
from millstream.api.source import SplitEnumerator
from millstream.common.restart_strategy import RestartStrategies
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.datagen import DataGeneratorSource
from millstream.datastream.functions import SourceFunction
from millstream.errors import InvalidArgument, JobError, UnsupportedOperation
from millstream.graph.operators import CollectOp
from millstream.runtime.driver import rescale
from millstream.runtime.driver.epochs import EpochDriver
from tests.compat.programs import start, wait_for
from tests.crashes import (
    COUNT,
    EACH_ONCE,
    ByEpoch,
    ByName,
    Files,
    Numbers,
    Seen,
    dying_at,
    run,
)
from tests.crashes import environment as with_checkpoints
from tests.inprocess.test_control import At, answer_to, command, file_request
from tests.inprocess.test_control import start as live
from tests.inprocess.test_iteration import expected as expected_rounds
from tests.inprocess.test_iteration import rounds
from tests.inprocess.test_rescale import without_rules
from tests.rescaling import rescaling_at
from tests.support import environment
from tests.waiting import until

# -- results -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def uninterrupted():
    out: list[object] = []
    client = start(3000, out, 2)
    wait_for(out, 3000)
    client.cancel().result(60)
    return without_rules(out)


@pytest.mark.parametrize("places", [{3: 4, 20: 1, 40: 3}, {1: 3}, {2: 1, 3: 4, 4: 2, 5: 3, 6: 1}])
def test_every_kind_of_state(uninterrupted, places):
    out: list[object] = []
    with rescaling_at(places) as asked:
        client = start(3000, out, 2)
        wait_for(out, 3000)
        client.cancel().result(60)
    assert [future.result(0).after for future in asked] == list(places.values())
    assert without_rules(out) == uninterrupted
    assert len(out) == 4 * 3000


def split_by_hand(env):
    stream = env.from_source(Numbers(400), WatermarkStrategy.no_watermarks(), "numbers")
    return stream.uid("numbers")


EXCHANGES = {
    "forward": lambda s: s.forward(),
    "rebalance": lambda s: s.rebalance(),
    "rescale": lambda s: s.rescale(),
    "shuffle": lambda s: s.shuffle(),
    "broadcast": lambda s: s.broadcast(),
    "global": lambda s: s.global_(),
    "custom": lambda s: s.partition_custom(lambda key, count: key % count, lambda n: n),
    "hash": lambda s: s.key_by(lambda n: n % 7),
}


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_every_exchange(exchange):
    out: list[int] = []
    env = environment(2, 20)
    stream = EXCHANGES[exchange](split_by_hand(env)).map(lambda n: n)
    if exchange == "broadcast":
        # Each record comes once to each subtask, of which there are more and less.
        stream = stream.key_by(lambda n: n).process(Once()).uid("once")
    stream._sink("out", CollectOp(out.extend))
    with rescaling_at({4: 4, 8: 1, 12: 3}) as asked:
        env.execute("job")
    assert [future.result(0).after for future in asked] == [4, 1, 3]
    assert Counter(out) == Counter(range(400))


class Once(Seen):
    """Gives what it gets for the first time."""

    def process_element(self, value, ctx):
        if not self.seen.contains(value):
            self.seen.put(value, True)
            yield value


def test_a_loop():
    out: list[object] = []
    env = environment(2, 5)
    numbers = env.from_source(Numbers(60), WatermarkStrategy.no_watermarks(), "numbers")
    steps = rounds(numbers.uid("numbers").map(lambda n: (n, n % 7)))
    steps._sink("out", CollectOp(out.extend))
    with rescaling_at({2: 4, 5: 1, 9: 3, 14: 2}) as asked:
        env.execute("job")
    assert [future.result(0).after for future in asked] == [4, 1, 3, 2]
    assert Counter(out) == expected_rounds(60)


class Told(SourceFunction):
    """Gives what the test tells it to: only the driver ever has these records."""

    go = threading.Semaphore(0)

    def run(self, ctx):
        for n in range(30):
            Told.go.acquire()
            ctx.collect(n)

    def cancel(self):
        for _ in range(30):
            Told.go.release()


def test_what_only_the_driver_has_is_kept():
    """The function of a source goes on: it is neither called again, nor is anything that it gave lost."""
    out: list[int] = []
    env = environment(2)
    env.add_source(Told()).key_by(lambda n: n % 5).process(Seen())._sink(
        "out", CollectOp(out.extend)
    )
    client = env.execute_async("job")
    for n, wanted in enumerate((4, 1, 3)):
        Told.go.release(5)
        until(lambda n=n: len(out) == 10 * n + 5)
        future = client.rescale(wanted)
        Told.go.release(5)
        assert future.result(20).after == wanted
        until(lambda n=n: len(out) == 10 * n + 10)
    client.get_job_execution_result().result(20)
    assert sorted(out) == list(range(30))


def test_figures_go_on():
    env = environment(2, 20)
    split_by_hand(env).map(lambda n: n)._sink("out", CollectOp(lambda records: None))
    with rescaling_at({6: 3}):
        client = env.execute_async("job")
        client.get_job_execution_result().result(60)
    metrics = client.get_metrics()
    assert metrics.records == 400
    assert {len(vertex.subtasks) for vertex in metrics.vertices.values()} == {3}


# -- what it says ------------------------------------------------------------------------------------------------


def test_from_the_command_line(tmp_path):
    records: list[object] = []
    client = live(tmp_path, [], records)
    until(lambda: len(records) > 100)
    done = command("rescale", "live", "-p", "4", folder=tmp_path)
    assert done.exit_code == 0, done.output
    # The driver, which is in this process, says where it goes on from.
    assert "\nRescaled job live: from 2 to 4, from checkpoint " in f"\n{done.output}"
    assert "s without an epoch" in done.output
    words = ("live", "-p", "1", "--savepointPath", str(tmp_path / "sp"))
    done = command("rescale", *words, folder=tmp_path)
    assert done.exit_code == 0, done.output
    assert "from 4 to 1" in done.output
    assert "Savepoint completed. Path: " in done.output
    assert len(list((tmp_path / "sp").iterdir())) == 1
    client.cancel().result(20)


def test_more_than_the_maximum_is_refused_before_anything_stops(tmp_path):
    records: list[object] = []
    client = live(tmp_path, [], records)
    until(lambda: records)
    done = command("rescale", "live", "-p", "129", folder=tmp_path)
    assert done.exit_code == 1
    assert "maximum parallelism is 128" in done.output
    with pytest.raises(InvalidArgument, match="maximum parallelism is 128"):
        client.rescale(129)
    client.cancel().result(20)


def test_nothing_changes_where_the_program_has_set_everything(monkeypatch):
    begun = []
    begin = EpochDriver.begin
    monkeypatch.setattr(EpochDriver, "begin", lambda self: (begun.append(1), begin(self))[1])
    env = environment(2, 20)
    stream = env.from_source(Numbers(400), WatermarkStrategy.no_watermarks(), "numbers")
    stream = stream.set_parallelism(1).map(lambda n: n).name("own").set_parallelism(2)
    stream._sink("out", CollectOp(lambda records: None), like_input=True)
    with rescaling_at({3: 4}) as asked:
        env.execute("job")
    assert asked[0].result(0).unchanged == ("Source: numbers", "own", "out")
    assert begun == [1]
    assert str(asked[0].result(0)).startswith("nothing has changed: Source: numbers, own")


def test_a_job_of_one_epoch_cannot_be_rescaled():
    release = threading.Event()
    env = environment(2)
    env.from_collection([1, 2])._sink("out", CollectOp(lambda records: release.wait(20)))
    client = env.execute_async("job")
    with pytest.raises(UnsupportedOperation, match="single epoch"):
        client.rescale(2)
    release.set()
    client.get_job_execution_result().result(20)


def test_a_job_that_has_ended_cannot_be_rescaled():
    env = environment(2, 20)
    env.from_collection([1, 2]).print()
    client = env.execute_async("job")
    client.get_job_execution_result().result(20)
    with pytest.raises(JobError, match="is not running"):
        client.rescale(2)


def test_an_end_in_between():
    env = environment(2, 20)
    split_by_hand(env).map(lambda n: n)._sink("out", CollectOp(lambda records: None))
    client = env.execute_async("job")
    answers = []
    run_ = client._run
    until(lambda: run_._driver is not None)
    driver = run_._driver
    original = driver.epoch

    # The last epoch of the job is the one in which it is asked for.
    def epoch(*given):
        outcome = original(*given)
        if outcome.value == "ended":
            answers.append(driver.rescales.ask(3))
        return outcome

    driver.epoch = epoch
    client.get_job_execution_result().result(60)
    if answers:
        with pytest.raises(JobError, match="ended before it was rescaled"):
            answers[0].result(0)


# -- when it cannot be -------------------------------------------------------------------------------------------


class NotSoMany(MapFunction):
    """Opens in two subtasks and not in more."""

    def open(self, runtime_context):
        if runtime_context.get_number_of_parallel_subtasks() > 2:
            raise ValueError("there are two connections only")

    def map(self, value):
        return value


def test_a_job_that_cannot_be_opened_goes_on_as_it_was(tmp_path):
    out: list[int] = []
    env = with_checkpoints(tmp_path, restart__strategy_type="disable")
    stream = env.from_source(Numbers(400), WatermarkStrategy.no_watermarks(), "numbers")
    stream = stream.uid("numbers").map(NotSoMany()).uid("map").key_by(lambda n: n % 7)
    stream.process(Seen()).uid("seen")._sink("out", CollectOp(out.extend))
    with rescaling_at({4: 3, 9: 1}) as asked:
        env.execute("job")
    with pytest.raises(JobError, match=r"cannot run at 3, and goes on at 2(.|\n)*two connections"):
        asked[0].result(0)
    assert asked[1].result(0).after == 1
    assert sorted(out) == list(range(400))


# -- at any moment -----------------------------------------------------------------------------------------------

PLACES = [
    "restore",
    "source read",
    "before manifest",
    "after manifest",
    "after commit",
    "cleaning up",
]


@pytest.mark.parametrize("place", PLACES)
def test_it_may_be_asked_for_at_any_moment(tmp_path, monkeypatch, place):
    windows, records = [], []
    tickets: list[str] = []
    At(
        monkeypatch,
        place,
        1 if place == "restore" else 2,
        lambda: tickets.append(file_request(tmp_path, "rescale", parallelism=4)),
    )
    client = live(tmp_path, windows, records)
    until(lambda: tickets)
    answer = answer_to(tmp_path, tickets[0])
    assert answer.error is None
    assert (answer.rescaled.before, answer.rescaled.after) == (2, 4)
    done = command("stop", "-d", "live", folder=tmp_path)
    assert done.exit_code == 0, done.output
    client.get_job_execution_result().result(20)
    assert sum(count for _, count in windows) == len(records) > 0


def test_several_at_once_one_after_the_other(tmp_path):
    records: list[object] = []
    client = live(tmp_path, [], records)
    until(lambda: len(records) > 100)
    futures = [client.rescale(n) for n in (4, 1, 3, 3)]
    results = [future.result(30) for future in futures]
    assert [(r.before, r.after) for r in results] == [(2, 4), (4, 1), (1, 3), (3, 3)]
    assert results[3].unchanged
    client.cancel().result(20)


def test_beside_a_savepoint(tmp_path, monkeypatch):
    """A savepoint that is being copied has its files, whatever the job does meanwhile."""
    records: list[object] = []
    copying, go_on = threading.Event(), threading.Event()
    At(monkeypatch, "savepoint", 1, lambda: (copying.set(), go_on.wait(30)))
    client = live(tmp_path, [], records)
    until(lambda: len(records) > 100)
    saved = client.trigger_savepoint()
    assert copying.wait(20)
    assert client.rescale(3).result(30).after == 3
    before = len(records)
    until(lambda: len(records) > before + 200)
    go_on.set()
    path = saved.result(20)
    client.cancel().result(20)
    more: list[tuple[str, int]] = []
    again = live(tmp_path, [], more, path=path, name="another")
    until(lambda: len(more) > 100)
    again.cancel().result(20)
    assert min(more)[1] > 0


class FailsTwice(MapFunction):
    """Fails at one record, twice. Functions are copied, classes of modules are not."""

    left = 0

    def map(self, value):
        if value == 150 and FailsTwice.left:
            FailsTwice.left -= 1
            raise ValueError("not yet")
        return value


def test_while_it_restarts(tmp_path):
    FailsTwice.left = 2
    out: list[int] = []
    env = with_checkpoints(tmp_path)
    patient = RestartStrategies.fixed_delay_restart(5, 500).to_configuration()
    env.configure(patient)
    stream = env.from_source(Numbers(400), WatermarkStrategy.no_watermarks(), "numbers")
    stream = stream.uid("numbers").map(FailsTwice()).uid("map").key_by(lambda n: n % 7)
    stream.process(Seen()).uid("seen")._sink("out", CollectOp(out.extend))
    client = env.execute_async("job")
    until(lambda: FailsTwice.left == 1)
    # The job waits for its second attempt, which is to be at 4; it fails there once more, and is back at 2.
    future = client.rescale(4)
    client.get_job_execution_result().result(60)
    assert sorted(out) == list(range(400))
    assert future.done()


# -- a driver that dies ------------------------------------------------------------------------------------------

DEATHS = ["rescaling", "restore", "source read", "before manifest", "after manifest", "rescaled"]


@pytest.mark.parametrize("place", DEATHS)
@pytest.mark.parametrize("outlet", [Files, ByName, ByEpoch])
@pytest.mark.parametrize("back", [2, 3])
def test_a_driver_that_dies_while_it_rescales(tmp_path, place, outlet, back):
    """Two epochs, then the rescale: whatever comes after that is the third time of its place, or the second."""
    out = outlet(tmp_path)
    times = {"rescaling": 1, "rescaled": 1, "restore": 2}.get(place, 3)
    with (
        rescaling_at({3: 4}),
        dying_at(place, times),
        pytest.raises(JobError, match="Died"),
    ):
        run(tmp_path, out.sink())
    assert out.read().total() < COUNT
    out.take()
    run(tmp_path, out.sink(), parallelism=back)
    assert out.read() == EACH_ONCE


def wish(folder, name="job"):
    path = folder / "checkpoints" / name / rescale.WISH
    return json.loads(path.read_text()) if path.exists() else None


def die_rescaled(folder, outlet, to=4):
    """A job that was rescaled, and whose driver has died later."""
    with (
        rescaling_at({2: to}),
        dying_at("after manifest", 4),
        pytest.raises(JobError, match="Died"),
    ):
        run(folder, outlet.sink())


def parallelism_of(folder, monkeypatch, outlet, **options):
    """What the job goes on at."""
    seen = []
    original = rescale.Rescales.__init__

    def init(self, job, storage, own):
        seen.append(job.graph.parallelism)
        original(self, job, storage, own)

    monkeypatch.setattr(rescale.Rescales, "__init__", init)
    run(folder, outlet.sink(), **options)
    return seen[0]


def test_a_rescaled_job_goes_on_at_what_it_was_rescaled_to(tmp_path, monkeypatch, caplog):
    outlet = Files(tmp_path)
    die_rescaled(tmp_path, outlet)
    assert wish(tmp_path) == {"from": 2, "to": 4}
    with caplog.at_level(logging.INFO, "millstream.job"):
        assert parallelism_of(tmp_path, monkeypatch, outlet) == 4
    assert "the job goes on at 4, to which it was rescaled" in caplog.text
    assert outlet.read() == EACH_ONCE
    assert wish(tmp_path) is None


def test_a_program_that_says_otherwise_wins(tmp_path, monkeypatch, caplog):
    outlet = Files(tmp_path)
    die_rescaled(tmp_path, outlet)
    with caplog.at_level(logging.WARNING, "millstream.job"):
        assert parallelism_of(tmp_path, monkeypatch, outlet, parallelism=3) == 3
    assert "was rescaled from 2 to 4, which is forgotten" in caplog.text
    assert outlet.read() == EACH_ONCE


def test_a_job_that_begins_anew_begins_as_the_program_says(tmp_path, monkeypatch):
    outlet = Files(tmp_path)
    die_rescaled(tmp_path, outlet)
    options = {"millstream_recovery_resume": "never"}
    assert parallelism_of(tmp_path, monkeypatch, outlet, **options) == 2


def test_a_rescale_back_to_what_the_program_says_is_no_wish(tmp_path):
    outlet = Files(tmp_path)
    with (
        rescaling_at({2: 4, 4: 2}),
        dying_at("after manifest", 6),
        pytest.raises(JobError, match="Died"),
    ):
        run(tmp_path, outlet.sink(), millstream_epoch_records=5)
    assert wish(tmp_path) is None
    run(tmp_path, outlet.sink())
    assert outlet.read() == EACH_ONCE


def test_generators_keep_their_splits():
    """A source that has a split for each subtask keeps those that it began with."""
    out: list[int] = []
    env = environment(3, 30)
    source = DataGeneratorSource(lambda n: n, count=600)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")._sink(
        "out", CollectOp(out.extend)
    )
    with rescaling_at({3: 5, 7: 1}):
        env.execute("job")
    assert sorted(out) == list(range(600))


def test_enumerators_are_not_made_again(monkeypatch):
    closed = []
    monkeypatch.setattr(SplitEnumerator, "close", lambda self: closed.append(1))
    env = environment(2, 20)
    split_by_hand(env)._sink("out", CollectOp(lambda records: None))
    with rescaling_at({3: 4}):
        env.execute("job")
    assert closed == [1]
