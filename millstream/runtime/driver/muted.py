"""A job without its sinks, for whoever runs an epoch that nobody is to see the output of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from millstream.checkpoint.manifest import Manifest
from millstream.graph.operators import CollectOp, PrintOp, SinkFunctionOp, SinkOp
from millstream.runtime.driver.job import Job

__all__ = ["muted", "muted_sinks", "without_states"]

_SINKS = (SinkOp, SinkFunctionOp, PrintOp, CollectOp)


def muted_sinks(job: Job) -> dict[str, str]:
    """The operators that do not run in a muted job, by uid, with their names."""
    return {n.uid: n.name for n in job.graph.nodes.values() if isinstance(n.operator, _SINKS)}


def _discard(value: Any, context: Any) -> None:
    """In place of every sink."""


def muted(job: Job) -> Job:
    """The job with sinks that do nothing. Its edges stay what they were, timestamps for sinks included."""
    levels = tuple(
        replace(
            level,
            vertices=tuple(
                replace(
                    vertex,
                    nodes=tuple(
                        replace(node, operator=SinkFunctionOp(_discard))  # type: ignore[arg-type]
                        if isinstance(node.operator, _SINKS)
                        else node
                        for node in vertex.nodes
                    ),
                )
                for vertex in level.vertices
            ),
        )
        for level in job.plan.levels
    )
    return replace(job, plan=replace(job.plan, levels=levels))


def without_states(manifest: Manifest, uids: Mapping[str, str]) -> Manifest:
    """The manifest without what is known of the states of some operators, which nobody asks for."""
    operators = {
        uid: msgspec.structs.replace(info, states={}) if uid in uids else info
        for uid, info in manifest.operators.items()
    }
    return msgspec.structs.replace(manifest, operators=operators)
