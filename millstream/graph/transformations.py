"""The program as the user writes it down (Flink's `Transformation`).

A `DataStream` points at one of these. They are the only mutable things in `graph`: `name`, `uid` and
`set_parallelism` come after the operator they describe. Nothing here runs, and nothing here starts Spark.
"""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass, field
from typing import Any

from millstream.graph.operators import Operator
from millstream.graph.partitioning import Partitioning
from millstream.redaction import shown

__all__ = [
    "ChainingStrategy",
    "IterationTransformation",
    "OperatorTransformation",
    "PartitionTransformation",
    "SideOutputTransformation",
    "SourceLine",
    "Transformation",
    "UnionTransformation",
    "calling_line",
    "line_of",
]


@dataclass(frozen=True)
class SourceLine:
    """The user's line that declared an operator, so that a failure can point at it."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.text else f"{self.file}:{self.line}"


def calling_line() -> SourceLine | None:
    """The innermost line on the stack that is not Millstream's own."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module != "millstream" and not module.startswith("millstream."):
            code, number = frame.f_code, frame.f_lineno
            text = linecache.getline(code.co_filename, number).strip()
            return SourceLine(code.co_filename, number, shown(text))
        frame = frame.f_back  # type: ignore[assignment]
    return None


def line_of(method: Any) -> SourceLine | None:
    """Where a user's method is written."""
    code = getattr(method, "__code__", None)
    if code is None:
        return None
    file, line = code.co_filename, code.co_firstlineno
    return SourceLine(file, line, shown(linecache.getline(file, line).strip()))


class ChainingStrategy:
    """Whether an operator may be fused with its neighbours (Flink's `ChainingStrategy`)."""

    ALWAYS = "ALWAYS"
    HEAD = "HEAD"
    NEVER = "NEVER"


@dataclass(eq=False)
class Transformation:
    """The root: something whose records can be read by others."""

    id: int
    output_type: Any = None


@dataclass(eq=False)
class PartitionTransformation(Transformation):
    """The input's records, to be spread over the next operator in a certain way."""

    input: Transformation = field(kw_only=True)
    partitioning: Partitioning = field(kw_only=True)


@dataclass(eq=False)
class UnionTransformation(Transformation):
    """The records of several inputs."""

    inputs: tuple[Transformation, ...] = field(kw_only=True)


@dataclass(eq=False)
class SideOutputTransformation(Transformation):
    """The records that the input operator sent to a tag."""

    input: Transformation = field(kw_only=True)
    tag_id: str = field(kw_only=True)


@dataclass(eq=False)
class OperatorTransformation(Transformation):
    """An operator over 0 (source), 1 or 2 inputs."""

    name: str = field(kw_only=True)
    operator: Operator = field(kw_only=True)
    inputs: tuple[Transformation, ...] = field(kw_only=True)
    parallelism: int | None = None
    max_parallelism: int | None = None
    most_parallelism: int | None = None
    uid: str | None = None
    uid_hash: str | None = None
    description: str | None = None
    slot_sharing_group: str | None = None
    chaining: str = ChainingStrategy.ALWAYS
    buffer_timeout: int | None = None
    declared_at: SourceLine | None = None
    is_sink: bool = False
    error_policy: Any = None


@dataclass(eq=False)
class IterationTransformation(OperatorTransformation):
    """The beginning of a loop; `tail` is its end, once the program has closed it."""

    tail: OperatorTransformation | None = None
