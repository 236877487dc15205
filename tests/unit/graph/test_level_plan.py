"""The line of levels that any graph becomes, and who can send to whom."""

import pytest

from millstream.api.functions import CoMapFunction
from millstream.graph.level_plan import Edge
from millstream.graph.partitioning import Partitioning, Strategy
from tests.support import collect, environment
from tests.unit.graph.programs import level_plan


def same(value):
    return value


class Co(CoMapFunction):
    map1 = map2 = lambda self, value: value


def source(env, name="S"):
    return env.from_collection([1]).name(name)


def levels(env):
    return [[vertex.name for vertex in level.vertices] for level in level_plan(env).levels]


def edges(env):
    """(from node, to vertex, input, level of the target)."""
    plan = level_plan(env)
    names = {node.id: node.name for vertex in plan.vertices for node in vertex.nodes}
    return [
        (names[e.source_node], names[e.target_vertex], e.input_index, e.target_level)
        for e in plan.edges
    ]


def test_a_chain_is_one_level():
    env = environment()
    source(env).map(same).name("A").print().name("P")
    assert levels(env) == [["S -> A -> Sink: P"]]
    assert edges(env) == []


def test_a_diamond():
    env = environment()
    stream = source(env).rebalance().map(same).name("A")
    left = stream.rebalance().map(same).name("L")
    right = stream.shuffle().map(same).name("R").rebalance().map(same).name("R2")
    left.union(right).map(same).name("J").print().name("P")
    assert levels(env) == [["S"], ["A"], ["L", "R"], ["R2"], ["J -> Sink: P"]]
    # L's records for J pass through the level of R2.
    assert edges(env) == [
        ("S", "A", 0, 1),
        ("A", "L", 0, 2),
        ("A", "R", 0, 2),
        ("R", "R2", 0, 3),
        ("L", "J", 0, 4),
        ("R2", "J", 0, 4),
    ]


def test_a_union_of_sources_at_different_depths():
    env = environment()
    deep = source(env, "S1").rebalance().map(same).name("A").rebalance().map(same).name("B")
    deep.union(source(env, "S2")).map(same).name("U").print().name("P")
    assert levels(env) == [["S1", "S2"], ["A"], ["B"], ["U -> Sink: P"]]
    assert ("S2", "U", 0, 3) in edges(env)


def test_the_inputs_of_connected_streams_are_numbered():
    env = environment()
    one, two = source(env, "S1"), source(env, "S2")
    one.union(two).connect(two.rebalance().map(same).name("A")).map(Co()).name("C").print()
    assert levels(env) == [["S1", "S2"], ["A"], ["C -> Sink: Print to Std. Out"]]
    assert edges(env) == [("S2", "A", 0, 1), ("S1", "C", 0, 2), ("S2", "C", 0, 2), ("A", "C", 1, 2)]


def test_every_source_is_at_level_0_and_only_sources():
    env = environment()
    source(env, "S1").rebalance().map(same).union(source(env, "S2")).print()
    plan = level_plan(env)
    assert [vertex.is_source for vertex in plan.vertices] == [True, True, False, False]
    assert [vertex.name for vertex in plan.sources] == ["S1", "S2"]


def test_a_level_is_as_parallel_as_its_widest_vertex():
    env = environment(2)
    stream = source(env)
    one = stream.map(same).name("A").set_parallelism(3)
    two = stream.map(same).name("B").set_parallelism(1).start_new_chain()
    one.union(two).print().name("P")
    assert [level.parallelism for level in level_plan(env).levels] == [1, 3, 2]


def test_edges_have_numbers_of_their_own_and_belong_to_their_vertex():
    env = environment()
    stream = source(env).map(same).name("A")
    stream.rebalance().map(same).name("B").print().name("P")
    stream.key_by(same).map(same).name("C").print().name("Q")
    plan = level_plan(env)
    assert [edge.id for edge in plan.edges] == [0, 1]
    assert plan.out_edges(plan.sources[0]) == list(plan.edges)
    assert all(plan.out_edges(vertex) == [] for vertex in plan.vertices[1:])


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("epoch", [1, None])
def test_records_pass_through_levels_that_are_narrower(parallelism, epoch):
    """From a wide source level, through a level of one subtask, to a wide level."""
    env = environment(parallelism, epoch)
    numbers = env.from_collection(range(20)).rebalance().map(same).name("wide")
    deep = numbers.rebalance().map(lambda v: v + 100).set_parallelism(1)
    deep = deep.rebalance().map(lambda v: v + 1000).set_parallelism(1).rebalance().map(same)
    joined = numbers.union(deep).map(same).set_parallelism(3)
    assert sorted(collect(joined)) == [*range(20), *range(1100, 1120)]


# -- who can send to whom ------------------------------------------------------------------------


def targets(strategy, up, down):
    edge = Edge(
        id=0,
        source_node=1,
        tag_id=None,
        target_vertex=2,
        input_index=0,
        partitioning=Partitioning(strategy),
        source_parallelism=up,
        target_parallelism=down,
        target_max_parallelism=128,
        target_level=1,
        buffer_timeout=100,
    )
    return [edge.targets_of(subtask) for subtask in range(up)]


@pytest.mark.parametrize("strategy", [Strategy.REBALANCE, Strategy.SHUFFLE, Strategy.BROADCAST,
                                      Strategy.HASH, Strategy.CUSTOM])  # fmt: skip
def test_everybody_to_everybody(strategy):
    assert targets(strategy, 2, 3) == [(0, 1, 2), (0, 1, 2)]


def test_forward_is_one_to_one():
    assert targets(Strategy.FORWARD, 3, 3) == [(0,), (1,), (2,)]


def test_global_reaches_all_with_its_marks():
    """Records go to the first; the end of input must reach the others too."""
    assert targets(Strategy.GLOBAL, 3, 3) == [(0, 1, 2)] * 3


@pytest.mark.parametrize(
    ("up", "down", "expected"),
    [
        (1, 3, [(0, 1, 2)]),
        (2, 4, [(0, 1), (2, 3)]),
        (2, 3, [(0,), (1, 2)]),
        (3, 3, [(0,), (1,), (2,)]),
        (4, 2, [(0,), (0,), (1,), (1,)]),
        (3, 2, [(0,), (0,), (1,)]),
        (5, 1, [(0,)] * 5),
    ],
)
def test_rescale(up, down, expected):
    assert targets(Strategy.RESCALE, up, down) == expected


def test_rescale_reaches_every_target_and_wastes_no_sender():
    for up in range(1, 20):
        for down in range(1, 20):
            sets = targets(Strategy.RESCALE, up, down)
            assert all(sets)
            reached = [target for one in sets for target in one]
            assert sorted(set(reached)) == list(range(down))
            if up <= down:
                assert len(reached) == down, "nobody shares a target"
                sizes = {len(one) for one in sets}
                assert max(sizes) - min(sizes) <= 1
