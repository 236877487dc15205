"""Draws which package imports which, and looks for cycles. Usage: python scripts/import_graph.py [--check]

Every import counts: those inside of functions, and those for the type checker alone. In docs/images/imports.svg the
packages stand from the command line down to the errors, in the order that pyproject.toml enforces; each line goes down
from a package to one that it imports, the thicker the more modules do. A line that went up would be red, on the left.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import written_page

ROOT = Path(__file__).parents[1]
# The streams of a fluent API give each other: `DataStream.key_by` gives a `KeyedStream`, which is a `DataStream`.
# PyFlink has them in one module.
FLUENT = "millstream.datastream."

ROW, LEFT, WIDTH, BEND = 34, 150, 190, 11


def modules() -> dict[str, Path]:
    """Every module by name."""
    found = {}
    for path in sorted((ROOT / "millstream").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports() -> dict[str, set[str]]:
    """What each module imports of the others."""
    known = modules()
    graph: dict[str, set[str]] = {}
    for name, path in known.items():
        found: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                found |= {f"{node.module}.{one.name}" for one in node.names} & known.keys()
                if any(f"{node.module}.{one.name}" not in known for one in node.names):
                    found.add(node.module)
            elif isinstance(node, ast.Import):
                found |= {one.name for one in node.names}
        graph[name] = (found & known.keys()) - {name}
    return graph


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or not: what each reaches, and what reaches it."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            at = waiting.pop()
            if at not in seen:
                seen.add(at)
                waiting.extend(graph[at])
        reach[start] = seen
    groups = {frozenset(b for b in reach[a] if a in reach[b]) for a in graph}
    return sorted(sorted(group) for group in groups if group)


def order() -> list[str]:
    """The packages, top to bottom."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = {
        one["id"]: [name.strip("()") for name in one["layers"]]
        for one in settings["tool"]["importlinter"]["contracts"]
        if one["type"] == "layers"
    }
    return [
        one
        for name in layers["layers"]
        for one in (layers["runtime"] if name == "millstream.runtime" else [name])
    ]


def edges(packages: list[str]) -> Counter[tuple[str, str]]:
    """How many modules of one package import another."""

    def package(module: str) -> str | None:
        fitting = [one for one in packages if f"{module}.".startswith(f"{one}.")]
        return max(fitting, key=len, default=None)

    found: Counter[tuple[str, str]] = Counter()
    for module, others in imports().items():
        home = package(module)
        for target in {package(other) for other in others} - {home, None}:
            if home is not None and target is not None:
                found[home, target] += 1
    return found


def lines(packages: list[str]) -> Iterator[str]:
    """The picture."""
    place = {name: index for index, name in enumerate(packages)}
    middle = {name: 20 + ROW * index for name, index in place.items()}
    right = LEFT + WIDTH
    height = ROW * len(packages) + 10
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right + 240}" height="{height}" '
        'font-family="sans-serif" font-size="13">'
    )
    yield '<rect width="100%" height="100%" fill="white"/>'
    for (source, target), count in sorted(edges(packages).items()):
        down = place[source] < place[target]
        span = abs(place[source] - place[target])
        side, turn = (right, BEND * (span + 1)) if down else (LEFT, -BEND * (span + 1))
        color = "#2b6cb0" if down else "#c53030"
        width = 1 + min(count, 20) / 8
        y1, y2 = middle[source] + 3, middle[target] - 3
        yield (
            f'<path d="M {side} {y1} C {side + turn} {y1}, {side + turn} {y2}, {side} {y2}" fill="none" '
            f'stroke="{color}" stroke-width="{width:.1f}" stroke-opacity="0.45">'
            f"<title>{source} imports {target} ({count})</title></path>"
        )
    for name in packages:
        inner = name.startswith("millstream.runtime.")
        text = name.removeprefix("millstream.").replace("runtime.", "runtime / ")
        fill = "#ebf4ff" if inner else "#f7fafc"
        yield (
            f'<rect x="{LEFT}" y="{middle[name] - 12}" width="{WIDTH}" height="24" rx="4" '
            f'fill="{fill}" stroke="#718096"/>'
        )
        yield f'<text x="{LEFT + 10}" y="{middle[name] + 5}">{text}</text>'
    yield "</svg>"


def main() -> int:
    """Write the picture, or with --check compare it; tell of cycles and of lines that go up."""
    packages = order()
    wrong = [
        f"a cycle of imports: {' -> '.join(group)}"
        for group in cycles(imports())
        if not all(name.startswith(FLUENT) for name in group)
    ]
    place = {name: index for index, name in enumerate(packages)}
    wrong += [
        f"{source} imports {target}, which stands above it"
        for source, target in edges(packages)
        if place[source] > place[target]
    ]
    for one in wrong:
        print(one, file=sys.stderr)
    stale = written_page.main("images/imports.svg", "\n".join(lines(packages)) + "\n")
    return int(bool(wrong) or stale)


if __name__ == "__main__":
    sys.exit(main())
