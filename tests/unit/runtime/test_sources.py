"""The driver's view of the sources: what goes into an epoch, and that a replay is the same."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator, SplitPosition
from millstream.errors import SourceError, SourceNotFound
from millstream.runtime.driver.job import JobSettings
from millstream.runtime.driver.planner import EpochPlanner
from millstream.runtime.driver.sources import SourceCoordinator, positions_of
from millstream.runtime.wire.ranges import SourceSpec


class Splits(SplitEnumerator):
    """Splits with lengths that a test changes as it goes; `closed` ones get no more records."""

    def __init__(self, lengths=None, closed=(), exhausted=True):
        self.lengths = dict(lengths or {})
        self.closed = set(closed)
        self.is_exhausted = exhausted
        self.first = {}
        self.committed = []
        self.restored_at = None
        self.was_closed = False

    def discover(self):
        return list(self.lengths)

    def available(self, split, position):
        return self.lengths[split]

    def start(self, split):
        return self.first.get(split, 0)

    def finished(self, split, position):
        return split in self.closed and position == self.lengths[split]

    def exhausted(self):
        return self.is_exhausted

    def commit(self, split, position):
        self.committed.append((split, position))

    def restored(self, positions):
        self.restored_at = positions

    def close(self):
        self.was_closed = True


class FakeSource(Source):
    def __init__(self, splits):
        self.splits = splits

    def boundedness(self):
        return Boundedness.BOUNDED

    def create_enumerator(self, parallelism):
        return self.splits

    def create_reader(self):
        return SourceReader()


def specs_of(splits, parallelism):
    return [
        SourceSpec(
            f"s{number + 1}", number + 1, f"Source: s{number + 1}", FakeSource(one), parallelism
        )
        for number, one in enumerate(splits)
    ]


def coordinate(*splits, parallelism=1, fixed=None, interval=1.0):
    return SourceCoordinator(specs_of(splits, parallelism), interval, fixed=fixed)


def at(numbers):
    """An offset, of the numbers that a manifest holds."""
    return {uid: positions_of(splits) for uid, splits in numbers.items()}


def plain(ranges):
    """Ranges without the backlog, which depends on when one asks."""
    return [
        (
            one.vertex,
            one.subtask,
            [
                (r.channel, r.progress.split, r.progress.start, r.progress.end, r.progress.finished)
                for r in one.ranges
            ],
            one.ended,
        )
        for one in ranges
    ]


# -- admission -------------------------------------------------------------------------------------


def test_a_job_begins_with_no_split_known():
    assert coordinate(Splits({"a": 3}), Splits({"b": 1})).initial() == {"s1": {}, "s2": {}}


def test_a_fixed_number_of_records_is_shared_by_the_splits_that_have_some():
    sources = coordinate(Splits({"a": 100, "b": 0, "c": 100}), fixed=10)
    offset = sources.next(sources.initial())
    assert offset == at({"s1": {"a": 5, "b": 0, "c": 5}})
    assert sources.next(offset) == at({"s1": {"a": 10, "b": 0, "c": 10}})


def test_what_one_split_does_not_need_the_next_gets():
    sources = coordinate(Splits({"a": 2}), Splits({"b": 100}), fixed=10)
    assert sources.next(sources.initial()) == at({"s1": {"a": 2}, "s2": {"b": 8}})


def test_an_epoch_that_flows_reads_what_it_may_still_have():
    sources = coordinate(Splits({"a": 100}), fixed=10)
    sources.let_flow(0.05)
    assert sources.next(sources.initial(), at_most=3) == at({"s1": {"a": 3}})


def test_where_records_flow_a_slow_subtask_is_given_less_than_a_fast_one():
    sources = coordinate(Splits({"a": 10**6}), Splits({"b": 10**6}))
    sources.let_flow(0.05)
    for _ in range(5):
        sources.learn((1, 0), sources._size_of((1, 0)).records, 0.001)
        sources.learn((2, 0), sources._size_of((2, 0)).records, 1.0)
    assert sources.next(sources.initial()) == at({"s1": {"a": 32768}, "s2": {"b": 1}})


def test_every_split_with_records_gets_one_however_small_the_epoch():
    sources = coordinate(Splits({"a": 9, "b": 9, "c": 9}), fixed=1)
    assert sources.next(sources.initial()) == at({"s1": {"a": 1, "b": 1, "c": 1}})


def test_everything_in_one_epoch():
    sources = coordinate(Splits({"a": 10**9}, closed="a"), fixed=1)
    assert sources.next(sources.initial(), everything=True) == at({"s1": {"a": ~(10**9)}})


def test_nothing_to_read_is_no_epoch():
    splits = Splits({"a": 3})
    sources = coordinate(splits)
    offset = sources.next(sources.initial())
    assert sources.next(offset) == offset == at({"s1": {"a": 3}})
    splits.lengths["a"] = 4
    assert sources.next(offset) == at({"s1": {"a": 4}})


def sizes(sources, rate, count, fixed=0.0):
    """How many records go into each of the next epochs if a second is enough for `rate` of them, and each epoch takes
    `fixed` seconds more."""
    result, offset = [], sources.initial()
    for _ in range(count):
        before = offset["s1"]["a"].at if offset["s1"] else 0
        offset = sources.next(offset)
        result.append(offset["s1"]["a"].at - before)
        sources.learn_rate(fixed + result[-1] / rate)
    return result


def test_epochs_grow_with_the_rate_but_not_at_once():
    sources = coordinate(Splits({"a": 10**9}), interval=1.0)
    assert sizes(sources, 1_000_000, 5) == [5_000, 40_000, 320_000, 1_000_000, 1_000_000]


def test_epochs_shrink_when_they_take_too_long():
    sources = coordinate(Splits({"a": 10**9}), interval=1.0)
    # The first two are not held against them: they start workers and compile.
    assert sizes(sources, 2_000, 4) == [5_000, 5_000, 5_000, 2_000]


@pytest.mark.parametrize("fixed", [0.12, 0.15, 3.0])
def test_epochs_do_not_shrink_because_of_what_any_epoch_takes(fixed):
    # As much time for the records as for the rest: smaller epochs would hardly be shorter.
    sources = coordinate(Splits({"a": 10**9}), interval=0.1)
    assert sizes(sources, 500_000, 12, fixed)[-1] == pytest.approx(500_000 * fixed, rel=0.01)


def test_what_any_epoch_takes_is_part_of_the_interval():
    sources = coordinate(Splits({"a": 10**9}), interval=1.0)
    assert sizes(sources, 500_000, 12, fixed=0.2)[-1] == pytest.approx(400_000, rel=0.01)


def test_epochs_grow_again_when_a_slow_time_is_over():
    sources = coordinate(Splits({"a": 10**9}), interval=1.0)
    sizes(sources, 500_000, 12, fixed=0.2)
    assert sizes(sources, 50_000, 20, fixed=0.2)[-1] == pytest.approx(40_000, rel=0.05)
    assert sizes(sources, 500_000, 20, fixed=0.2)[-1] == pytest.approx(400_000, rel=0.05)


def test_epochs_never_shrink_to_nothing():
    sources = coordinate(Splits({"a": 10**9}), interval=1.0)
    assert sizes(sources, 1, 5)[-1] == 1_000


def test_a_small_quick_epoch_does_not_shrink_the_next():
    splits = Splits({"a": 10})
    sources = coordinate(splits, interval=1.0)
    offset = sources.next(sources.initial())
    sources.learn_rate(0.5)
    splits.lengths["a"] = 10**9
    assert sources.next(offset)["s1"]["a"] == SplitPosition(5_010)


def test_a_fixed_size_stays():
    sources = coordinate(Splits({"a": 10**9}), fixed=7)
    assert sizes(sources, 1_000_000, 3) == [7, 7, 7]


# -- splits and their ends -------------------------------------------------------------------------


def test_a_split_found_later_gets_the_next_channel():
    splits = Splits({"b": 2}, exhausted=False)
    sources = coordinate(splits, parallelism=2)
    first = sources.next(sources.initial())
    splits.lengths["a"] = 3
    second = sources.next(first)
    assert list(second["s1"].items()) == [("b", SplitPosition(2)), ("a", SplitPosition(3))]
    assert plain(sources.ranges(first, second)) == [(1, 1, [(1, "a", 0, 3, False)], False)]


def test_splits_go_round_the_subtasks():
    sources = coordinate(Splits(dict.fromkeys("abcde", 1)), parallelism=2)
    ranges = sources.ranges(sources.initial(), sources.next(sources.initial()))
    assert [(one.subtask, [r.channel for r in one.ranges]) for one in ranges] == [
        (0, [0, 2, 4]),
        (1, [1, 3]),
    ]


def test_an_offset_as_a_manifest_holds_it_is_by_uid_with_ended_splits_as_complements():
    one, two = Splits({"a": 5}, closed="a"), Splits({"b": 7})
    job = SimpleNamespace(
        settings=JobSettings(), split_sources=specs_of([one, two], 1), one_epoch=False, batch=False
    )
    planner = EpochPlanner(job, clock=lambda: 0.0)
    planner.rewind({"s2": {"b": 3}, "s1": {"a": 2}, "gone": {"c": 1}})
    assert planner.end_offsets() == {"s1": {"a": 2}, "s2": {"b": 3}}
    planner.plan(threading.Event())
    written = planner.end_offsets()
    assert written == {"s1": {"a": ~5}, "s2": {"b": 7}}
    again = EpochPlanner(job, clock=lambda: 0.0)
    again.rewind(written)
    assert again.offset == {
        "s1": {"a": SplitPosition(5, ended=True)},
        "s2": {"b": SplitPosition(7)},
    }
    assert two.restored_at == {"b": 7}
    assert one.restored_at == {"a": ~5}


def test_the_end_of_a_split_is_part_of_its_position():
    sources = coordinate(Splits({"a": 5}, closed="a"), fixed=3)
    first = sources.next(sources.initial())
    second = sources.next(first)
    assert (first, second) == (at({"s1": {"a": 3}}), at({"s1": {"a": ~5}}))
    assert plain(sources.ranges(first, second)) == [(1, 0, [(0, "a", 3, 5, True)], True)]
    assert sources.next(second) == second


def test_an_end_alone_is_reason_enough_for_an_epoch():
    splits = Splits({"a": 3})
    sources = coordinate(splits)
    first = sources.next(sources.initial())
    splits.closed.add("a")
    second = sources.next(first)
    assert second == at({"s1": {"a": ~3}})
    assert plain(sources.ranges(first, second)) == [(1, 0, [(0, "a", 3, 3, True)], True)]


def test_an_empty_split_ends_at_zero():
    sources = coordinate(Splits({"a": 0}, closed="a"))
    offset = sources.next(sources.initial())
    assert offset == at({"s1": {"a": -1}})
    assert plain(sources.ranges({"s1": {}}, offset)) == [(1, 0, [(0, "a", 0, 0, True)], True)]


def test_the_last_epoch_reaches_every_subtask_of_every_source():
    one, two = Splits({"a": 1}, closed="a"), Splits({"b": 9}, closed="b")
    sources = coordinate(one, two, parallelism=3, fixed=6)
    first = sources.next(sources.initial())
    assert first == at({"s1": {"a": ~1}, "s2": {"b": 5}})
    assert not sources.ended(first)
    second = sources.next(first)
    assert sources.ended(second)
    assert [(r[0], r[1], r[3]) for r in plain(sources.ranges(first, second))] == [
        (node, subtask, True) for node in (1, 2) for subtask in (0, 1, 2)
    ]


def test_not_ended_while_a_split_is_unread_or_more_may_come():
    splits = Splits({"a": 1}, closed="a", exhausted=False)
    sources = coordinate(splits)
    offset = sources.next(sources.initial())
    assert not sources.ended(offset)
    splits.lengths["b"] = 1
    splits.is_exhausted = True
    assert not sources.ended(offset)


def plan_all(sources, news):
    """All epochs of a job; `news` is called when the planner waits for something to read."""

    class Stop(threading.Event):
        waits = 0

        def wait(self, timeout=None):
            self.waits += 1
            assert self.waits < 10, "the job would never end"
            news()
            return False

    settings = JobSettings()
    job = SimpleNamespace(settings=settings, split_sources=sources, one_epoch=False, batch=False)
    planner, epochs, stop = EpochPlanner(job, clock=lambda: 0.0), [], Stop()
    while not epochs or not epochs[-1][0][3]:
        epochs.append(plain(planner.plan(stop)))
        planner.done()
    return epochs


def test_an_end_that_is_known_only_later_ends_the_job():
    """All splits have ended, then the source learns that no more will come."""
    splits = Splits({"a": 1, "b": 2}, closed="ab", exhausted=False)

    def learn():
        splits.is_exhausted = True

    assert plan_all(specs_of([splits], 2), learn) == [
        [(1, 0, [(0, "a", 0, 1, True)], False), (1, 1, [(1, "b", 0, 2, True)], False)],
        [(1, 0, [], True), (1, 1, [], True)],
    ]


@pytest.mark.parametrize("exhausted", [True, False])
def test_a_source_without_any_split_ends(exhausted):
    splits = Splits({}, exhausted=exhausted)

    def learn():
        splits.is_exhausted = True

    assert plan_all(specs_of([splits], 2), learn) == [[(1, 0, [], True), (1, 1, [], True)]]


# -- replay ----------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
    st.integers(1, 7),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_replaying_logged_offsets_gives_equal_ranges(lengths, fixed, parallelism, late):
    """Each record is read once, splits stay on their channel, and a new driver plans the same."""
    names = [f"s{i}" for i in range(len(lengths))]
    early = dict(zip(names, lengths, strict=True))
    held_back = {name: early.pop(name) for name in names[len(names) - min(late, len(names) - 1) :]}
    splits = Splits(early, closed=names, exhausted=not held_back)
    sources = coordinate(splits, parallelism=parallelism, fixed=fixed)
    log, offset = [], sources.initial()
    for _ in range(200):
        end = sources.next(offset)
        if end == offset:
            assert held_back
            name, length = held_back.popitem()
            splits.lengths[name] = length
            splits.is_exhausted = not held_back
            continue
        log.append((offset, end, plain(sources.ranges(offset, end))))
        offset = end
        if sources.ended(offset):
            break
    assert sources.ended(offset)
    assert log[-1][2] != []
    assert [one[3] for *_, ranges in log for one in ranges].count(True) == parallelism

    read = {name: [] for name in splits.lengths}
    channels = {}
    for _, _, ranges in log:
        for _, subtask, parts, _ in ranges:
            for channel, split, start, stop, _ in parts:
                read[split].extend(range(start, stop))
                assert channels.setdefault(split, (channel, subtask)) == (channel, subtask)
    assert read == {name: list(range(length)) for name, length in splits.lengths.items()}

    for start, end, ranges in log:
        again = Splits(splits.lengths, closed=names)
        assert plain(coordinate(again, parallelism=parallelism).ranges(start, end)) == ranges


def test_a_new_driver_tells_the_enumerator_where_it_goes_on():
    splits = Splits({"a": 9})
    coordinate(splits).ranges(at({"s1": {"a": 3}}), at({"s1": {"a": 5}}))
    assert splits.restored_at == {"a": 5}


def test_replay_does_not_depend_on_where_a_split_would_begin_now():
    """A split that begins at "latest" has its beginning in the log."""
    splits = Splits({"a": 120}, exhausted=False)
    splits.first["a"] = 100
    sources = coordinate(splits)
    start = sources.discover(sources.initial())
    end = sources.next(start)
    first = plain(sources.ranges(start, end))
    splits.lengths["a"] = 500
    splits.first["a"] = 500
    assert plain(coordinate(splits).ranges(start, end)) == first


def test_commit_gives_plain_positions():
    splits = Splits({"a": 5, "b": 7}, closed="a")
    sources = coordinate(splits)
    sources.commit(sources.next(sources.initial()))
    assert splits.committed == [("a", 5), ("b", 7)]


def test_close_closes_every_enumerator():
    one, two = Splits({"a": 1}), Splits({"b": 1})
    sources = coordinate(one, two)
    sources.next(sources.initial())
    sources.close()
    assert (one.was_closed, two.was_closed) == (True, True)


# -- errors ----------------------------------------------------------------------------------------


def test_a_source_that_shrinks():
    splits = Splits({"a": 5})
    sources = coordinate(splits)
    offset = sources.next(sources.initial())
    splits.lengths["a"] = 3
    with pytest.raises(SourceError, match="fewer records than were read") as caught:
        sources.next(offset)
    evidence = caught.value.evidence
    assert (evidence["source"], evidence["split"]) == ("Source: s1", "a")
    assert (evidence["position"], evidence["available"]) == (5, 3)
    assert "restore it" in caught.value.hint


def failing(method):
    def fail(*_):
        raise OSError("disk on fire")

    return type("Failing", (Splits,), {method: fail})({"a": 1}, closed="a")


@pytest.mark.parametrize(
    "method", ["discover", "start", "available", "finished", "exhausted", "restored", "fetch"]
)
def test_whatever_an_enumerator_raises_names_the_source(method):
    sources = coordinate(failing(method))
    with pytest.raises(SourceError, match=r"'Source: s1'.*OSError: disk on fire"):
        sources.ranges({"s1": {}}, sources.next(sources.initial()))


def test_a_commit_that_fails_names_the_source():
    sources = coordinate(failing("commit"))
    offset = sources.next(sources.initial())
    with pytest.raises(SourceError, match=r"'Source: s1'.*OSError: disk on fire"):
        sources.commit(offset)


def test_errors_of_our_own_pass_as_they_are():
    class Missing(Splits):
        def discover(self):
            raise SourceNotFound("no such folder", path="/x")

    sources = coordinate(Missing())
    with pytest.raises(SourceNotFound, match="no such folder"):
        sources.next(sources.initial())


# -- what operators are told of splits ---------------------------------------------------------------


def told(coordinator, offset):
    """The splits and ends that an epoch up to `offset` tells operators of."""
    ranges = coordinator.ranges(offset, offset)
    return [r.progress.split for one in ranges for r in one.ranges if r.new], any(
        one.over for one in ranges
    )


def test_an_epoch_that_reads_nothing_tells_nobody_of_splits():
    splits = Splits({"a": 2, "b": 0}, closed=["a", "b"])
    [spec] = specs_of([splits], 1)
    coordinator = SourceCoordinator([replace(spec, timed=True)], 1.0)
    offset = coordinator.discover(coordinator.initial())
    coordinator.empty_ranges(ended=False)
    coordinator.commit(offset)
    assert told(coordinator, offset) == (["a", "b"], False)
    coordinator.commit(offset)
    assert told(coordinator, offset) == ([], False)
    end = coordinator.next(offset, everything=True)
    coordinator.empty_ranges(ended=False)
    coordinator.commit(end)
    assert told(coordinator, end) == ([], True)
    coordinator.commit(end)
    assert told(coordinator, end) == ([], False)


def test_rounds_become_longer_while_there_is_more_to_read():
    splits, now = Splits({"a": 10**9}), [0.0]
    job = SimpleNamespace(
        settings=JobSettings(checkpoint_interval=10.0),
        split_sources=specs_of([splits], 3),
        one_epoch=False,
        batch=False,
    )
    planner = EpochPlanner(job, clock=lambda: now[0])
    planner.in_rounds(1.0, 10.0)
    took = []
    for _ in range(12):
        work = planner.plan(threading.Event())
        assert work is not None
        assert [one.subtask for one in work] == [0, 1, 2]
        start, end = (getattr(work[0].ranges[0].progress, name) for name in ("start", "end"))
        # A hundred thousand records a second, and a tenth of a second for the round itself.
        took.append((end - start) / 100_000 + 0.1)
        now[0] += took[-1]
        planner.round_done()
    assert 9.0 < took[-1] < 11.0
    splits.lengths["a"] = end + 50
    now[0] += 1.0
    planner.plan(threading.Event())
    assert planner.takes == 0.0
    now[0] += 1.0
    planner.round_done()
    now[0] += 1.0
    splits.lengths["a"] = 10**9
    planner.plan(threading.Event())
    assert planner.takes == 1.0
