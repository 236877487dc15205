"""What the jobs of a terminal look like: a line about the job, and a table of its vertices and their operators.

It is made from the document of one job that REST gives (`GET /millstream/jobs/<id>`), whether it comes from there
(`millstream top`) or is made in this process (`kill -USR1`). Nothing in it is trusted: names are anybody's, and a
terminal obeys what it is shown.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from millstream.datastream.progress import lasting
from millstream.redaction import shown
from millstream.reporters.catalogue import BACK_PRESSURED
from millstream.runtime.driver.run import JobRun

__all__ = ["COLUMNS", "as_text", "bottleneck", "document_of", "headline", "rows"]

COLUMNS = (
    "operator",
    "par.",
    "in",
    "out",
    "in/s",
    "out/s",
    "busy",
    "back pr.",
    "wm. lag",
    "late",
    "bad",
    "state",
)
"""The first is text, the others are numbers."""

Document = Mapping[str, Any]


def headline(document: Document) -> str:
    """The job in a line."""
    parts = [
        f"{on_one_line(document['name'])}: {on_one_line(document['state'])}",
        f"epoch {document['epoch']}",
        f"{document['records']:,} records",
        f"{document['records_per_second']:,.0f}/s",
    ]
    if document["restarts"]:
        parts.append(f"{document['restarts']:,} restarts")
    if document["backlog"]:
        parts.append(f"lag {document['backlog']:,}")
    slow = bottleneck(document)
    if slow is not None:
        parts.append(f"held up by {on_one_line(slow['name'])}")
    return ", ".join(parts)


def bottleneck(document: Document) -> Mapping[str, Any] | None:
    """The vertex that others wait for; None if nobody waits for long, or all there is to read has been read."""
    vertices: Sequence[Mapping[str, Any]] = document["vertices"]
    waiting = any(vertex["back_pressured"] >= BACK_PRESSURED for vertex in vertices)
    if not waiting or not document["backlog"]:
        return None
    return max(vertices, key=lambda vertex: float(vertex["busy"]))


def rows(document: Document) -> list[tuple[str, ...]]:
    """A row of cells for each vertex; where several operators make one, each of them has a row below it."""
    table: list[tuple[str, ...]] = []
    for vertex in document["vertices"]:
        operators = vertex["operators"]
        table.append(
            (
                on_one_line(vertex["name"]),
                str(vertex["parallelism"]),
                f"{vertex['records_in']:,}",
                f"{vertex['records_out']:,}",
                f"{vertex['records_in_per_second']:,.0f}",
                f"{vertex['records_out_per_second']:,.0f}",
                f"{vertex['busy']:.0%}",
                f"{vertex['back_pressured']:.0%}",
                "" if vertex["watermark_lag"] is None else lasting(vertex["watermark_lag"] / 1000),
                f"{vertex['late']:,}",
                f"{vertex['bad']:,}",
                size(vertex["state_bytes"]),
            )
        )
        table += [
            (
                f"  {on_one_line(operator['name'])}",
                "",
                f"{operator['records_in']:,}",
                f"{operator['records_out']:,}",
                *[""] * 5,
                f"{operator['late']:,}",
                f"{operator['bad']:,}",
                "",
            )
            for operator in (operators if len(operators) > 1 else ())
        ]
    return table


def as_text(document: Document, width: int = 40) -> str:
    """The line and the table as plain text; names are cut to a width."""
    table = [COLUMNS, *rows(document)]
    table = [(_cut(row[0], width), *row[1:]) for row in table]
    widths = [max(len(row[column]) for row in table) for column in range(len(COLUMNS))]
    lines = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(wide) for cell, wide in zip(row[1:], widths[1:], strict=True)),
            ]
        ).rstrip()
        for row in table
    ]
    return "\n".join([headline(document), *lines])


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def on_one_line(name: Any) -> str:
    """A name of anybody's, which is not to look like a line of its own."""
    return shown(str(name)).replace("\n", "\\n").replace("\t", "\\t")


def size(count: float) -> str:
    """A number of bytes for people.

    >>> size(999), size(12_345), size(7_000_000)
    ('999 B', '12.3 kB', '7.0 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def document_of(run: JobRun) -> Document:
    """The document of a job of this process, as REST would give it."""
    job = import_module("millstream.rest.jobs").ShownJob(run, {})
    document: Document = import_module("millstream.rest.document").document(job, time.time())
    return document
