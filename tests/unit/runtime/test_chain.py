"""Chains of any depth run and blame the right operator; every operator has functions of its own."""

import pytest

from millstream.api.functions import (
    CoMapFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
)
from millstream.api.output_tag import OutputTag
from millstream.errors import UserFunctionError
from millstream.graph.job_graph import build_job_graph
from millstream.graph.level_plan import build_level_plan
from tests.support import collect, environment, keeping


def levels_of(env, stream):
    """How the program so far would be laid out, without running it."""
    stream.print()
    graph = env._graph(env._sinks)
    env._sinks.clear()
    return build_level_plan(build_job_graph(graph)).levels


# -- depth -----------------------------------------------------------------------------------------


def repeated(env, call, times, records):
    stream = env.from_collection(records)
    for number in range(times):
        stream = call(stream, number).name(f"op {number}")
    return stream


def test_sixty_flat_maps_in_one_chain():
    env = environment()
    stream = repeated(env, lambda s, n: s.flat_map(lambda v: [v + 1]), 60, [0, 100])
    assert len(levels_of(env, stream)) == 1
    assert collect(stream) == [60, 160]


def test_flat_maps_that_multiply():
    stream = repeated(environment(), lambda s, n: s.flat_map(lambda v: [v, v + 2**n]), 10, [0])
    assert sorted(collect(stream)) == list(range(1024))


def test_sixty_process_functions_with_side_outputs():
    tag = OutputTag("odd")

    class Split(ProcessFunction):
        def process_element(self, value, ctx):
            yield value
            if value % 2:
                yield tag, value

    env = environment()
    stream = env.from_collection([1, 2])
    with keeping() as kept:
        for number in range(60):
            split = stream.process(Split())
            if number in (0, 30, 59):
                kept.add(f"odd {number}", split.get_side_output(tag))
            stream = split.map(lambda v: v + 2)
        kept.add("main", stream)
        env.execute()
        assert kept.values("main") == [121, 122]
        assert [kept.values(f"odd {n}") for n in (0, 30, 59)] == [[1], [61], [119]]


def test_sixty_filters_and_keys_at_the_bottom():
    stream = repeated(environment(2), lambda s, n: s.filter(lambda v: True), 60, range(6))
    assert sorted(collect(stream.key_by(lambda v: v % 2).sum())) == [0, 1, 2, 4, 6, 9]


@pytest.mark.parametrize("times", [400, 1500])
def test_very_long_chains(times):
    stream = repeated(environment(), lambda s, n: s.map(lambda v: v + 1), times, [0])
    assert collect(stream) == [times]


def test_a_chain_with_many_branches():
    env = environment()
    source = env.from_collection([1])
    with keeping() as kept:
        for number in range(100):
            kept.add(f"{number}", source.map(lambda v, n=number: v + n).filter(lambda v: v % 2))  # type: ignore[misc]
        env.execute()
        assert [kept.values(f"{n}") for n in range(4)] == [[1], [], [3], []]


