"""A page of the documentation that a script writes: write it, or with --check tell whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def main(name: str, text: str) -> int:
    """The command line of a script that has made the page's text."""
    page = DOCS / name
    if "--check" not in sys.argv[1:]:
        page.write_text(text, encoding="utf-8")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"docs/{name} is not up to date: run python {sys.argv[0]}", file=sys.stderr)
    return 1
