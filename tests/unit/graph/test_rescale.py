"""The same graph at another parallelism: what follows the default, what keeps its own, and what is refused."""

from __future__ import annotations

import pytest

from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.datagen import DataGeneratorSource
from millstream.errors import InvalidArgument
from millstream.graph.rescale import at_parallelism
from tests.support import environment


def numbers(env):
    return env.from_source(
        DataGeneratorSource(lambda n: n), WatermarkStrategy.no_watermarks(), "numbers"
    )


def shape(graph):
    return {node.name: node.parallelism for node in graph.nodes.values()}


def exchanges(graph):
    return [edge.partitioning.strategy.value for edge in graph.edges]


def program(parallelism):
    env = environment(parallelism)
    stream = numbers(env).map(lambda n: n).name("follows")
    stream = stream.map(lambda n: n).name("own").set_parallelism(2)
    stream = stream.key_by(lambda n: n).reduce(max).name("keyed")
    stream.map(lambda n: n).name("one").force_non_parallel().print().name("out")
    return env._graph(env._sinks)


@pytest.mark.parametrize("before", [1, 2, 3, 5])
@pytest.mark.parametrize("after", [1, 2, 3, 5])
def test_it_is_the_graph_that_the_program_has_at_that_parallelism(before, after):
    wanted, got = program(after), at_parallelism(program(before), after)
    assert shape(got) == shape(wanted)
    assert exchanges(got) == exchanges(wanted)
    assert [n.uid for n in got.nodes.values()] == [n.uid for n in wanted.nodes.values()]


def test_what_the_program_has_set_and_what_has_a_limit_stays():
    env = environment(2)
    env.from_collection([1]).map(lambda n: n).name("map").print().name("out")
    assert shape(at_parallelism(env._graph(env._sinks), 4)) == {
        "Source: Collection Source": 1,
        "map": 4,
        "Sink: out": 4,
    }
    assert shape(at_parallelism(program(1), 4))["own"] == 2
    assert shape(at_parallelism(program(1), 4))["one"] == 1


def test_timestamps_are_given_where_the_records_are():
    env = environment(2)
    stamped = env.from_collection([1]).assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps()
    )
    stamped.name("times").map(lambda n: n).print()
    assert shape(at_parallelism(env._graph(env._sinks), 4))["times"] == 1


def test_the_maximum_parallelism_is_for_life():
    before = program(200)
    after = at_parallelism(before, 2)
    assert [n.max_parallelism for n in after.nodes.values()] == [
        n.max_parallelism for n in before.nodes.values()
    ]
    with pytest.raises(InvalidArgument, match="maximum parallelism is 128"):
        at_parallelism(program(2), 129)


def test_a_forward_that_would_break_is_refused():
    env = environment(1)
    env.from_collection([1]).forward().map(lambda n: n).print()
    with pytest.raises(InvalidArgument, match="needs the same parallelism"):
        at_parallelism(env._graph(env._sinks), 2)


def test_everything_follows_in_reactive_mode():
    env = environment(1)
    stream = numbers(env).map(lambda n: n).name("own").set_parallelism(2)
    stream = stream.forward().map(lambda n: n).name("forwarded").set_parallelism(2)
    stream = stream.map(lambda n: n).name("bounded").set_max_parallelism(3)
    stream.map(lambda n: n).name("one").force_non_parallel().print().name("out")
    env.from_collection([1]).forward().map(lambda n: n).name("after one").print().name("out 2")
    assert shape(at_parallelism(env._graph(env._sinks), 6, everything=True)) == {
        "Source: numbers": 6,
        "own": 6,
        "forwarded": 6,
        "bounded": 3,
        "one": 1,
        "Sink: out": 6,
        "Source: Collection Source": 1,
        "after one": 1,
        "Sink: out 2": 6,
    }
