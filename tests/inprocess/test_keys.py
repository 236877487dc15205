"""Keys and the state under them: types that change, numbers of key groups, names of jobs."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from millstream.api.functions import KeyedCoProcessFunction, KeySelector
from millstream.api.state import ValueStateDescriptor
from millstream.api.window_functions import ProcessWindowFunction
from millstream.common.typeinfo import Types
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import StateMismatch
from millstream.runtime.driver.job_folder import job_folder_name
from millstream.runtime.wire.keys import key_group, subtask_of
from millstream.testing.scripted import ScriptedSource, record
from tests.support import environment, keeping


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield value, self.count.value()


def run(
    numbers, kept, select=lambda n: n, key_type=None, parallelism=2, path=None, to=None, **settings
):
    """Count the keys of some numbers, from a savepoint or to one."""
    options = {} if path is None else {"execution__state_recovery__path": path}
    env = environment(parallelism, 10, **options, **settings)
    source = ScriptedSource({"a": [record(n) for n in numbers]}, bounded=to is None)
    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "script").uid("script")
    counted = records.key_by(select, key_type).process(Count()).uid("count")
    kept.add("counts", counted)
    if to is None:
        env.execute("counts")
        return None
    client = env.execute_async("counts")
    while len(kept.values("counts")) < len(numbers):
        client.get_job_status().result()
    path = client.stop_with_savepoint(False, str(to)).result(60)
    client.get_job_execution_result().result(60)
    return path


@pytest.mark.parametrize("declared", [Types.INT(), None], ids=["declared", "undeclared"])
@pytest.mark.parametrize("backend", ["hashmap", "lmdb"])
def test_a_key_of_another_type_is_refused_before_the_first_record(tmp_path, declared, backend):
    backend = {"state__backend__type": backend}
    with keeping() as kept:
        path = run([1, 2, 3], kept, key_type=declared, to=tmp_path, **backend)
    with keeping() as kept:
        with pytest.raises(StateMismatch, match=r"keys of .* were of another type") as refused:
            run([1, 2, 3, 1], kept, str, Types.STRING(), path=path, **backend)
        assert kept.values("counts") == []
    assert "int 1" in str(refused.value) or "int 2" in str(refused.value)
    with keeping() as kept:
        # Another name for the same numbers.
        run([1, 2, 3, 1], kept, key_type=Types.LONG(), path=path, **backend)
        assert kept.values("counts") == [(1, 2)]


def test_a_restored_job_has_the_maximum_parallelism_of_its_savepoint(tmp_path):
    numbers = list(range(40))
    with keeping() as kept:
        path = run(numbers, kept, to=tmp_path)
    with keeping() as kept:
        run([*numbers, *numbers], kept, parallelism=100, path=path)
        assert sorted(kept.values("counts")) == [(n, 2) for n in numbers]


def test_more_subtasks_than_the_savepoint_has_key_groups(tmp_path):
    with keeping() as kept:
        path = run([1], kept, to=tmp_path)
    with keeping() as kept, pytest.raises(StateMismatch, match="parallelism of at most 128"):
        run([1, 2], kept, parallelism=200, path=path)


def test_long_names_of_jobs_that_begin_alike_have_folders_of_their_own():
    names = ["x" * 250 + end for end in ("a", "b")] + ["ä" * 40, "ä" * 41, "." * 100, "." * 101]
    folders = [job_folder_name(name) for name in names]
    assert len(set(folders)) == len(names)
    assert all(len(folder) <= 255 for folder in folders)


def often(log):
    """A selector that is random, and says how often it is called."""

    def select(value):
        with open(log, "a") as file:
            file.write("x")
        return random.randrange(1000)

    return select


class Seen(KeyedProcessFunction):
    """Emits the key with what is counted under it, and where."""

    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.subtask, self.count.value()


PROGRAMS = {
    "process": lambda keyed: keyed.process(Seen()),
    "windows": lambda keyed: keyed.window(TumblingEventTimeWindows.of("1 s")).process(ShowWindow()),
    "connected": lambda keyed: keyed.connect(keyed).process(SeenOnTwoSides()),
}


class ShowWindow(ProcessWindowFunction):
    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()

    def process(self, key, context, elements):
        return [(key, self.subtask, n + 1) for n, _ in enumerate(elements)]


class SeenOnTwoSides(KeyedCoProcessFunction):
    def open(self, runtime_context):
        self.seen = Seen()
        self.seen.open(runtime_context)

    def process_element1(self, value, ctx):
        yield from self.seen.process_element(value, ctx)

    def process_element2(self, value, ctx):
        yield from self.seen.process_element(value, ctx)


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_key_selector_is_called_once_for_each_record(tmp_path, mode, program):
    """So that a key is in one subtask, whatever the selector gives the next time."""
    log = tmp_path / "calls"
    env = environment(3, None, execution__runtime_mode=mode)
    script = [record(n, at=n) for n in range(500)]
    records = env.from_source(
        ScriptedSource({"a": script}), WatermarkStrategy.no_watermarks(), "script"
    )
    with keeping() as kept:
        kept.add("seen", PROGRAMS[program](records.key_by(often(str(log)))))
        env.execute()
        seen = kept.values("seen")
    sides = 2 if program == "connected" else 1
    assert len(log.read_text()) == 500 * sides
    assert len(seen) == 500 * sides
    places, counts = {}, {}
    for key, subtask, count in seen:
        assert places.setdefault(key, subtask) == subtask
        counts[key] = max(count, counts.get(key, 0))
    assert sum(counts.values()) == 500 * sides
    group = {key: subtask_of(key_group(key, 128), 3, 128) for key in places}
    assert places == group


class Fixed(KeySelector):
    def get_key(self, value):
        return Decimal(value % 5)


@pytest.mark.parametrize("mode", ["STREAMING", "BATCH"])
@pytest.mark.parametrize(
    "select",
    [Fixed(), lambda n: Decimal(n % 5), lambda n: (n % 5, "x")],
    ids=["object", "decimal", "tuple"],
)
def test_keys_that_travel_with_their_records_are_the_selectors(mode, select):
    env = environment(2, None, execution__runtime_mode=mode)
    records = env.from_collection(list(range(20)))
    with keeping() as kept:
        filtered = records.key_by(select).filter(lambda n: n != 3)
        # The same records go on under another key.
        kept.add("seen", filtered.key_by(lambda n: str(n // 10)).process(Seen()))
        kept.add("first", records.key_by(select).process(Seen()))
        kept.add("sums", records.key_by(select).reduce(lambda a, b: a + b))
        env.execute()
        get = select.get_key if isinstance(select, KeySelector) else select
        assert {key for key, _, _ in kept.values("seen")} == {"0", "1"}
        assert {key for key, _, _ in kept.values("first")} == {get(n) for n in range(20)}
        assert max(kept.values("sums")) == 4 + 9 + 14 + 19
