"""How streams and results look in a notebook: HTML tables that say what there is and run nothing.

`_repr_html_` of the classes comes here. A stream is shown as its operators, sources first; virtual steps
(`key_by`, `union`, side outputs, exchanges) stand in the column of the inputs, as they are properties of edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millstream.common.notebook import facts, job_facts, table
from millstream.graph.operators import Key
from millstream.graph.partitioning import Partitioning
from millstream.graph.transformations import (
    OperatorTransformation,
    PartitionTransformation,
    SideOutputTransformation,
    Transformation,
    UnionTransformation,
)

if TYPE_CHECKING:
    from millstream.datastream.closeable_iterator import CloseableIterator
    from millstream.datastream.data_stream import DataStream

__all__ = ["iterator_html", "stream_html"]

_HEAD = ("no.", "operator", "parallelism", "type", "reads")


def stream_html(stream: DataStream) -> str:
    """The operators that lead to a stream.

    >>> from millstream.datastream import StreamExecutionEnvironment
    >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
    >>> words = env.from_collection(["a"]).map(str.upper).name("upper <case>").key_by(0)
    >>> shown = words._repr_html_()
    >>> "upper &lt;case&gt;" in shown, "KeyedStream" in shown
    (True, True)
    """
    above = _above(stream._transformation)
    numbers = {transformation.id: number for number, transformation in enumerate(above, 1)}
    default = stream.get_execution_environment().get_parallelism()
    rows = [
        (
            numbers[transformation.id],
            transformation.name,
            _parallelism(transformation, default),
            "" if transformation.output_type is None else transformation.output_type,
            "; ".join(_read(inp, numbers) for inp in transformation.inputs),
        )
        for transformation in above
    ]
    view = _read(stream._transformation, numbers)
    return table(f"{type(stream).__name__}: what comes from {view}", _HEAD, rows)


def _inputs(transformation: Transformation) -> tuple[Transformation, ...]:
    if isinstance(transformation, OperatorTransformation | UnionTransformation):
        return transformation.inputs
    if isinstance(transformation, PartitionTransformation | SideOutputTransformation):
        return (transformation.input,)
    return ()


def _above(last: Transformation) -> list[OperatorTransformation]:
    """All operators up to this one, in the order in which they were declared."""
    seen: dict[int, Transformation] = {}
    waiting = [last]
    while waiting:
        transformation = waiting.pop()
        if transformation.id not in seen:
            seen[transformation.id] = transformation
            waiting.extend(_inputs(transformation))
    return [
        transformation
        for _, transformation in sorted(seen.items())
        if isinstance(transformation, OperatorTransformation)
    ]


def _parallelism(transformation: OperatorTransformation, default: int) -> str:
    if transformation.parallelism is not None:
        return str(transformation.parallelism)
    return f"{min(default, transformation.most_parallelism or default)} (default)"


def _read(transformation: Transformation, numbers: dict[int, int]) -> str:
    """An input in words: the numbers of the operators behind it, and what lies between."""
    match transformation:
        case UnionTransformation(inputs=inputs):
            return " and ".join(_read(inp, numbers) for inp in inputs)
        case SideOutputTransformation(input=inp, tag_id=tag):
            return f"{_read(inp, numbers)}, side output '{tag}'"
        case PartitionTransformation(input=inp, partitioning=partitioning):
            return f"{_read(inp, numbers)}, {' '.join(_exchange(partitioning))}"
    return str(numbers[transformation.id])


def _exchange(partitioning: Partitioning) -> Iterator[str]:
    yield partitioning.strategy.value
    if partitioning.key is not None:
        yield f"by {_key(partitioning.key)}"


def _key(key: Key) -> str:
    if key.field is not None:
        return f"field {key.field}"
    selector: Any = key.selector
    return str(getattr(selector, "__name__", type(selector).__name__))


def iterator_html(results: CloseableIterator) -> str:
    """Results as they come: how far the job is. Takes none of them."""
    name = results._run.job.settings.name
    return facts(f"Results of '{name}'; iterate to read them", job_facts(results._run))
