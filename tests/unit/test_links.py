"""Documentation that can be found: every page is linked from the README, and no link leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])


def links(page: Path) -> list[str]:
    """Targets of links into this repository, without what follows a #."""
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [link.partition("#")[0] for link in found if not re.match(r"\w+:|#", link)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    lost = [link for link in links(page) if not (page.parent / link).exists()]
    assert lost == []


def test_every_page_of_the_documentation_is_linked_from_the_readme() -> None:
    linked = set(links(ROOT / "README.md"))
    assert {f"docs/{page.name}" for page in ROOT.glob("docs/*.md")} <= linked
