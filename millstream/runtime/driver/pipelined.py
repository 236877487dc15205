"""What cannot run in pipelined mode, and why."""

from __future__ import annotations

from millstream.errors import UnsupportedOperation
from millstream.graph.operators import CollectOp
from millstream.runtime.driver.job import Job

__all__ = ["check_pipelined", "why_not"]


def why_not(job: Job) -> str | None:
    """Why the records of a job cannot flow through all levels at once; None if they can."""
    if job.batch:
        return "BATCH mode runs one level after the other"
    if job.loops:
        return "an iteration goes round once in each epoch"
    if job.frame_sources:
        name = job.frame_sources[0].head.name
        return f"'{name}' is a Spark frame, whose records come with Spark's micro-batches"
    for node in job.graph.nodes.values():
        if isinstance(node.operator, CollectOp) and node.operator.schema is not None:
            return f"'{node.name}' is a Spark frame, which is written micro-batch by micro-batch"
    if job.settings.mode == "AT_MOST_ONCE":
        return "AT_MOST_ONCE writes down what is read before it is read"
    if not job.split_sources:
        return "it has no source"
    return None


def check_pipelined(job: Job) -> None:
    """Raise if the job is to run in pipelined mode, and cannot."""
    if job.settings.execution_mode != "PIPELINED":
        return
    reason = why_not(job)
    if reason is not None:
        raise UnsupportedOperation(
            f"the job cannot run in pipelined mode: {reason}",
            hint="leave execution.mode out, or set it to micro-batch",
        )
