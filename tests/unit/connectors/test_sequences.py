"""Sources made of numbers: collections, sequences, generators."""

import random

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.api.source import Boundedness
from millstream.connectors.collection import CollectionSource
from millstream.connectors.datagen import DataGeneratorSource, GeneratorSplits, seeded
from millstream.connectors.hybrid_source import HybridSource
from millstream.connectors.number_seq import NumberSequenceSource
from millstream.errors import InvalidArgument, RecordNotSerializable, SourceError
from millstream.runtime.driver.sources import SourceCoordinator
from millstream.runtime.wire.ranges import SourceSpec


def read_in_steps(source, parallelism, step):
    """Everything, read `step` positions at a time, split by split."""
    enumerator = source.create_enumerator(parallelism)
    enumerator.restored({})
    reader = cloudpickle.loads(cloudpickle.dumps(source)).create_reader()
    records = []
    for split in enumerator.discover():
        position = enumerator.start(split)
        while not enumerator.finished(split, position):
            end = min(enumerator.available(split, position), position + step)
            assert end > position
            records.extend(reader.read(split, position, end))
            position = end
    return records


# -- collections ----------------------------------------------------------------------------------


def test_a_collection_keeps_its_order_for_any_cuts():
    assert read_in_steps(CollectionSource(range(10)), 4, 3) == list(range(10))


def test_an_empty_collection_is_finished_at_once():
    enumerator = CollectionSource([]).create_enumerator(1)
    (split,) = enumerator.discover()
    assert enumerator.finished(split, 0)


def test_a_collection_is_copied_deeply():
    record = {"n": 1}
    records = [record]
    source = CollectionSource(records)
    record["n"] = 2
    records.append(record)
    assert read_in_steps(source, 1, 9) == [{"n": 1}]


def test_a_collection_has_one_subtask_and_ends():
    source = CollectionSource("ab")
    assert source.max_parallelism() == 1
    assert source.boundedness() is Boundedness.BOUNDED


def test_a_record_that_cannot_travel_is_named():
    with pytest.raises(RecordNotSerializable) as error:
        CollectionSource([1, (n for n in ()), 3])
    assert error.value.evidence["index"] == 1


def test_a_collection_that_has_become_shorter_is_refused():
    with pytest.raises(SourceError, match="shorter"):
        CollectionSource([1]).create_enumerator(1).available("collection", 2)


# -- sequences ------------------------------------------------------------------------------------


@given(
    start=st.integers(-50, 50),
    count=st.integers(1, 60),
    parallelism=st.integers(1, 9),
    step=st.integers(1, 70),
)
def test_a_sequence_has_every_number_once(start, count, parallelism, step):
    source = NumberSequenceSource(start, start + count - 1)
    assert read_in_steps(source, parallelism, step) == list(range(start, start + count))


@given(count=st.integers(1, 100), parallelism=st.integers(1, 20))
def test_ranges_are_nearly_equal_and_none_is_empty(count, parallelism):
    enumerator = NumberSequenceSource(1, count).create_enumerator(parallelism)
    sizes = [enumerator.available(split, 0) for split in enumerator.discover()]
    assert len(sizes) == min(count, parallelism)
    assert max(sizes) - min(sizes) <= 1


def test_a_sequence_goes_on_with_the_ranges_it_had():
    enumerator = NumberSequenceSource(0, 9).create_enumerator(3)
    enumerator.restored({"0..4": ~5, "5..9": 2})
    assert enumerator.discover() == ["0..4", "5..9"]


def test_a_reader_of_numbers_gives_a_range():
    assert NumberSequenceSource(-3, 3).create_reader().read("-3..3", 1, 3) == range(-2, 0)


def test_a_sequence_that_ends_before_it_starts_is_refused():
    with pytest.raises(InvalidArgument):
        NumberSequenceSource(1, 0)
    with pytest.raises(InvalidArgument):
        NumberSequenceSource(1, 2.5)


# -- generators -----------------------------------------------------------------------------------


@given(count=st.integers(0, 60), parallelism=st.integers(1, 9), step=st.integers(1, 70))
def test_a_generator_makes_every_event_once(count, parallelism, step):
    records = read_in_steps(DataGeneratorSource(str, count=count), parallelism, step)
    assert sorted(map(int, records)) == list(range(count))


def test_splits_of_a_generator_advance_side_by_side():
    source = DataGeneratorSource(int, count=10, splits=2)
    reader = source.create_reader()
    assert list(reader.read("0/2", 1, 3)) == [2, 4]
    assert list(reader.read("1/2", 1, 3)) == [3, 5]
    assert source.create_enumerator(8).discover() == ["0/2", "1/2"]
    assert source.max_parallelism() == 2


