"""Programs as graphs, for tests that run nothing."""

from millstream.graph.job_graph import build_job_graph
from millstream.graph.level_plan import build_level_plan
from millstream.runtime.codegen.builder import ChainBuilder
from millstream.runtime.operators import lines as compilers
from millstream.runtime.state.store import StateStore
from millstream.runtime.wire.output import EdgeWriter
from millstream.runtime.wire.rows import RowBatch


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


def generated(env, level):
    """The generated code of the first vertex of a level."""
    plan = level_plan(env)
    vertex = plan.levels[level].vertices[0]
    rows = RowBatch()

    def writer(edge_id, operator, edge):
        return EdgeWriter(edge_id, operator, (0,) if edge is None else edge.targets_of(0), rows)

    inputs = [edge.input_index for edge in plan.edges if edge.target_vertex == vertex.id]
    builder = ChainBuilder(
        vertex, plan.out_edges(vertex), 0, StateStore(None, "test/0"), writer, {}, compilers
    )
    return builder.generate(max(inputs, default=0) + 1).source
