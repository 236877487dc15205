"""Pages and pictures that scripts write say what the code does."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "name", ["api_table.py", "option_table.py", "metric_table.py", "import_graph.py", "drawings.py"]
)
def test_the_page_is_up_to_date(name: str) -> None:
    script = [sys.executable, str(ROOT / "scripts" / name), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
