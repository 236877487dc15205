"""Steps that are an operator's though no generated line of it runs: what fails in one is the operator's failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from millstream.graph.stream_graph import StreamNode

__all__ = ["IN_OPERATOR", "Step", "in_operator"]

Given = TypeVar("Given")
Result = TypeVar("Result")

Step = Callable[[int], None]
"""What a watermark, or the clock, sets off."""


def in_operator(node: StreamNode, step: Callable[[Given], Result]) -> Callable[[Given], Result]:
    """A step that is an operator's: what fails in it is the operator's failure (`millstream.runtime.task.failure`)."""

    def of_operator(value: Given) -> Result:
        return step(value)

    # Found again in the traceback of what fails.
    of_operator.__code__ = of_operator.__code__.replace(co_name=f"{IN_OPERATOR}{node.id}")
    return of_operator


IN_OPERATOR = "millstream_operator_"
