"""Streams and state in a notebook: a live view of a stream that runs, and charts of its records or of any frame.

`stream.show()` starts the program and draws what comes; `chart` draws what is there: records of a list, or the rows
of a pandas frame such as `millstream.state.read_pandas` gives. Charts are SVG made here, without a library.
"""

from __future__ import annotations

from millstream.notebook.chart import Chart, chart
from millstream.notebook.view import LiveView

__all__ = ["Chart", "LiveView", "chart"]
