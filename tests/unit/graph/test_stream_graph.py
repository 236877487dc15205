"""From what the user wrote down to a graph: partitioning, uids, groups, what is left out."""

import pytest

from millstream.datastream import SlotSharingGroup
from millstream.errors import EmptyProgramError, InvalidArgument
from millstream.graph.stream_graph import max_parallelism_for
from tests.support import environment
from tests.unit.graph.programs import by_name, edges_of, stream_graph


def same(value):
    return value


def source(env, name="S"):
    return env.from_collection([1]).name(name)


# -- partitioning --------------------------------------------------------------------------------


@pytest.mark.parametrize(("up", "down", "strategy"), [(1, 1, "FORWARD"), (1, 3, "REBALANCE"),
                                                      (3, 1, "REBALANCE"), (3, 3, "FORWARD")])  # fmt: skip
def test_without_a_call_it_is_forward_or_rebalance(up, down, strategy):
    env = environment(up)
    stream = env.from_collection([1]).map(same).name("A")
    stream.map(same).name("B").set_parallelism(down).print().name("P").set_parallelism(down)
    assert ("A", "B", strategy) in edges_of(env)


def test_collections_have_one_subtask_whatever_the_environment_says():
    env = environment(4)
    source(env).map(same).name("A").print().name("P")
    nodes = by_name(env)
    assert [nodes[n].parallelism for n in ("S", "A", "Sink: P")] == [1, 4, 4]
    assert edges_of(env)[0] == ("S", "A", "REBALANCE")


def test_explicit_forward_needs_equal_parallelism():
    env = environment(4)
    source(env).forward().map(same).name("A").print()
    with pytest.raises(InvalidArgument, match=r"forward\(\) from 'S' to 'A'") as caught:
        stream_graph(env)
    assert caught.value.evidence["parallelism"] == "1 and 4"
    assert "rebalance()" in caught.value.hint


def test_forward_is_checked_for_every_consumer():
    env = environment(2)
    forwarded = source(env).map(same).name("A").forward()
    forwarded.map(same).name("B").print().name("P")
    assert ("A", "B", "FORWARD") in edges_of(env)
    forwarded.map(same).name("C").set_parallelism(1).print().name("Q")
    with pytest.raises(InvalidArgument, match="from 'A' to 'C'"):
        stream_graph(env)


def test_each_consumer_has_its_own_partitioning():
    env = environment()
    stream = source(env).map(same).name("A")
    stream.map(same).name("B").print().name("P")
    stream.shuffle().map(same).name("C").print().name("Q")
    stream.key_by(same).map(same).name("D").print().name("R")
    assert [edge for edge in edges_of(env) if edge[0] == "A"] == [
        ("A", "B", "FORWARD"),
        ("A", "C", "SHUFFLE"),
        ("A", "D", "HASH"),
    ]


def test_partitioning_reaches_through_a_union():
    env = environment()
    one, two = source(env, "S1"), source(env, "S2")
    one.union(two).rebalance().map(same).name("A").print().name("P")
    one.shuffle().union(two).map(same).name("B").print().name("Q")
    assert edges_of(env)[:1] == [("S1", "A", "REBALANCE")]
    assert [e for e in edges_of(env) if e[1] == "B"] == [
        ("S1", "B", "SHUFFLE"),
        ("S2", "B", "FORWARD"),
    ]


def test_sinks_of_a_keyed_stream_read_its_values_where_they_are():
    env = environment()
    source(env).key_by(same).print().name("P")
    assert edges_of(env) == [("S", "Sink: P", "FORWARD")]


# -- what runs (rule 57) -------------------------------------------------------------------------


def test_only_what_leads_to_a_sink_is_there():
    env = environment()
    stream = source(env)
    stream.map(same).name("dead end")
    source(env, "unused").map(same).name("dead too")
    stream.map(same).name("A").print().name("P")
    assert list(by_name(env)) == ["S", "A", "Sink: P"]


def test_nothing_with_a_sink_is_an_error():
    env = environment()
    source(env).map(same)
    with pytest.raises(EmptyProgramError, match="No operators defined in streaming topology"):
        stream_graph(env)


def test_a_shared_operator_is_there_once():
    env = environment()
    stream = source(env).map(same).name("A")
    stream.print().name("P")
    stream.print().name("Q")
    assert list(by_name(env)) == ["S", "A", "Sink: P", "Sink: Q"]


# -- uids ----------------------------------------------------------------------------------------


def uids(build):
    env = environment()
    build(env)
    return {node.name: node.uid for node in stream_graph(env).nodes.values()}


def program(env):
    source(env).map(same).name("A").key_by(same).sum().name("B").print().name("P")


def test_generated_uids_are_the_same_every_time():
    first = uids(program)
    assert first == uids(program)
    assert len(set(first.values())) == 4
    assert all(len(uid) == 32 for uid in first.values())
    # Part of every checkpoint without uids of the user's.
    assert first["B"] == "69ccd582c4e6b47f94fac470f7e692eb"


def test_generated_uids_do_not_depend_on_names_functions_or_parallelism():
    def other(env):
        env.set_parallelism(3)
        stream = env.from_collection([7]).name("X").map(lambda v: 5).name("Y")
        stream.key_by(lambda v: "k").sum().name("Z").set_parallelism(2).print().name("W")

    assert list(uids(program).values()) == list(uids(other).values())


def test_generated_uids_depend_on_what_is_upstream():
    def longer(env):
        stream = source(env).filter(same).name("new").map(same).name("A")
        stream.key_by(same).sum().name("B").print().name("P")

    before, after = uids(program), uids(longer)
    assert before["S"] == after["S"]
    assert before["A"] != after["A"]
    assert before["B"] != after["B"]


