"""Charts: which kind records make, what is drawn of them, and that nothing of theirs is taken for markup."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import NamedTuple
from xml.etree import ElementTree

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common import Row
from millstream.errors import InvalidArgument
from millstream.notebook import chart
from millstream.notebook.fields import fields_of, table_of
from millstream.notebook.svg import COLOURS, MOST_POINTS, ticks


@dataclass
class Reading:
    name: str
    level: float


class Named(NamedTuple):
    name: str
    level: float


def elements(shown, tag):
    root = ElementTree.fromstring(shown.svg())
    return root.findall(f"{{http://www.w3.org/2000/svg}}{tag}")


def texts(shown):
    return [element.text for element in elements(shown, "text")]


@pytest.mark.parametrize(
    "record",
    [
        Reading("weir", 2.5),
        Named("weir", 2.5),
        Row(name="weir", level=2.5),
        {"name": "weir", "level": 2.5},
    ],
)
def test_fields_have_their_names(record):
    assert fields_of(record) == {"name": "weir", "level": 2.5}


def test_fields_without_names_have_numbers():
    assert fields_of(Row("weir", 2.5)) == fields_of(("weir", 2.5)) == {"f0": "weir", "f1": 2.5}
    assert table_of([("a",), "b"]) == (["f0", "value"], [["a", ""], ["", "b"]])


def test_numbers_make_lines_one_for_each_group():
    records = [(n, n * n, "even" if n % 2 == 0 else "odd") for n in range(10)]
    shown = chart(records, x="f0", y="f1", by="f2", title="squares")
    assert shown.kind == "lines"
    lines = elements(shown, "polyline")
    assert [line.get("stroke") for line in lines] == COLOURS[:2]
    assert all(len(line.get("points").split()) == 5 for line in lines)
    assert {"squares", "even", "odd", "0", "f0"} <= set(texts(shown))


def test_higher_values_stand_higher():
    spots = elements(chart([1, 5, 3], y="value"), "circle")
    heights = [float(spot.get("cy")) for spot in spots]
    assert heights[1] < heights[2] < heights[0]


def test_names_make_bars_and_the_last_value_of_a_name_counts():
    shown = chart([("oats", 1), ("rye", 2), ("oats", 4)], x="f0", y="f1")
    assert shown.kind == "bars"
    heights = [float(bar.get("height")) for bar in elements(shown, "rect")]
    assert heights[0] == 2 * heights[1]


def test_windows_are_as_wide_as_they_are_long():
    records = [
        {"start": 0, "end": 10, "n": 1, "key": "a"},
        {"start": 10, "end": 30, "n": 3, "key": "a"},
        {"start": 0, "end": 10, "n": 2, "key": "a"},  # a correction
    ]
    shown = chart(records, x=("start", "end"), y="n", by="key")
    first, second = elements(shown, "rect")[1:]  # before them the legend's
    assert float(second.get("width")) == pytest.approx(2 * float(first.get("width")), rel=0.01)
    assert float(first.get("height")) / float(second.get("height")) == pytest.approx(
        2 / 3, rel=0.01
    )


@pytest.mark.parametrize(
    ("moments", "label"),
    [
        ([datetime(2026, 11, 17, 8, tzinfo=UTC), datetime(2026, 11, 17, 9, tzinfo=UTC)], "08:"),
        ([datetime(2026, 11, 17, 8), datetime(2026, 11, 17, 9)], "08:"),
        ([date(2026, 11, 17), date(2026, 11, 27)], "2026-11-"),
    ],
)
def test_moments_are_written_as_moments(moments, label):
    shown = chart([(at, 1) for at in moments], x="f0", y="f1")
    assert shown.kind == "lines"
    assert any(text and text.startswith(label) for text in texts(shown))


def test_a_frame_is_drawn_by_its_columns():
    frame = pd.DataFrame({"key": ["ann", "ben"], "value": [35, 13]})
    shown = chart(frame, x="key", y="value")
    assert (shown.kind, len(elements(shown, "rect"))) == ("bars", 2)


def test_names_are_not_markup():
    evil = "<script>alert('&')</script>"
    shown = chart([(evil, 1, evil)], x="f0", y="f1", by="f2", title=evil)
    assert "<script" not in shown.svg()
    assert evil in texts(shown)


def test_nothing_yet():
    assert "nothing yet" in texts(chart([], y="n"))
    assert "nothing yet" in texts(chart([(float("nan"),)], y="f0"))


def test_more_points_than_can_be_seen_are_left_out():
    (line,) = elements(chart(range(MOST_POINTS + 500), y="value"), "polyline")
    assert len(line.get("points").split()) == MOST_POINTS


@pytest.mark.parametrize("values", [[0], [-5, 5], [1e-9, 2e-9], [1e15, 3e15], [7, 7]])
def test_any_numbers_can_be_drawn(values):
    shown = chart(values, y="value").svg()
    assert not re.search(r'"(nan|inf|-inf)"', shown)
    for y in re.findall(r'cy="([\d.-]+)"', shown):
        assert 0 <= float(y) <= 240


def test_ticks_are_round_and_inside():
    for low, high in [(0, 1), (0, 97), (-3.2, 8), (1e6, 1.1e6), (0, 1e-3)]:
        found = ticks(low, high)
        assert 3 <= len(found) <= 11
        assert low <= found[0]
        assert found[-1] <= high


@pytest.mark.parametrize(
    "wrong",
    [{"y": "n"}, {"y": "f0"}, {"y": "f1", "by": "n"}, {"y": 1}, {"y": "f1", "x": ("f0",) * 3}],
)
def test_what_cannot_be_drawn_is_refused(wrong):
    with pytest.raises(InvalidArgument):
        chart([("mill", 1)], **wrong)


NUMBERS = [
    None,
    True,
    0,
    -7,
    10**400,
    1e308,
    -1e308,
    5e-324,
    1e16,
    1e16 + 2,
    1.0,
    1.0000000000000002,
]
NUMBERS += [float("nan"), float("inf"), Decimal("1.5"), Decimal("sNaN"), Decimal("-Infinity")]
PLACES = [*NUMBERS, datetime(1, 1, 1), datetime(9999, 12, 31, 23), datetime(2026, 5, 1, tzinfo=UTC)]
PLACES += [date(2026, 5, 1), pd.NaT, "mill", "", "\0\ud800", [1], ()]
place, number = st.sampled_from(PLACES), st.sampled_from(NUMBERS)


@given(st.lists(st.tuples(place, place, number, place), max_size=4))
@pytest.mark.parametrize("x", [None, "f0", ("f0", "f1")])
@pytest.mark.parametrize("by", [None, "f3"])
def test_whatever_records_hold_is_drawn_or_refused(x, by, records):
    try:
        shown = chart(records, y="f2", x=x, by=by)
    except InvalidArgument as error:
        assert "window" in error.what  # noqa: PT017 - most are drawn
        return
    root = ElementTree.fromstring(shown.svg())
    values = [value for element in root.iter() for value in element.attrib.values()]
    assert not [v for v in values if re.search(r"\b(nan|inf)\b", v)]


def test_moments_beside_numbers_that_are_none_of_theirs():
    mixed = [(datetime(2026, 5, 1), 1), (1e16, 2)]
    assert len(elements(chart(mixed, x="f0", y="f1"), "circle")) == 2


@pytest.mark.parametrize(
    "missing", [None, float("nan"), float("inf"), Decimal("sNaN"), 10**400, pd.NaT]
)
def test_what_has_no_place_is_left_out_and_the_rest_is_drawn(missing):
    whole = [(1, 1.0), (2, 3.0)]
    if missing is not pd.NaT:
        assert len(elements(chart([*whole, (1.5, missing)], x="f0", y="f1"), "circle")) == 2
    if missing is not None:  # which is a name, and makes bars
        assert len(elements(chart([*whole, (missing, 2.0)], x="f0", y="f1"), "circle")) == 2
    windows = [(0, 1, 5.0), (missing, 2, 7.0), (1, missing, 7.0)]
    assert len(elements(chart(windows, x=("f0", "f1"), y="f2"), "rect")) == 1


def test_nothing_of_a_notebook_is_imported_before_it_is_used():
    program = (
        "import sys, millstream.datastream, millstream.notebook\n"
        "found = {name.split('.')[0] for name in sys.modules} & {'IPython', 'ipywidgets', 'pandas'}\n"
        "sys.exit(str(found) if found else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
