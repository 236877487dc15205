"""Writes docs/metrics.md: every metric that Millstream has, its name in Prometheus, its unit and what it means.

Nothing in that page is written by hand: it is `millstream.reporters.catalogue`, in its order. Usage:
python scripts/metric_table.py [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import written_page
from option_table import cell

from millstream.reporters import catalogue
from millstream.reporters.catalogue import MetricInfo, Series
from millstream.reporters.samples import OF_JOB, OF_OPERATOR, OF_TASK
from millstream.runtime.driver.metrics import RATE_SECONDS

HEAD = f"""\
# Metrics

Written by `scripts/metric_table.py` from the code; do not edit. The names are Flink's where Flink has one.
[Monitoring](monitoring.md) says how to look at them.

- A counter is a total since this driver started the job; what tasks counted that failed is not in it. A gauge is what
  is now. A meter is what there is a second, over the last {RATE_SECONDS:g} seconds; so are the gauges of time.
- Figures change when an epoch has run. What is not known is left out.
- In Prometheus a metric has its scope's prefix before its name, and is a gauge, as those of Flink's reporter are.
"""

LABELS_OF_TASK = "`host`, `tm_id`, `job_id`, `job_name`, `task_id`, `task_name`, `subtask_index`"


def table(metrics: Iterable[MetricInfo[Any] | Series]) -> list[str]:
    """The lines of a table."""
    return [
        "| name | kind | unit | what it is |",
        "|---|---|---|---|",
        *(f"| `{m.name}` | {m.kind} | {m.unit} | {cell(m.meaning)} |" for m in metrics),
    ]


def page() -> str:
    """The whole page."""
    series = [
        "| name | kind | unit | labels of its own | what it is |",
        "|---|---|---|---|---|",
        *(
            f"| `{s.name}` | {s.kind} | {s.unit} | {', '.join(f'`{of}`' for of in s.labels)} | {cell(s.meaning)} |"
            for s in catalogue.SERIES
        ),
    ]
    lines = [
        "## Of a job",
        "",
        f"Prefix `{OF_JOB}`, labels `host` (the driver's), `job_id`, `job_name`.",
        "",
        *table(catalogue.JOB),
        "",
        "With labels of their own:",
        "",
        *series,
        "",
        "## Of a task: a subtask of a vertex",
        "",
        f"Prefix `{OF_TASK}`, labels {LABELS_OF_TASK}.",
        "",
        *table(catalogue.TASK),
        "",
        "## Of an operator in a subtask",
        "",
        f"Prefix `{OF_OPERATOR}`, labels as those of its task, `operator_id`, `operator_name`.",
        "",
        *table(catalogue.OPERATOR),
        "",
        "## Of a program's own functions",
        "",
        f"Prefix `{OF_OPERATOR}`, the names of the groups and the metric's own, joined by underscores, as in",
        f"`{OF_OPERATOR}parsing_broken`; labels as those of its operator, and the values of groups that have one.",
        "",
        "| kind | in Prometheus | over all subtasks |",
        "|---|---|---|",
        "| counter | its count | the sum |",
        "| meter | events a second; `_count`: how many there were | the sums |",
        "| gauge | its value | the sum, the least and the largest |",
        "| distribution | `_count`, `_sum`, `_min`, `_max` | sums, the least and the largest |",
    ]
    return HEAD + "\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(written_page.main("metrics.md", page()))
