"""The programs of the cookbook and what its page says that they print."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "cookbook"
PROGRAMS = sorted(path.name for path in FOLDER.glob("*.py"))
# [name](../examples/cookbook/name): some words, and the block with its output.
SHOWN = {
    name: output.splitlines()
    for name, output in re.findall(
        r"\(\.\./examples/cookbook/(\w+\.py)\): [^`]*```\n(.*?)```",
        (ROOT / "docs" / "cookbook.md").read_text(),
        re.DOTALL,
    )
}


def printed_by(name: str, folder: Path, monkeypatch: Any, capfd: Any) -> list[str]:
    """Run a program; the lines of its output. It may write to the folder."""
    script = str(FOLDER / name)
    monkeypatch.setattr(sys, "argv", [script, str(folder)])
    capfd.readouterr()
    runpy.run_path(script, run_name="__main__")
    lines: list[str] = capfd.readouterr().out.splitlines()
    return lines