@pytest.mark.parametrize("at", [0, 13, 14, 59])
def test_the_operator_that_failed_is_named_at_any_depth(at):
    def step(stream, number):
        if number == at:
            return stream.flat_map(lambda v: [1 // (v - 7)])
        return stream.flat_map(lambda v: [v])

    stream = repeated(environment(), step, 60, [8, 7])
    with pytest.raises(UserFunctionError) as caught:
        collect(stream)
    evidence = caught.value.evidence
    assert (evidence["operator"], evidence["record"]) == (f"op {at}", "7")
    assert "record 1 of these" in evidence["position"]


# -- functions -------------------------------------------------------------------------------------


class Counting(MapFunction):
    """Counts its own records and remembers how it was opened."""

    def __init__(self):
        self.opened = []
        self.count = 0

    def open(self, runtime_context):
        self.opened.append(runtime_context.get_task_name_with_subtasks())

    def map(self, value):
        self.count += 1
        return value, self.count, list(self.opened)


def test_open_runs_once_for_all_epochs():
    got = collect(environment(epoch=1).from_collection(list("abc")).map(Counting()).name("m"))
    assert got == [(v, n + 1, ["m (1/1)"]) for n, v in enumerate("abc")]


@pytest.mark.parametrize("chained", [True, False])
def test_one_object_used_by_two_operators_is_two_functions(chained):
    function = Counting()
    env = environment(pipeline__operator_chaining__enabled=str(chained).lower())
    stream = env.from_collection(["a", "b"]).map(function).name("one")
    stream = stream.map(lambda v: v[0]).map(function).name("two")
    assert collect(stream) == [("a", 1, ["two (1/1)"]), ("b", 2, ["two (1/1)"])]
    assert (function.count, function.opened) == (0, []), "the user's own object is left alone"


def test_every_subtask_has_a_copy():
    env = environment(2)
    stream = env.from_collection(range(4)).rebalance().map(Counting()).name("m")
    assert sorted(collect(stream)) == [
        (0, 1, ["m (1/2)"]),
        (1, 1, ["m (2/2)"]),
        (2, 2, ["m (1/2)"]),
        (3, 2, ["m (2/2)"]),
    ]


def test_a_co_function_is_opened_once_for_both_inputs():
    class Both(CoMapFunction):
        opened = 0

        def open(self, runtime_context):
            self.opened += 1

        def map1(self, value):
            return value, self.opened

        def map2(self, value):
            return value, self.opened

    env = environment()
    connected = env.from_collection([1]).connect(env.from_collection([2]))
    assert sorted(collect(connected.map(Both()))) == [(1, 1), (2, 1)]


def test_key_selectors_partitioners_and_reduce_functions_are_opened():
    class Key(KeySelector):
        def open(self, runtime_context):
            self.modulus = 2

        def get_key(self, value):
            return value % self.modulus

    class Choose(Partitioner):
        def open(self, runtime_context):
            self.ready = True

        def partition(self, key, num_partitions):
            return key % num_partitions if self.ready else 0

    class Add(ReduceFunction):
        def open(self, runtime_context):
            self.zero = 0

        def reduce(self, value1, value2):
            return value1 + value2 + self.zero

    env = environment(2)
    stream = env.from_collection(range(4)).partition_custom(Choose(), Key())
    assert sorted(collect(stream.map(lambda v: v).key_by(Key()).reduce(Add()))) == [0, 1, 2, 4]


def test_two_sources_in_one_slot_keep_their_functions_to_the_end():
    env = environment(epoch=1)
    one = env.from_collection(["a", "b"]).map(Counting())
    two = env.from_collection(["c", "d"]).map(Counting())
    assert sorted(v[:2] for v in collect(one.union(two))) == [
        ("a", 1),
        ("b", 2),
        ("c", 1),
        ("d", 2),
    ]


def test_what_is_expanded_is_sent_in_several_buffers():
    """One record that becomes many must not become one huge buffer."""
    env = environment(millstream__buffer__records=100)
    stream = env.from_collection([10_000]).flat_map(range).rebalance().map(lambda v: v)
    run = stream.execute_and_collect()
    assert list(run) == list(range(10_000))


def test_typed_side_outputs():
    from millstream.common.typeinfo import Types
    from millstream.common.types import Row

    class Tee(ProcessFunction):
        def process_element(self, value, ctx):
            yield value
            yield OutputTag("side"), (value, value)

    tag = OutputTag("side", Types.ROW([Types.LONG(), Types.DOUBLE()]))
    env = environment()
    teed = env.from_collection([1, 2]).process(Tee())
    assert collect(teed.get_side_output(tag)) == [Row(f0=1, f1=1.0), Row(f0=2, f1=2.0)]
    assert collect(teed.get_side_output(tag).rebalance().map(lambda r: r.f1)) == [1.0, 2.0]
