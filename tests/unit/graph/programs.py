"""Programs as graphs, for tests that run nothing."""

import tempfile
from typing import NamedTuple

from millstream.graph.job_graph import build_job_graph
from millstream.graph.level_plan import Edge, build_level_plan
from millstream.runtime.task.chain import Chain
from millstream.runtime.task.slot import close_run, slot_for


def stream_graph(env):
    """The logical graph of everything with a sink so far."""
    return env._graph(env._sinks)


def by_name(env):
    """The nodes of the logical graph by name; names must be unique."""
    nodes = stream_graph(env).nodes.values()
    names = {node.name: node for node in nodes}
    assert len(names) == len(nodes), "give the operators names of their own"
    return names


def edges_of(env):
    """(from, to, strategy) by name."""
    graph = stream_graph(env)
    return [
        (graph.nodes[e.source].name, graph.nodes[e.target].name, e.partitioning.strategy.value)
        for e in graph.edges
    ]


def chains(env):
    """The names of the vertices, in order."""
    return [vertex.name for vertex in build_job_graph(stream_graph(env)).vertices]


def level_plan(env):
    """The levels that would run."""
    return build_level_plan(build_job_graph(stream_graph(env)))


class Made(NamedTuple):
    """A chain as a task makes it, and the edges that leave it."""

    chain: Chain
    edges: list[Edge]


def chain_of(env, operator=None, *, level=0):
    """The chain of an operator, given by its number, or the first of a level. Nothing is run or written."""
    job = env._take_job("golden")
    spec = job.spec(tempfile.gettempdir())
    vertices = job.plan.vertices if operator is not None else job.plan.levels[level].vertices
    wanted = next(
        vertex
        for vertex in vertices
        if operator is None or operator in {node.id for node in vertex.nodes}
    )
    number, shipped = next(
        (number, vertex)
        for number, of_level in enumerate(spec.levels)
        for vertex in of_level.vertices
        if vertex.id == wanted.id
    )
    chain = slot_for(spec, number, -1, 0).chain(shipped)
    close_run(spec.run_id)
    return Made(chain, job.plan.out_edges(wanted))


def generated(env, level):
    """The generated code of the first vertex of a level."""
    return chain_of(env, level=level).chain.module.source
