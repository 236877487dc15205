"""Flink's resource requirements of a job: how many subtasks each vertex may have, read and changed.

A job has one default parallelism here, so a change names one number for all vertices that follow it. Vertices whose
parallelism the program has set keep it, and may be named with what they have. A lower bound is what the job would do
with at least; as there is no waiting for slots here, it is 1 and has no effect.
"""

from __future__ import annotations

from typing import Any

import msgspec

from millstream.errors import MillstreamError
from millstream.redaction import shown
from millstream.rest.jobs import ShownJob
from millstream.rest.logs import audit
from millstream.rest.security import Refused
from millstream.rest.shape import shape_of

__all__ = ["Bounds", "Requirements", "VertexRequirements", "change", "requirements"]


class Bounds(msgspec.Struct, forbid_unknown_fields=True):
    """The least and the most subtasks of a vertex."""

    lower: int = msgspec.field(name="lowerBound", default=1)
    upper: int = msgspec.field(name="upperBound", default=1)


class VertexRequirements(msgspec.Struct, forbid_unknown_fields=True):
    """What a vertex needs."""

    parallelism: Bounds


Requirements = dict[str, VertexRequirements]
"""By the ids of a job's vertices, all of them."""


def requirements(job: ShownJob) -> dict[str, Any]:
    """What the vertices of a job have, in Flink's words."""
    return {
        vertex.id: {"parallelism": {"lowerBound": 1, "upperBound": vertex.parallelism}}
        for vertex in job.shape.vertices
    }


def change(job: ShownJob, asked: Requirements, client: str) -> None:
    """Have a job rescaled; what comes of it is seen in the job, as in Flink."""
    run = job.run
    if run is None or run.done:
        raise Refused(409, f"the job has ended: {job.state}")
    if run.metrics is None:
        raise Refused(409, "the job has not begun yet")
    known = {vertex.id: vertex for vertex in job.shape.vertices}
    if asked.keys() != known.keys():
        raise Refused(400, "the requirements have to name every vertex of the job, and no other")
    for id_, vertex in known.items():
        bounds = asked[id_].parallelism
        if not 1 <= bounds.lower <= bounds.upper:
            raise Refused(
                400, f"{vertex.name}: the lower bound is 1 at least and not above the upper"
            )
        if bounds.upper > vertex.max_parallelism:
            most = vertex.max_parallelism
            raise Refused(
                400, f"{vertex.name}: the upper bound is above its maximum parallelism, {most}"
            )
    wanted = _wanted(job, asked)
    audit.info("parallelism %d of job %s (%s) asked by %s", wanted, job.id, job.name, client)
    try:
        run.rescale(wanted)
    except MillstreamError as error:
        raise Refused(409, shown(str(error))) from None


def _wanted(job: ShownJob, asked: Requirements) -> int:
    """The default parallelism that gives every vertex what is asked for."""
    run = job.run
    assert run is not None
    uppers = sorted({need.parallelism.upper for need in asked.values()}, reverse=True)
    for candidate in uppers:
        try:
            shape = shape_of(run.job.at_parallelism(candidate))
        except MillstreamError:
            continue
        # Vertices may be chained in another way there, and be fewer or more; who begins one keeps its id.
        got = {vertex.id: vertex.parallelism for vertex in shape.vertices}
        if all(
            need.parallelism.upper in (candidate, got.get(id_, candidate))
            for id_, need in asked.items()
        ):
            return candidate
    raise Refused(
        400,
        "vertices whose parallelism the program has not set have one parallelism: name the same upper bound for all",
    )
