"""What a benchmark measured: as a table, as JSON and as a chart."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from math import ceil, floor, log10
from typing import Any
from xml.sax.saxutils import escape

__all__ = ["Figures", "chart", "document", "machine", "table"]

_COLOURS = ["#0b6e99", "#d9730d", "#6940a5", "#0f7b6c", "#ad1a72", "#64473a"]


@dataclass
class Figures:
    """The timed runs of one system with one query, in events a second. `base` is what others are compared with."""

    query: str
    system: str
    events: int
    rates: list[float] = field(default_factory=list)
    whole_rates: list[float] = field(default_factory=list)
    results: int = 0
    digest: str = ""
    checkpoints: int | None = None
    clocks: set[str] = field(default_factory=set)

    def add(self, result: dict[str, Any]) -> None:
        """Take the line of one run."""
        self.rates.append(result["records"] / max(result["seconds"], 1e-9))
        self.whole_rates.append(result["total_records"] / max(result["whole_seconds"], 1e-9))
        self.results, self.digest = result["results"], result["hash"]
        self.checkpoints = result.get("checkpoints")
        self.clocks.add(result["clock"])

    @property
    def median(self) -> float:
        """The rate that is shown."""
        return statistics.median(self.rates)


def machine() -> str:
    """Cores, memory, load and versions, without names of hosts or folders."""

    def installed(name: str) -> str:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            return f"{name} from source"

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return "; ".join(
        [
            f"{os.cpu_count()} cores, {memory:.0f} GiB, load before the run {os.getloadavg()[0]:.1f}",
            f"{platform.system()} {platform.release().split('-')[0]}",
            f"Python {platform.python_version()}",
            *map(installed, ("millstream", "pyspark")),
            time.strftime("%Y-%m-%d", time.gmtime()),
        ]
    )


def table(found: Sequence[Figures], base: str = "millstream") -> str:
    """A table in Markdown: median, spread and, beside other systems, the ratio to each.

    >>> slow, fast = (
    ...     Figures("q1", "other", 100, [10.0], [5.0]),
    ...     Figures("q1", "millstream", 100, [20.0], [9.0]),
    ... )
    >>> print(" ".join(table([fast, slow]).splitlines()[-1].split()))
    | q1 | other | 100 | 10 | 10 | 10 | 5 | 1 | 0 | 2.00x |
    """
    bases = {item.query: item for item in found if item.system == base}
    compared = any(item.system != base for item in found)
    header = [
        "query",
        "system",
        "events",
        "events/s (median)",
        "min",
        "max",
        "with warm-up",
        "runs",
        "results",
    ]
    lines = [header + ([f"{base} / system"] if compared else [])]
    for item in found:
        mark = " (*)" if "whole" in item.clocks else ""
        rates = [item.median, min(item.rates), max(item.rates), statistics.median(item.whole_rates)]
        line = [
            item.query,
            item.system + mark,
            f"{item.events:,}",
            *(f"{rate:,.0f}" for rate in rates),
        ]
        line += [str(len(item.rates)), f"{item.results:,}"]
        if compared:
            own = bases.get(item.query)
            ratio = "-" if own is None or own is item else f"{own.median / item.median:.2f}x"
            line.append(ratio)
        lines.append(line)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    padded = [map(str.ljust, line, widths) for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in padded)


def document(found: Sequence[Figures], **about: Any) -> str:
    """All of it as JSON."""
    figures = [
        {
            "query": item.query,
            "system": item.system,
            "events": item.events,
            "results": item.results,
            "hash": item.digest,
            "checkpoints": item.checkpoints,
            "clock": sorted(item.clocks),
            "events_per_second": {
                "median": item.median,
                "runs": item.rates,
                "with_warm_up": item.whole_rates,
            },
        }
        for item in found
    ]
    return json.dumps({**about, "figures": figures}, indent=2) + "\n"


def chart(found: Sequence[Figures], title: str) -> str:
    """Bars for each query and system as SVG, on a logarithmic scale; a line from the slowest to the fastest run."""
    systems = list(dict.fromkeys(item.system for item in found))
    queries = list(dict.fromkeys(item.query for item in found))
    # Whole powers of ten, with room on both sides for a bar of any length to be seen.
    low = floor(log10(min(min(item.rates) for item in found)) - 0.1)
    high = max(ceil(log10(max(max(item.rates) for item in found))), low + 1)
    left, width, bar, gap, top = 60, 640, 14, 12, 70
    group = bar * len(systems) + gap
    height = top + group * len(queries) + 40

    def x(rate: float) -> float:
        return round(left + (log10(rate) - low) / (high - low) * width, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 110}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="20" font-size="15">{escape(title)}</text>',
    ]
    for place, system in enumerate(systems):
        at = left + 130 * place
        parts.append(f'<rect x="{at}" y="32" width="12" height="12" fill="{_colour(place)}"/>')
        parts.append(f'<text x="{at + 17}" y="43">{escape(system)}</text>')
    for power in range(low, high + 1):
        tick = x(10**power)
        line = f'x1="{tick}" x2="{tick}" y1="{top - 8}" y2="{height - 30}" stroke="#ddd"'
        number = f'x="{tick}" y="{height - 12}" text-anchor="middle"'
        parts += [f"<line {line}/>", f"<text {number}>{10**power:,}</text>"]
    for item in found:
        place = systems.index(item.system)
        y = top + queries.index(item.query) * group + place * bar
        if place == 0 or all(f.system != systems[0] for f in found if f.query == item.query):
            parts.append(f'<text x="{left - 8}" y="{y + 11}" text-anchor="end">{item.query}</text>')
        end, middle = x(item.median), y + bar / 2 - 1
        parts.append(
            f'<rect x="{left}" y="{y}" width="{max(end - left, 1):.1f}" height="{bar - 2}" '
            f'fill="{_colour(place)}"/>'
        )
        spread = f'x1="{x(min(item.rates))}" x2="{x(max(item.rates))}" y1="{middle}" y2="{middle}"'
        parts.append(f'<line {spread} stroke="black"/>')
        label = f'x="{x(max(item.rates)) + 5}" y="{y + 11}" fill="#555"'
        parts.append(f"<text {label}>{item.median:,.0f}</text>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _colour(place: int) -> str:
    return _COLOURS[place % len(_COLOURS)]
