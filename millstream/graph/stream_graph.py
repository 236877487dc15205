"""The logical graph: one node per operator, one edge per connection (Flink's `StreamGraphGenerator`).

Virtual transformations (partition, union, side output) become properties of edges. Only what leads to a
sink is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.errors import EmptyProgramError, InvalidArgument
from millstream.graph.operators import AssignOp, CollectOp, Operator
from millstream.graph.partitioning import FORWARD, REBALANCE, Partitioning, Strategy
from millstream.graph.transformations import (
    IterationTransformation,
    OperatorTransformation,
    PartitionTransformation,
    SideOutputTransformation,
    SourceLine,
    Transformation,
    UnionTransformation,
)

__all__ = [
    "StreamEdge",
    "StreamGraph",
    "StreamNode",
    "build_stream_graph",
    "exchange_between",
    "max_parallelism_for",
]


@dataclass(frozen=True)
class StreamNode:
    """An operator with its settings resolved."""

    id: int
    name: str
    operator: Operator
    parallelism: int
    max_parallelism: int
    uid: str
    slot_sharing_group: str
    chaining: str
    output_type: Any
    buffer_timeout: int
    declared_at: SourceLine | None
    description: str
    is_sink: bool
    error_policy: Any = None
    # Nobody has set the maximum parallelism: it is what follows from the parallelism.
    derived_maximum: bool = False
    # What the program has set, if it has; and the most subtasks that the operator can use, if there is a limit.
    own_parallelism: int | None = None
    most_parallelism: int | None = None


@dataclass(frozen=True)
class StreamEdge:
    """A connection from an output (main or `tag_id`) of one node to an input of another."""

    source: int
    target: int
    input_index: int
    partitioning: Partitioning
    tag_id: str | None
    tag_type: Any = None
    # The program says nothing of the exchange: it follows from the parallelism on both sides.
    automatic: bool = False


@dataclass(frozen=True)
class StreamGraph:
    """All nodes, in the order they were declared, and all edges. `parallelism` is that of operators that set none."""

    nodes: dict[int, StreamNode]
    edges: tuple[StreamEdge, ...]
    chaining_enabled: bool
    parallelism: int = 1


@dataclass(frozen=True)
class _Output:
    """An operator's output as an edge will see it."""

    operator: OperatorTransformation
    tag_id: str | None
    partitioning: Partitioning | None
    tag_type: Any = None


def max_parallelism_for(parallelism: int) -> int:
    """Flink's default maximum: 1.5 times the parallelism, as a power of two, in [128, 32768].

    >>> [max_parallelism_for(p) for p in (1, 85, 86, 200, 30000)]
    [128, 128, 256, 512, 32768]
    """
    wanted = parallelism + parallelism // 2
    return min(max(128, 1 << (wanted - 1).bit_length()), 32768)


def _outputs(transformation: Transformation) -> Iterator[_Output]:
    """What stands behind the virtual transformations."""
    match transformation:
        case OperatorTransformation():
            yield _Output(transformation, None, None)
        case UnionTransformation(inputs=inputs):
            for above in inputs:
                yield from _outputs(above)
        case SideOutputTransformation(input=above, tag_id=tag_id, output_type=tag_type):
            for out in _outputs(above):
                yield _Output(out.operator, tag_id, None, tag_type)
        case PartitionTransformation(input=above, partitioning=partitioning):
            # The last partitioning called wins, as in Flink.
            for out in _outputs(above):
                yield _Output(out.operator, out.tag_id, partitioning, out.tag_type)


def _reachable(sinks: Sequence[OperatorTransformation]) -> list[OperatorTransformation]:
    seen: dict[int, OperatorTransformation] = {}
    stack = list(sinks)
    while stack:
        transformation = stack.pop()
        if transformation.id in seen:
            continue
        seen[transformation.id] = transformation
        if isinstance(transformation, IterationTransformation):
            stack.append(_tail(transformation))
        stack.extend(out.operator for inp in transformation.inputs for out in _outputs(inp))
    return [seen[i] for i in sorted(seen)]


def _tail(head: IterationTransformation) -> OperatorTransformation:
    if head.tail is None:
        msg = "an iteration is not closed: nothing is ever fed back"
        raise InvalidArgument(
            msg,
            declared_at=head.declared_at,
            hint="call close_with() on the stream that iterate() gave, with the records to feed back",
        )
    return head.tail


