"""Documentation that can be found: pages are linked from the README and stand in the site; no link leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])


def without_code(page: Path) -> str:
    """A page's text without blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[tuple[str, str]]:
    """Targets of links into this repository: the file, empty for the page itself, and what follows a #."""
    found = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", without_code(page)))
    parts = [link.partition("#") for link in found if not re.match(r"\w+:", link)]
    return [(file, anchor) for file, _, anchor in parts]


def anchors(page: Path) -> set[str]:
    """What a # can lead to: the headings, as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    lost = []
    for file, anchor in links(page):
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(f"{file}#{anchor}")
    assert lost == []


def test_every_page_of_the_documentation_is_linked_from_the_readme() -> None:
    linked = {file for file, _ in links(ROOT / "README.md")}
    assert {f"docs/{page.name}" for page in ROOT.glob("docs/*.md")} <= linked


# -- the site --------------------------------------------------------------------------------------


def in_navigation(nav: object) -> list[str]:
    """The pages and patterns of a navigation, in its order."""
    match nav:
        case str():
            return [nav]
        case dict():
            return [page for below in nav.values() for page in in_navigation(below)]
        case list():
            return [page for one in nav for page in in_navigation(one)]
    raise AssertionError(nav)


NAVIGATION = in_navigation(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])


def test_every_page_has_one_place_in_the_site() -> None:
    """`make site` finds the rest: pages that are named and not there, and anchors."""
    folders = tuple(entry.removesuffix("*") for entry in NAVIGATION if entry.endswith("/*"))
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]
    missing = [page for page in pages if page not in NAVIGATION and not page.startswith(folders)]
    assert missing == []
    assert len(NAVIGATION) == len(set(NAVIGATION))


def test_the_site_asks_nobody_for_anything() -> None:
    """Fonts, scripts and pictures come with it."""
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert settings["theme"]["font"] is False
    assert "://" not in (ROOT / "mkdocs.yml").read_text()
    for path in (ROOT / "docs" / "assets").iterdir():
        said = path.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert "://" not in said, path
    # The theme would fetch a script of this name.
    (script,) = settings["extra"]["polyfills"]
    assert (ROOT / "docs" / script).is_file()
    assert "iframe-worker" in script
