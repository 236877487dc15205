"""Notebooks run from the first cell to the last, in a kernel: views are drawn there, followed and stopped."""

from __future__ import annotations

import json
import re

import pytest

from tests import notebooks

BUTTON = "application/vnd.jupyter.widget-view+json"
ENDLESS = """
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
env = StreamExecutionEnvironment.get_execution_environment("in-process")
source = DataGeneratorSource(lambda n: n, rate_per_second=100)
view = env.from_source(source, None, "numbers").show(every="50 ms")
"""

pytestmark = pytest.mark.timeout(240)


def check_live_windows(outputs):
    """What the example has drawn, wherever it has run."""
    _, _, rates, _, described, windows, _, state, plotted = outputs
    assert BUTTON in notebooks.kinds(rates)
    shown = notebooks.html(rates)
    assert re.search(r"readings: CANCELED, [\d,]+ records", shown)
    assert "records a second" in shown
    assert "mill" in notebooks.html(described)
    drawn = notebooks.html(windows)
    assert "windows: FINISHED" in drawn
    assert drawn.count("<rect") >= 9  # three sensors in three windows at least
    assert drawn.count("<svg") == 1  # drawn over, not added
    (frame,) = (output["data"]["text/plain"] for output in state if "data" in output)
    totals = dict(re.findall(r"(mill|weir|lock) +(\d+)", frame))
    assert len(totals) == 3
    # The first window of each sensor: 34 readings or 33 in five seconds, of known litres.
    assert all(int(total) >= 900 for total in totals.values())
    assert notebooks.html(plotted).count("<rect") == 3
    assert "from the savepoint" in notebooks.html(plotted)


def test_live_windows():
    check_live_windows(notebooks.run(notebooks.read("live_windows.ipynb")))


def test_the_button_of_a_notebook_stops_the_job():
    notebook = notebooks.of_cells(
        ENDLESS,
        "view.wait(0.5)\nbutton = view._screen.button\nbutton.click()\nview.wait()",
        "print(view.client.get_job_status().result().name, button.disabled)",
    )
    shown, _, printed = notebooks.run(notebook)
    assert BUTTON in notebooks.kinds(shown)
    assert "CANCELED" in notebooks.html(shown)
    assert printed[0]["text"] == "CANCELED True\n"


def test_without_widgets_a_view_is_plain_html():
    notebook = notebooks.of_cells(
        "import sys\nsys.modules['ipywidgets'] = None" + ENDLESS,
        "view.wait(0.5)\nrunning = view.html()",
        "view.stop()\nprint('stop() ends it' in running)",
    )
    shown, _, printed = notebooks.run(notebook)
    assert notebooks.kinds(shown) == {"text/html", "text/plain"}
    assert "CANCELED" in notebooks.html(shown)
    assert printed[0]["text"] == "True\n"


@pytest.mark.parametrize("path", sorted(notebooks.FOLDER.glob("*.ipynb")), ids=lambda p: p.name)
def test_notebooks_are_kept_without_what_they_have_put_out(path):
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