def build_stream_graph(
    sinks: Sequence[OperatorTransformation],
    *,
    parallelism: int,
    max_parallelism: int | None = None,
    buffer_timeout: int = 100,
    chaining_enabled: bool = True,
    generate_uids: bool = True,
) -> StreamGraph:
    """The graph of everything that leads to `sinks`."""
    if not sinks:
        msg = "No operators defined in streaming topology. Cannot execute."
        raise EmptyProgramError(
            msg, hint="end the program with a sink (print, sink_to, add_sink) before execute()"
        )
    nodes: dict[int, StreamNode] = {}
    edges: list[StreamEdge] = []
    used_uids: dict[str, str] = {}
    for transformation in _reachable(sinks):
        inputs = [(i, out) for i, inp in enumerate(transformation.inputs) for out in _outputs(inp)]
        wanted = transformation.parallelism
        if wanted is None and isinstance(transformation.operator, AssignOp):
            # Timestamps are given where the records are, or their order would be lost (rule 37).
            wanted = nodes[inputs[0][1].operator.id].parallelism
        own = min(wanted or parallelism, transformation.most_parallelism or 32768)
        groups = {nodes[out.operator.id].slot_sharing_group for _, out in inputs}
        inherited = groups.pop() if len(groups) == 1 else "default"
        node = StreamNode(
            id=transformation.id,
            name=transformation.name,
            operator=transformation.operator,
            parallelism=own,
            max_parallelism=transformation.max_parallelism
            or max_parallelism
            or max_parallelism_for(own),
            uid=transformation.uid or transformation.uid_hash or "",
            slot_sharing_group=transformation.slot_sharing_group or inherited,
            chaining=transformation.chaining,
            output_type=transformation.output_type,
            buffer_timeout=buffer_timeout
            if transformation.buffer_timeout is None
            else transformation.buffer_timeout,
            declared_at=transformation.declared_at,
            description=transformation.description or transformation.name,
            is_sink=transformation.is_sink,
            error_policy=transformation.error_policy,
            derived_maximum=transformation.max_parallelism is None and max_parallelism is None,
            own_parallelism=transformation.parallelism,
            most_parallelism=transformation.most_parallelism,
        )
        if node.parallelism > node.max_parallelism:
            msg = f"the parallelism of '{node.name}' is above its maximum parallelism"
            raise InvalidArgument(
                msg,
                parallelism=node.parallelism,
                max_parallelism=node.max_parallelism,
                hint="lower the parallelism, or raise the other with set_max_parallelism()",
            )
        if node.uid:
            if node.uid in used_uids:
                msg = f"the uid {node.uid!r} is used by two operators"
                raise InvalidArgument(
                    msg,
                    operators=f"'{used_uids[node.uid]}' and '{node.name}'",
                    hint="a uid names one operator's state; give each its own",
                )
            used_uids[node.uid] = node.name
        nodes[transformation.id] = node
        for index, out in inputs:
            upstream = nodes[out.operator.id]
            chosen = exchange_between(upstream, node, out.partitioning)
            automatic = out.partitioning is None
            edges.append(
                StreamEdge(
                    upstream.id,
                    transformation.id,
                    index,
                    chosen,
                    out.tag_id,
                    out.tag_type,
                    automatic,
                )
            )
    if not generate_uids:
        _check_uids(nodes.values())
    return StreamGraph(
        _with_generated_uids(nodes, edges), tuple(edges), chaining_enabled, parallelism
    )


def exchange_between(
    upstream: StreamNode, node: StreamNode, wanted: Partitioning | None
) -> Partitioning:
    """The exchange that the program wants between two operators, or the one that follows from their parallelism."""
    if wanted is None:
        return FORWARD if upstream.parallelism == node.parallelism else REBALANCE
    if wanted.strategy is Strategy.FORWARD and upstream.parallelism != node.parallelism:
        msg = f"forward() from '{upstream.name}' to '{node.name}' needs the same parallelism on both sides"
        raise InvalidArgument(
            msg,
            parallelism=f"{upstream.parallelism} and {node.parallelism}",
            hint="use rebalance() or rescale(), or set the same parallelism",
        )
    return wanted


def _check_uids(nodes: Iterable[StreamNode]) -> None:
    """All operators must have a uid, but for what collects results for the program itself: nobody can give it one."""
    without = [n for n in nodes if not n.uid and not isinstance(n.operator, CollectOp)]
    if without:
        msg = (
            "Auto generated UIDs have been disabled but no UID or hash has been assigned to operator "
            f"{without[0].name}"
        )
        raise InvalidArgument(
            msg,
            declared_at=without[0].declared_at,
            also=", ".join(node.name for node in without[1:]) or None,
            hint="call uid(...) on each operator, or enable_auto_generated_uids()",
        )


def _with_generated_uids(
    nodes: dict[int, StreamNode], edges: Sequence[StreamEdge]
) -> dict[int, StreamNode]:
    """Operators without a uid get one from their place in the graph, as in Flink: it is stable as long as
    nothing upstream of the operator is added, removed or reordered."""
    from dataclasses import replace

    result: dict[int, StreamNode] = {}
    for position, (node_id, node) in enumerate(nodes.items()):
        uid = node.uid
        if not uid:
            upstream = [result[e.source].uid for e in edges if e.target == node_id]
            text = "|".join([str(position), type(node.operator).__name__, *upstream])
            uid = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
        result[node_id] = replace(node, uid=uid)
    return result
