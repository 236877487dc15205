"""Writes docs/api_status.md: what becomes of every public name of PyFlink's DataStream API here.

Nothing in that page is written by hand. A name is looked up where `millstream.pyflink` would find it; a
method marked by `millstream.common.compat.no_effect` is accepted and does nothing, one whose body is a single
`raise` is not available, and neither is what is not there. Usage: python scripts/api_table.py [--check]
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections import Counter
from typing import Any

import written_page

from millstream.common.compat import why_no_effect
from millstream.errors import MillstreamError
from millstream.pyflink.answers import answer
from millstream.pyflink.catalogue import Member, PyFlinkModule, modules
from millstream.pyflink.resolve import class_of, lookup

WORKS, NO_EFFECT, MISSING = "works", "accepted, no effect", "not available"
Status = tuple[str, str]

HEAD = """\
# PyFlink's API, name by name

Written by `scripts/api_table.py` from the code, for the public names of PyFlink 2.3's `common`, `datastream` and
`metrics`; do not edit. `millstream run --pyflink job.py` runs a PyFlink program with no import changed
([pyflink.md](pyflink.md)); a name that is not available can be imported there, and raises when the program is built,
with the words below.

"""


def refusal(function: Any) -> str | None:
    """The words of a function whose body is a single `raise`; None for one that does something."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        return None
    body = [
        node
        for node in definition.body
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        and not isinstance(node, ast.Assign)
    ]
    if len(body) != 1 or not isinstance(body[0], ast.Raise):
        return None
    unwrapped = inspect.unwrap(function)
    try:
        error = eval(  # our own source, to hear what the error says
            compile(ast.Expression(body[0].exc), "<refusal>", "eval"),  # type: ignore[arg-type]
            {**unwrapped.__globals__, **constants(definition)},
        )
    except NameError:
        # What it says depends on its arguments: a default that a user's class replaces.
        return None
    return f"{error.what}; {error.hint}" if isinstance(error, MillstreamError) else str(error)


def constants(definition: ast.FunctionDef) -> dict[str, Any]:
    """Texts that a function gives names to before it raises."""
    return {
        node.targets[0].id: node.value.value
        for node in definition.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }


def differing_parameters(function: Any, member: Member) -> str | None:
    """Our parameters, if PyFlink's do not fit them by position and name."""
    try:
        ours = [name for name in inspect.signature(function).parameters if name != "self"]
    except (TypeError, ValueError):
        return None
    theirs = [name.rstrip("=").lstrip("*") for name in member.parameters or ()]
    theirs = [name for name in theirs if not name.startswith("j_")]
    return None if ours[: len(theirs)] == theirs else ", ".join(ours)


def of_member(module: str, owner: type, name: str, member: Member) -> Status:
    """What a method or attribute of a class does."""
    found = getattr(owner, member.name, None)
    if found is None and not hasattr(owner, member.name):
        why, instead = answer(module, name, member.name)
        return MISSING, f"{why}; {instead}"
    reason = why_no_effect(found) or why_no_effect(owner)
    if reason:
        return NO_EFFECT, reason
    if member.parameters is None or not callable(found):
        return WORKS, ""
    # An abstract method, and the one constructor that all objects share, say nothing.
    if getattr(found, "__isabstractmethod__", False) or found is object.__init__:
        return WORKS, ""
    words = refusal(found)
    return (WORKS, "") if words is None else (MISSING, words)


def statuses(module: PyFlinkModule) -> dict[str, dict[str, Status]]:
    """For each class (or function) of a module, what its members do; "" is the class itself."""
    found: dict[str, dict[str, Status]] = {}
    for name, definition in module.classes.items():
        owner = class_of(module.name, name)
        why, instead = answer(module.name, name.partition(".")[0])
        missing = MISSING, f"{why}; {instead}"
        members = {
            member.name: member for member in definition.members if member.name != "__init__"
        }
        if owner is None:
            found[name] = {"": missing, **dict.fromkeys(members, missing)}
            continue
        found[name] = {"": (WORKS, "")}
        for key, member in members.items():
            found[name][key] = of_member(module.name, owner, name, member)
    for name, function in module.functions.items():
        there = lookup(module.name, name)
        why, instead = answer(module.name, name)
        found[f"{name}()"] = {"": (WORKS, "") if there else (MISSING, f"{why}; {instead}")}
        del function
    return found


def cell(members: dict[str, Status], wanted: str) -> str:
    """The members with one status, each reason once."""
    by_reason: dict[str, list[str]] = {}
    for name, (status, reason) in members.items():
        if status == wanted and name:
            by_reason.setdefault(reason, []).append(f"`{name}`")
    whole = members[""]
    if whole[0] == wanted and wanted == MISSING:
        names = ", ".join(next(iter(by_reason.values()), []))
        return f"all{': ' if names else ''}{names} ({whole[1]})"
    parts = [
        ", ".join(names) + (f" ({reason})" if reason else "") for reason, names in by_reason.items()
    ]
    return "; ".join(parts)


def page() -> str:
    """The whole page."""
    counts: Counter[str] = Counter()
    sections = []
    for module in modules().values():
        table = statuses(module)
        if not table:
            continue
        counts.update(status for members in table.values() for status, _ in members.values())
        rows = [
            f"| `{name}` | {' | '.join(cell(members, status) for status in (WORKS, NO_EFFECT, MISSING))} |"
            for name, members in table.items()
        ]
        head = f"## {module.name}\n\n| | works | accepted, no effect | not available |\n|---|---|---|---|\n"
        sections.append(head + "\n".join(rows).replace("|  |", "| |").replace("|  |", "| |"))
    total = sum(counts.values())
    shares = ", ".join(f"{counts[status]} {status}" for status in (WORKS, NO_EFFECT, MISSING))
    counted = f"Of {total} classes, methods and functions: {shares}."
    return "\n\n".join([HEAD.strip(), counted, *sections, renamed_parameters()]) + "\n"


def renamed_parameters() -> str:
    """A section about methods that cannot be called with all of PyFlink's keywords."""
    lines = []
    for module in modules().values():
        for name, definition in module.classes.items():
            owner = class_of(module.name, name)
            for member in definition.members if owner else ():
                function = getattr(owner, member.name, None)
                if not callable(function) or member.parameters is None or member.name == "__init__":
                    continue
                ours = differing_parameters(function, member)
                theirs = ", ".join(parameter.rstrip("=") for parameter in member.parameters)
                if ours is not None:
                    lines.append(f"- `{name}.{member.name}({theirs})`: `({ours})`")
    head = "## Parameters with other names\n\nBy position they are the same.\n\n"
    return head + "\n".join(dict.fromkeys(lines))


if __name__ == "__main__":
    sys.exit(written_page.main("api_status.md", page()))
