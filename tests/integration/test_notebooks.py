"""The example notebook on Spark."""

from __future__ import annotations

import pytest

from tests import notebooks
from tests.inprocess.test_notebooks import check_live_windows

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(400)]


def test_live_windows() -> None:
    notebook = notebooks.read("live_windows.ipynb", "spark")
    check_live_windows(notebooks.run(notebook, 300))
