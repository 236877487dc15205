"""Notebooks run in a kernel of their own, and what their cells have put out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "notebooks"


def read(name: str, target: str = "in-process") -> Any:
    """A notebook of the examples, for another target than the one it names if so asked."""
    notebook = nbformat.read(FOLDER / name, as_version=4)
    (named,) = (cell for cell in notebook.cells if cell.source.startswith("TARGET = "))
    named.source = f"TARGET = {target!r}"
    return notebook


def of_cells(*cells: str) -> Any:
    """A notebook of these cells."""
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def run(notebook: Any, seconds: int = 100) -> list[list[Any]]:
    """Run all cells; the outputs of those with code."""
    client = NotebookClient(
        notebook,
        timeout=seconds,
        kernel_name="python3",
        resources={"metadata": {"path": str(ROOT)}},
    )
    client.execute()
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]


def html(outputs: Sequence[Any]) -> str:
    """What a cell shows as HTML."""
    shown = (output.get("data", {}).get("text/html", "") for output in outputs)
    return "\n".join(text for text in shown if text)


def kinds(outputs: Sequence[Any]) -> set[str]:
    """The kinds of data that a cell has put out."""
    return {kind for output in outputs for kind in output.get("data", {})}
