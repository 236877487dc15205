"""docs/api_status.md says what the code does."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_page_is_up_to_date() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "api_table.py"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
