"""Lines, bars and windows as SVG. Text has the colour of the notebook, so that it can be read on light and on dark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from html import escape
from math import ceil, floor, isfinite, log10, nan
from typing import Any

__all__ = ["draw", "place_of", "ticks"]

WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 62, 30, 34, 40
# Told apart by who sees colours differently, too, and in print: no two are equally dark.
COLOURS = ["#0b7285", "#e8590c", "#7048e8", "#2b8a3e", "#c2255c", "#868e96", "#f08c00", "#364fc7"]
# More points than can be seen only cost time.
MOST_POINTS = 2000
# What is larger is not drawn, and what is closer together is the same: beyond, the difference of two numbers is none.
MOST, LEAST = 1e300, 1e-300
# No XML may hold these, not even escaped.
_NO_TEXT = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Series = dict[str, list[tuple[Any, ...]]]
Scale = Callable[[float], float]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from `low` to `high`.

    >>> ticks(0, 47), ticks(3, 3)
    ([0.0, 10.0, 20.0, 30.0, 40.0], [3.0])
    """
    rough = (high - low) / about
    if rough <= max(LEAST, abs(high) * 1e-14):
        return [float(low)]
    power = 10.0 ** floor(log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.75)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(first, last + 1)]


def draw(kind: str, series: Series, title: str, x_label: str, y_label: str) -> str:
    """A chart of kind `lines`, `bars` or `windows`. Points are (x, y), those of windows (start, end, y).

    >>> shown = draw("lines", {"<a>": [(0, 1.0), (1, 3.0)]}, "litres", "minute", "litres")
    >>> "polyline" in shown, "&lt;a&gt;" in shown
    (True, True)
    """
    at = {"bars": 0, "windows": 2}.get(kind, 1)
    series = {name: _drawable(points, at) for name, points in series.items()}
    every = [point for points in series.values() for point in points]
    parts = [_frame(title, x_label, y_label), *_legend(series)]
    if not every:
        parts.append(_text(WIDTH / 2, HEIGHT / 2, "nothing yet", "middle"))
        return "\n".join([*parts, "</svg>"])
    top = max(0.0, *(point[-1] for point in every))
    bottom = min(0.0, *(point[-1] for point in every))
    y = _scale(bottom, top, HEIGHT - BOTTOM, TOP)
    parts += _y_axis(y, bottom, top)
    if kind == "bars":
        parts += _bars(series, y)
    elif kind == "windows":
        parts += _windows(series, every, y)
    else:
        parts += _lines(series, every, y)
    return "\n".join([*parts, "</svg>"])


def _drawable(points: list[tuple[Any, ...]], places: int) -> list[tuple[Any, ...]]:
    """Points whose number, and whose first fields if these are places on the x axis, can be drawn."""
    found = []
    for point in points:
        numbers = [point[-1], *map(place_of, point[:places])]
        if all(isfinite(number) and abs(number) <= MOST for number in numbers):
            found.append(point)
    return found[-MOST_POINTS:]


def _scale(low: float, high: float, begin: float, end: float) -> Scale:
    span = (high - low) or 1.0
    return lambda value: round(begin + (value - low) / span * (end - begin), 1)


def _text(x: float, y: float, text: str, anchor: str = "start", more: str = "") -> str:
    shown = escape(_NO_TEXT.sub("\ufffd", text))
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" {more}>{shown}</text>'


def _frame(title: str, x_label: str, y_label: str) -> str:
    bold = 'font-weight="600"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}" font-family="sans-serif" font-size="11" fill="currentColor" role="img">',
            _text(LEFT, 14, title or y_label, "start", bold),
            _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, "middle"),
        ]
    )


def _legend(series: Series) -> Iterable[str]:
    at = LEFT
    for place, name in enumerate(series):
        if name and place < len(COLOURS):
            yield f'<rect x="{at}" y="20" width="9" height="9" fill="{_colour(place)}"/>'
            yield _text(at + 13, 28, name[:20])
            at += 30 + 6 * len(name[:20])


