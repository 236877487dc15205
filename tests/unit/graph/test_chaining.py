"""Which operators run in one loop (rule 42)."""

import pytest

from millstream.api.functions import CoMapFunction, ProcessFunction
from millstream.api.output_tag import OutputTag
from tests.support import environment
from tests.unit.graph.programs import chains, edges_of, stream_graph


def same(value):
    return value


class Co(CoMapFunction):
    map1 = map2 = lambda self, value: value


class Pass(ProcessFunction):
    def process_element(self, value, ctx):
        yield value


@pytest.fixture
def env():
    return environment()


def source(env, name="S"):
    return env.from_collection([1]).name(name)


def test_a_line_of_operators_is_one_chain(env):
    source(env).map(same).name("A").filter(same).name("B").print().name("P")
    assert chains(env) == ["S -> A -> B -> Sink: P"]


def test_another_parallelism_cuts(env):
    stream = source(env).map(same).name("A").map(same).name("B").set_parallelism(2)
    stream.map(same).name("C").set_parallelism(2).print().name("P")
    assert chains(env) == ["S -> A", "B -> C", "Sink: P"]
    assert edges_of(env) == [
        ("S", "A", "FORWARD"),
        ("A", "B", "REBALANCE"),
        ("B", "C", "FORWARD"),
        ("C", "Sink: P", "REBALANCE"),
    ]


@pytest.mark.parametrize("call", ["rebalance", "rescale", "shuffle", "broadcast", "global_"])
def test_every_exchange_cuts_even_between_single_subtasks(env, call):
    getattr(source(env).map(same).name("A"), call)().map(same).name("B").print().name("P")
    assert chains(env) == ["S -> A", "B -> Sink: P"]


def test_keys_and_custom_partitions_cut(env):
    keyed = source(env).key_by(same).map(same).name("A")
    keyed.partition_custom(lambda k, n: 0, same).map(same).name("B").print().name("P")
    assert chains(env) == ["S", "A", "B -> Sink: P"]


def test_forward_does_not_cut(env):
    source(env).forward().map(same).name("A").forward().print().name("P")
    assert chains(env) == ["S -> A -> Sink: P"]


def test_the_last_partitioning_called_counts(env):
    source(env).rebalance().forward().map(same).name("A").rebalance().shuffle().print().name("P")
    assert edges_of(env) == [("S", "A", "FORWARD"), ("A", "Sink: P", "SHUFFLE")]


def test_another_slot_group_cuts(env):
    stream = source(env).map(same).name("A").map(same).name("B").slot_sharing_group("g")
    stream.map(same).name("C").print().name("P")
    assert chains(env) == ["S -> A", "B -> C -> Sink: P"]


def test_the_same_slot_group_does_not_cut(env):
    source(env).slot_sharing_group("g").map(same).name("A").slot_sharing_group("g").print()
    assert chains(env) == ["S -> A -> Sink: Print to Std. Out"]


def test_start_new_chain_cuts_upstream_only(env):
    stream = source(env).map(same).name("A").map(same).name("B").start_new_chain()
    stream.map(same).name("C").print().name("P")
    assert chains(env) == ["S -> A", "B -> C -> Sink: P"]


def test_disable_chaining_cuts_on_both_sides(env):
    stream = source(env).map(same).name("A").map(same).name("B").disable_chaining()
    stream.map(same).name("C").print().name("P")
    assert chains(env) == ["S -> A", "B", "C -> Sink: P"]


def test_a_sink_can_be_cut_off(env):
    source(env).map(same).name("A").print().name("P").disable_chaining()
    assert chains(env) == ["S -> A", "Sink: P"]


def test_chaining_can_be_switched_off_for_all(env):
    assert env.is_chaining_enabled()
    env.disable_operator_chaining()
    assert not env.is_chaining_enabled()
    source(env).map(same).name("A").print().name("P")
    assert chains(env) == ["S", "A", "Sink: P"]
    assert {strategy for *_, strategy in edges_of(env)} == {"FORWARD"}


def test_an_operator_with_several_inputs_begins_a_chain(env):
    one, two = source(env, "S1").map(same).name("A"), source(env, "S2")
    one.union(two).map(same).name("U").map(same).name("V").print().name("P")
    assert chains(env) == ["S1 -> A", "S2", "U -> V -> Sink: P"]
    one.connect(two).map(Co()).name("C").map(same).name("D").print().name("Q")
    assert "C -> D -> Sink: Q" in chains(env)


def test_a_fork_is_a_tree(env):
    stream = source(env).map(same).name("A")
    stream.filter(same).name("B").print().name("P")
    stream.map(same).name("C").map(same).name("D").print().name("Q")
    assert chains(env) == ["S -> A -> (B -> Sink: P, C -> D -> Sink: Q)"]


def test_side_outputs_are_chained_too(env):
    processed = source(env).process(Pass()).name("A")
    processed.get_side_output(OutputTag("late")).map(same).name("L").print().name("P")
    processed.print().name("Q")
    assert chains(env) == ["S -> A -> (L -> Sink: P, Sink: Q)"]


def test_a_stream_united_with_itself_has_two_edges(env):
    stream = source(env)
    stream.union(stream).map(same).name("A").print().name("P")
    assert chains(env) == ["S", "A -> Sink: P"]
    assert edges_of(env)[:2] == [("S", "A", "FORWARD"), ("S", "A", "FORWARD")]


def test_another_maximum_parallelism_does_not_cut(env):
    source(env).map(same).name("A").set_max_parallelism(7).print().name("P")
    assert chains(env) == ["S -> A -> Sink: P"]


def test_every_edge_is_inside_a_chain_or_between_chains(env):
    from millstream.graph.job_graph import build_job_graph

    stream = source(env).map(same).name("A")
    stream.key_by(same).map(same).name("K").union(stream).map(same).name("U").print().name("P")
    stream.union(stream).print().name("Q")
    graph = stream_graph(env)
    job = build_job_graph(graph)
    inside = [edge for vertex in job.vertices for edge in vertex.inner]
    assert len(inside) + len(job.edges) == len(graph.edges)
    assert sorted(n.id for vertex in job.vertices for n in vertex.nodes) == sorted(graph.nodes)
    assert job.vertex_of == {n.id: v.id for v in job.vertices for n in v.nodes}
    assert all(vertex.head.id == vertex.id for vertex in job.vertices)