def test_what_is_added_downstream_changes_no_uid():
    def more(env):
        stream = source(env).map(same).name("A").key_by(same).sum().name("B")
        stream.print().name("P")
        stream.filter(same).name("C").print().name("Q")

    before, after = uids(program), uids(more)
    assert {name: after[name] for name in before} == before


def test_two_like_branches_have_different_uids():
    def twins(env):
        stream = source(env)
        stream.map(same).name("A").print().name("P")
        stream.map(same).name("B").print().name("Q")

    found = uids(twins)
    assert len(set(found.values())) == len(found)


def test_given_uids_are_kept_and_hold_what_follows_in_place():
    def given(env):
        source(env).map(same).name("A").uid("mine").key_by(same).sum().name("B").print().name("P")

    assert uids(given)["A"] == "mine"
    assert uids(given)["B"] == uids(given)["B"]


def test_a_uid_must_not_be_used_twice():
    env = environment()
    source(env).map(same).name("A").uid("u").map(same).name("B").uid("u").print()
    with pytest.raises(InvalidArgument, match="the uid 'u' is used by two operators") as caught:
        stream_graph(env)
    assert caught.value.evidence["operators"] == "'A' and 'B'"


def test_a_uid_hash_is_a_uid():
    env = environment()
    source(env).map(same).name("A").set_uid_hash("0123").print().name("P").set_uid_hash("4567")
    assert [by_name(env)[n].uid for n in ("A", "Sink: P")] == ["0123", "4567"]


def test_sinks_have_uids_too():
    env = environment()
    source(env).uid("u").print().uid("u")
    with pytest.raises(InvalidArgument, match="uid 'u'"):
        stream_graph(env)


# -- parallelism (rule 39) -----------------------------------------------------------------------


def test_default_maximum_parallelism():
    for parallelism in range(1, 32769):
        wanted = max_parallelism_for(parallelism)
        assert wanted & (wanted - 1) == 0
        assert 128 <= wanted <= 32768
        if 128 < wanted < 32768:
            assert wanted // 2 < parallelism * 1.5 <= wanted + 1
    expected = {1: 128, 85: 128, 86: 256, 170: 256, 171: 256, 172: 512, 21845: 32768, 32768: 32768}
    assert {p: max_parallelism_for(p) for p in expected} == expected


def test_maximum_parallelism_of_operator_environment_and_default():
    env = environment(2)
    stream = source(env).map(same).name("A").set_max_parallelism(64)
    stream.map(same).name("B").print().name("P")
    assert [by_name(env)[n].max_parallelism for n in ("A", "B")] == [64, 128]
    env.set_max_parallelism(512)
    assert [by_name(env)[n].max_parallelism for n in ("A", "B")] == [64, 512]


def test_parallelism_above_the_maximum():
    env = environment()
    source(env).map(same).name("A").set_parallelism(5).set_max_parallelism(4).print()
    with pytest.raises(InvalidArgument, match="'A' is above its maximum") as caught:
        stream_graph(env)
    assert caught.value.evidence == {"parallelism": 5, "max_parallelism": 4}


def test_force_non_parallel():
    env = environment(4)
    stream = source(env).map(same).name("A").force_non_parallel()
    with pytest.raises(InvalidArgument, match="cannot run with a parallelism of 2"):
        stream.set_parallelism(2)
    stream.print().name("P")
    assert (by_name(env)["A"].parallelism, by_name(env)["A"].max_parallelism) == (1, 1)


# -- slot sharing groups (rule 61) ---------------------------------------------------------------


def groups(env):
    return {name: node.slot_sharing_group for name, node in by_name(env).items()}


def test_groups_are_inherited():
    env = environment()
    source(env).map(same).name("A").slot_sharing_group("g").map(same).name("B").print().name("P")
    assert groups(env) == {"S": "default", "A": "g", "B": "g", "Sink: P": "g"}


def test_groups_are_inherited_if_all_inputs_agree_else_default():
    env = environment()
    one = source(env, "S1").slot_sharing_group("g")
    two = source(env, "S2").slot_sharing_group("g")
    three = source(env, "S3").slot_sharing_group("h")
    one.union(two).map(same).name("A").print().name("P")
    one.union(three).map(same).name("B").print().name("Q")
    found = groups(env)
    assert (found["A"], found["B"]) == ("g", "default")


def test_a_group_may_be_an_object_with_a_name():
    env = environment()
    named = SlotSharingGroup.builder("named").build()
    source(env).slot_sharing_group(named).print().name("P").slot_sharing_group("other")
    assert groups(env) == {"S": "named", "Sink: P": "other"}


# -- other settings ------------------------------------------------------------------------------


def test_buffer_timeout_of_environment_and_operator():
    env = environment()
    env.set_buffer_timeout(20)
    source(env).map(same).name("A").set_buffer_timeout(5).map(same).name("B").print().name("P")
    assert [by_name(env)[n].buffer_timeout for n in ("S", "A", "B")] == [20, 5, 20]


def test_where_an_operator_was_declared():
    env = environment()
    source(env).map(same).name("A").print().name("P")  # declared here
    nodes = by_name(env)
    for name in ("A", "Sink: P"):
        assert nodes[name].declared_at.file == __file__
        assert nodes[name].declared_at.text.endswith("# declared here")


def test_building_the_graph_changes_nothing():
    env = environment()
    program(env)
    assert env.get_execution_plan() == env.get_execution_plan()
    assert stream_graph(env) is not stream_graph(env)