def _colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def _y_axis(y: Scale, bottom: float, top: float) -> Iterable[str]:
    for tick in ticks(bottom, top):
        line = f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick)}" y2="{y(tick)}"'
        yield f'<line {line} stroke="currentColor" stroke-opacity="0.15"/>'
        yield _text(LEFT - 6, y(tick) + 4, f"{tick:,g}", "end")


def _x_axis(x: Scale, low: float, high: float, moments: bool) -> Iterable[str]:
    for tick in ticks(low, high, 6):
        shown = _moment(tick, high - low) if moments else f"{tick:,.12g}"
        yield _text(x(tick), HEIGHT - BOTTOM + 16, shown, "middle")


def _moment(seconds: float, span: float) -> str:
    form = "%H:%M:%S" if span < 86_400 else "%Y-%m-%d"
    return f"{datetime.fromtimestamp(seconds, UTC):{form}}"


def place_of(value: Any) -> float:
    """Where a number or a moment stands on the x axis; one without a zone is taken for UTC. NaN if it has no place.

    >>> place_of(2), place_of(date(1970, 1, 2)), place_of(None)
    (2.0, 86400.0, nan)
    """
    try:
        if isinstance(value, datetime):
            aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            return aware.timestamp()
        if isinstance(value, date):
            return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return nan


def _all_moments(every: list[tuple[Any, ...]]) -> bool:
    return all(isinstance(place, date) for point in every for place in point[:-1])


def _lines(series: Series, every: list[tuple[Any, ...]], y: Scale) -> Iterable[str]:
    places = [place_of(point[0]) for point in every]
    low, high = min(places), max(places)
    x = _scale(low, high, LEFT, WIDTH - RIGHT)
    yield from _x_axis(x, low, high, _all_moments(every))
    for number, points in enumerate(series.values()):
        spots = [(x(place_of(at)), y(value)) for at, value in points]
        line = " ".join(f"{a},{b}" for a, b in spots)
        yield f'<polyline points="{line}" fill="none" stroke="{_colour(number)}" stroke-width="1.5"/>'
        if len(spots) <= 60:
            yield from (
                f'<circle cx="{a}" cy="{b}" r="2" fill="{_colour(number)}"/>' for a, b in spots
            )


def _windows(series: Series, every: list[tuple[Any, ...]], y: Scale) -> Iterable[str]:
    low = min(place_of(point[0]) for point in every)
    high = max(place_of(point[1]) for point in every)
    x = _scale(low, high, LEFT, WIDTH - RIGHT)
    yield from _x_axis(x, low, high, _all_moments(every))
    for number, points in enumerate(series.values()):
        for start, end, value in points:
            left, right = x(place_of(start)), x(place_of(end))
            # Windows of several keys lie over each other, so that it is their upper edges that are read.
            yield _box(left, right - left, value, y, number, 'fill-opacity="0.12"')
            edge = f'x1="{left}" x2="{right}" y1="{y(value)}" y2="{y(value)}"'
            yield f'<line {edge} stroke="{_colour(number)}" stroke-width="3"/>'


def _bars(series: Series, y: Scale) -> Iterable[str]:
    names = list(dict.fromkeys(str(at) for points in series.values() for at, _ in points))
    group = (WIDTH - LEFT - RIGHT) / len(names)
    width = max(group * 0.8 / len(series), 0.5)
    for place, name in enumerate(names):
        if place % ceil(len(names) / 16) == 0:
            middle = round(LEFT + group * (place + 0.5), 1)
            yield _text(middle, HEIGHT - BOTTOM + 16, name[: max(int(group / 6), 3)], "middle")
    for number, points in enumerate(series.values()):
        for at, value in points:
            left = LEFT + group * (names.index(str(at)) + 0.1) + width * number
            yield _box(left, width, value, y, number)


def _box(left: float, width: float, value: float, y: Scale, number: int, more: str = "") -> str:
    high, low = min(y(value), y(0)), max(y(value), y(0))
    place = f'x="{left:.1f}" width="{max(width, 0.5):.1f}" y="{high}" height="{low - high:.1f}"'
    return f'<rect {place} fill="{_colour(number)}" stroke="{_colour(number)}" {more}/>'
