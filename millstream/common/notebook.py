"""Small HTML tables for notebooks: the parts, and how a job and its result look as one.

A notebook shows what `_repr_html_` returns in the place of the `repr`. Everything that goes into a table is
escaped here, in one place. What is only known to a higher layer is in `millstream.datastream.notebook`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

__all__ = ["facts", "job_client", "job_facts", "job_result", "table"]

_LEFT = ' style="text-align: left"'


def _cell(tag: str, content: Any) -> str:
    return f"<{tag}{_LEFT}>{escape(str(content))}</{tag}>"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of texts; numbers and everything else are shown as `str` shows them.

    >>> "<b>" in table("a <b>", ["x"], [[1], ["<b>"]])
    False
    """
    lines = [f"<table><caption{_LEFT}>{escape(caption)}</caption>"]
    if head:
        lines.append(f"<thead><tr>{''.join(_cell('th', cell) for cell in head)}</tr></thead>")
    body = ("".join(_cell("td", cell) for cell in row) for row in rows)
    lines.append(f"<tbody>{''.join(f'<tr>{cells}</tr>' for cells in body)}</tbody></table>")
    return "\n".join(lines)


def facts(caption: str, known: dict[str, Any]) -> str:
    """A table of names and values; what is None is left out.

    >>> print(facts("a job", {"status": "RUNNING", "epoch": None}))
    <table><caption style="text-align: left">a job</caption>
    <tbody><tr><td style="text-align: left">status</td><td style="text-align: left">RUNNING</td></tr></tbody></table>
    """
    return table(caption, (), [pair for pair in known.items() if pair[1] is not None])


def job_facts(run: Any) -> dict[str, Any]:
    """What whoever runs a job knows of it now."""
    known: dict[str, Any] = {"status": run.status.name}
    metrics = run.metrics
    if metrics is not None:
        known["records"] = f"{metrics.records:,} ({metrics.records_per_second:,.0f} a second)"
        known["epoch"] = metrics.epoch if metrics.epoch >= 0 else None
        known["checkpoints"] = metrics.checkpoints
        known["restarts"] = metrics.restarts or None
    known["error"] = getattr(run, "error", None)
    return known


def job_client(client: Any) -> str:
    """A job that was submitted (a `JobClient`), as it is now."""
    known = {"id": client.get_job_id(), **job_facts(client._run)}
    return facts(f"Job '{client._name}'", known)


def job_result(result: Any) -> str:
    """A job that has finished (its `JobExecutionResult`)."""
    known = {"id": result.get_job_id(), "run time": f"{result.get_net_runtime() / 1000:,.1f} s"}
    return facts("Job, finished", {**known, **result.get_all_accumulator_results()})
