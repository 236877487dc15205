"""What mkdocs does not know about our pages: they are written to be read where the repository is, too (`make site`).

- A link to a file of the repository that is no page (`../examples/files.py`) leads to a copy of it in the site.
- Pages that stand outside of `docs/` (ARCHITECTURE.md and others) are pages of the site all the same.
- Anchors are named, and lists and tables begin, as they do there.
- Entries of the navigation may be patterns (`decisions/*`), and may be missing if OPTIONAL names them.
- The reference of the API is made when the site is: `api_reference.py` writes it from docstrings.
"""

from __future__ import annotations

import functools
import html
import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import api_reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers.python import PythonLexer

ROOT = Path(__file__).resolve().parents[1]

OUTSIDE = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "README.md": "project/readme.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "benchmarks/RESULTS.md": "project/results.md",
    "millstream/web/vendor/README.md": "project/vendored.md",
    "SECURITY.md": "project/security.md",
}
"""Pages of the site that are not in docs/, by where they are in the repository, if they are there."""

OPTIONAL = {"cookbook.md", "notebook.md", "kill_test.md"}
"""Pages that the navigation names and that need not be there."""

reference = functools.cache(api_reference.pages)

LARGEST_SOURCE = 200_000

_NOT_LINKS = r"^```.*?^```$|`[^`\n]*`"
_LINK = re.compile(rf"({_NOT_LINKS})|\]\(([^)\s#]+)(#[^)\s]*)?\)", re.MULTILINE | re.DOTALL)


# -- where pages and links are -----------------------------------------------------------------------


def place(path: str) -> str | None:
    """Where the site has a file or folder of the repository; None if there is no such thing.

    >>> place("docs/time.md"), place("ARCHITECTURE.md"), place("examples/files.py")
    ('time.md', 'project/architecture.md', 'source/examples/files.py.html')
    """
    if path.startswith("docs/") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    if path in OUTSIDE:
        return OUTSIDE[path]
    if (ROOT / path).is_dir():
        return f"source/{path}/index.html"
    return f"source/{path}.html" if (ROOT / path).is_file() else None


def relinked(text: str, path: str, seen: Callable[[str], None] = lambda path: None) -> str:
    """A page's text with its links as they are in the site; `seen` is told what they lead to in the repository."""
    folder = posixpath.dirname(place(path) or path)

    def link(found: re.Match[str]) -> str:
        code, target, anchor = found[1], found[2], found[3] or ""
        if code is not None or re.match(r"\w+:", target):
            return found[0]
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        there = place(meant)
        if there is None:
            return found[0]  # mkdocs says so
        seen(meant)
        return f"]({posixpath.relpath(there, folder or '.')}{anchor})"

    return _LINK.sub(link, text)


def spaced(text: str) -> str:
    """Lists and tables with an empty line before them, and nested lists with four spaces, as mkdocs needs them.

    >>> spaced("Why:\\n- this\\n- that")
    'Why:\\n\\n- this\\n- that'
    """
    lines: list[str] = []
    fenced = False
    for line in text.split("\n"):
        before = lines[-1] if lines else ""
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            begins = re.match(r"([-*]|\d+\.) |\|", line)
            goes_on = re.match(r"([-*]|\d+\.) |\s|\|", before)
            if begins and before.strip() and not goes_on:
                lines.append("")
            line = re.sub(r"^ {1,3}(?=[-*] )", "    ", line)
        lines.append(line)
    return "\n".join(lines)


def slug(heading: str, separator: str) -> str:
    """The anchor of a heading, as it is in the repository.

    >>> slug("What is guaranteed?", "-")
    'what-is-guaranteed'
    """
    return re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", separator)


# -- files that are copied ---------------------------------------------------------------------------