def test_a_generator_is_lazy():
    called = []
    records = DataGeneratorSource(called.append).create_reader().read("0/1", 0, 1 << 50)
    assert called == []
    next(iter(records))
    assert called == [0]


def test_without_a_count_there_is_no_end():
    source = DataGeneratorSource(int)
    enumerator = source.create_enumerator(1)
    assert source.boundedness() is Boundedness.CONTINUOUS_UNBOUNDED
    assert enumerator.available("0/1", 1 << 45) >= (1 << 45) + (1 << 40)
    assert not enumerator.finished("0/1", 1 << 45)


def test_a_rate_lets_events_out_in_order():
    now = [100.0]
    enumerator = GeneratorSplits(3, None, 10.0, clock=lambda: now[0])
    enumerator.restored({})
    assert [enumerator.available(f"{i}/3", 0) for i in range(3)] == [0, 0, 0]
    now[0] += 0.5
    assert [enumerator.available(f"{i}/3", 0) for i in range(3)] == [2, 2, 1]
    assert enumerator.available("0/3", 7) == 7


def test_a_rate_stops_at_the_count():
    now = [0.0]
    enumerator = GeneratorSplits(2, 5, 1.0, clock=lambda: now[0])
    enumerator.restored({})
    assert enumerator.available("0/2", 0) == 0
    now[0] = 1000.0
    assert [enumerator.available(f"{i}/2", 0) for i in range(2)] == [3, 2]


def test_after_a_restart_the_rate_counts_from_what_was_made():
    now = [0.0]
    enumerator = GeneratorSplits(4, None, 10.0, clock=lambda: now[0])
    enumerator.restored({"0/2": 50, "1/2": 50})
    assert enumerator.discover() == ["0/2", "1/2"]
    assert [enumerator.available(f"{i}/2", 50) for i in range(2)] == [50, 50]
    now[0] = 1.0
    assert [enumerator.available(f"{i}/2", 50) for i in range(2)] == [55, 55]


def read(coordinator, offset):
    """An epoch: how many records, and where it ends."""
    start = coordinator.discover(offset)
    end = coordinator.next(start)
    coordinator.ranges(start, end)
    read = sum(place.at for place in end["s"].values())
    return read - sum(place.at for place in start["s"].values()), end


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_rate_makes_up_for_nothing(monkeypatch, hybrid):
    now = [1000.0]
    monkeypatch.setitem(GeneratorSplits.__init__.__kwdefaults__, "clock", lambda: now[0])
    source = DataGeneratorSource(int, rate_per_second=100)
    if hybrid:
        source = HybridSource.builder(source).build()
    coordinator = SourceCoordinator([SourceSpec("s", 1, "source", source, 2)], 1.0)
    coordinator.rewind({"s": {}}, {})
    now[0] += 30  # the engine starts
    count, offset = read(coordinator, {"s": {}})
    assert count == 0
    now[0] += 0.125
    count, offset = read(coordinator, offset)
    assert count == 12
    now[0] += 20  # its workers start
    coordinator.commit(offset)
    assert read(coordinator, offset)[0] == 0
    now[0] += 3  # from now on an epoch that takes long has the more to read after it
    count, offset = read(coordinator, offset)
    assert count == 300
    now[0] += 1
    coordinator.commit(offset)
    assert read(coordinator, offset)[0] == 100
    now[0] += 60  # the job has failed, and is down
    coordinator.rewind(offset, {})
    now[0] += 30  # and starts again
    count, offset = read(coordinator, offset)
    assert count == 0
    now[0] += 0.5
    assert read(coordinator, offset)[0] == 50


def test_only_a_rate_makes_a_generator_paced():
    assert DataGeneratorSource(int, count=1, rate_per_second=5).paced()
    assert not DataGeneratorSource(int, count=1).paced()


def test_a_smaller_count_than_was_read_is_refused():
    with pytest.raises(SourceError, match="fewer events"):
        DataGeneratorSource(int, count=3).create_enumerator(1).available("0/1", 4)


@pytest.mark.parametrize(
    "arguments",
    [{"count": -1}, {"rate_per_second": 0}, {"splits": 0}, {"generator_function": 3}],
)
def test_bad_arguments_of_a_generator(arguments):
    with pytest.raises(InvalidArgument):
        DataGeneratorSource(**{"generator_function": int, **arguments})


def test_seeded_depends_on_seed_and_number_only():
    def draw(number: int, chance: random.Random) -> float:
        return chance.random()

    first, again, other = seeded(draw, 1), seeded(draw, 1), seeded(draw, 2)
    values = [first(n) for n in range(50)]
    assert values == [again(n) for n in reversed(range(50))][::-1]
    assert not set(values) & {other(n) for n in range(50)}
    assert cloudpickle.loads(cloudpickle.dumps(first))(7) == first(7)