SOURCE_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="stylesheet" href="{up}assets/source.css">
</head>
<body>
<p><a href="{up}index.html">Millstream</a> / {title}</p>
{body}
</body>
</html>
"""


def source_page(path: str) -> str:
    """The text of a file of the repository, or the list of a folder's files."""
    up = "../" * (place(path) or "").count("/")
    there = ROOT / path
    if there.is_dir():
        names = [name for name in sorted(there.iterdir()) if shown(name)]
        rows = "".join(
            f'<li><a href="{html.escape(address(f"{path}/{name.name}", path))}">{html.escape(name.name)}</a></li>\n'
            for name in names
        )
        body = f"<ul>\n{rows}</ul>"
    else:
        text = there.read_text(encoding="utf-8")
        # Colours for all would take longer than everything else.
        coloured = path.startswith("examples/") and there.suffix == ".py"
        body = (
            highlight(text, PythonLexer(), HtmlFormatter())
            if coloured
            else f"<pre>{html.escape(text)}</pre>"
        )
    return SOURCE_PAGE.format(title=html.escape(path), up=up, body=body)


def address(path: str, folder: str) -> str:
    """Where a file of a folder is, as seen from the folder's list.

    >>> address("examples/files.py", "examples"), address("docs/time.md", "docs")
    ('files.py.html', '../../time.html')
    """
    there = place(path) or ""
    page = f"{there.removesuffix('.md')}.html" if there.endswith(".md") else there
    return posixpath.relpath(page, posixpath.dirname(place(folder) or ""))


def shown(path: Path) -> bool:
    """Whether a folder's list names a file: text that is not too long, and nothing hidden."""
    text = {".py", ".md", ".txt", ".case", ".sh", ".toml", ".yaml", ".csv"}
    return path.is_file() and path.suffix in text and path.stat().st_size < LARGEST_SOURCE


def with_contents(paths: set[str]) -> Iterator[str]:
    """The paths, and for folders the files that their lists name."""
    for path in sorted(paths):
        yield path
        if (ROOT / path).is_dir():
            yield from (
                f"{path}/{name.name}" for name in sorted((ROOT / path).iterdir()) if shown(name)
            )


# -- mkdocs calls these ------------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Anchors as in the repository, and a navigation of what is there."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    docs = Path(config.docs_dir)
    there = [path.relative_to(docs).as_posix() for path in sorted(docs.rglob("*.md"))]
    there += [new for old, new in OUTSIDE.items() if (ROOT / old).is_file()]
    there += [f"api/{name}" for name in reference()]
    config.nav = entries(config.nav, there)
    return config


def entries(nav: Any, there: list[str]) -> Any:
    """A navigation without pages that need not be there, and with patterns replaced by what they match."""
    if isinstance(nav, list):
        parts = [entries(one, there) for one in nav]
        return [
            one for part in parts for one in (part if isinstance(part, list) else [part]) if one
        ]
    if isinstance(nav, dict):
        ((title, below),) = nav.items()
        below = entries(below, there)
        return {title: below} if below else None
    if nav.endswith("/*"):
        folder = nav.removesuffix("*")
        return [
            page
            for page in there
            if page.startswith(folder) and not page.endswith("0000-template.md")
        ]
    may_be_missing = nav in OPTIONAL or nav in OUTSIDE.values()
    return None if may_be_missing and nav not in there else nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages of docs/ and those outside of it, and a copy of every file that they link to."""
    linked: set[str] = set()
    for path, new in OUTSIDE.items():
        if (ROOT / path).is_file():
            text = (ROOT / path).read_text(encoding="utf-8")
            files.append(File.generated(config, new, content=relinked(text, path, linked.add)))
    for name, text in reference().items():
        files.append(File.generated(config, f"api/{name}", content=text))
    for page in files.documentation_pages():
        if page.abs_src_path is not None:
            relinked(page.content_string, f"docs/{page.src_uri}", linked.add)
    for path in with_contents(linked):
        there = place(path)
        if there and there.startswith("source/") and files.get_file_from_path(there) is None:
            files.append(File.generated(config, there, content=source_page(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links and lists of a page; those of pages outside of docs/ were relinked when they were found."""
    if page.file.src_uri not in OUTSIDE.values():
        markdown = relinked(markdown, f"docs/{page.file.src_uri}")
    return spaced(markdown)
