"""Writes the reference of the API from docstrings: Markdown pages that `make site` puts below Reference.

Which names are public, the modules say that programs import from (`__all__`). A name stands on the first page that has
it. Usage: python scripts/api_reference.py FOLDER
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

ROOT = Path(__file__).resolve().parents[1]

# Without `import millstream` from here, a script would document what is installed.
sys.path.insert(0, str(ROOT))


class Part(NamedTuple):
    """A page: its file, its title, what it is about, and the modules (`module`, or `module:Name`) that it documents."""

    file: str
    title: str
    about: str
    modules: tuple[str, ...]


_STREAMS = (
    "DataStream DataStreamSink KeyedStream ConnectedStreams BroadcastStream BroadcastConnectedStream "
    "WindowedStream AllWindowedStream JoinedStreams CoGroupedStreams IntervalJoin IntervalJoined "
    "IterativeStream AsyncDataStream CloseableIterator SlotSharingGroup"
)
_CONNECTORS = (
    "base file_system kafka postgres delta iceberg spark socket datagen number_seq hybrid_source"
)

PARTS = (
    Part(
        "environment.md",
        "The environment",
        "Where a program begins: sources, settings, `execute`.",
        (
            "millstream.datastream:StreamExecutionEnvironment",
            "millstream.datastream:CheckpointConfig",
        ),
    ),
    Part(
        "streams.md",
        "Streams",
        "What can be done with a stream. Nothing runs until `execute`.",
        tuple(f"millstream.datastream:{name}" for name in _STREAMS.split()),
    ),
    Part(
        "functions.md",
        "Functions",
        "What a program writes itself, what a function is given, and what becomes of records that it cannot process.",
        (
            "millstream.datastream.functions",
            "millstream.datastream:TimerService",
            "millstream.datastream:TimeDomain",
            "millstream.datastream:OutputTag",
            "millstream.api.error_policy",
        ),
    ),
    Part(
        "windows.md",
        "Windows",
        "Assigners, triggers, evictors, and the windows themselves.",
        ("millstream.datastream.window",),
    ),
    Part(
        "state.md",
        "State",
        "What functions keep: descriptors, and what they give access to.",
        (
            "millstream.datastream.state",
            "millstream.datastream.state_backend",
            "millstream.datastream.checkpoint_storage",
        ),
    ),
    Part(
        "time.md",
        "Watermarks",
        "Timestamps, watermarks, idleness, alignment.",
        ("millstream.common.watermark_strategy",),
    ),
    Part(
        "common.md",
        "Rows, types, configuration, jobs",
        "What programs and connectors share.",
        ("millstream.common", "millstream.datastream"),
    ),
    Part(
        "own_connectors.md",
        "Sources and sinks of your own",
        "The interfaces that connectors implement.",
        ("millstream.api.source", "millstream.api.sink"),
    ),
    Part(
        "connectors.md",
        "Connectors",
        "Sources and sinks. [The connectors' own pages](../connectors.md) say what each guarantees.",
        tuple(f"millstream.datastream.connectors.{name}" for name in _CONNECTORS.split()),
    ),
    Part(
        "formats.md",
        "Formats",
        "What is in files and messages. [The formats](../connectors/formats.md) has examples.",
        tuple(f"millstream.datastream.formats.{name}" for name in "csv json avro parquet".split()),
    ),
    Part(
        "savepoints.md",
        "millstream.state",
        "Savepoints read and repaired from outside.",
        ("millstream.state",),
    ),
    Part(
        "testing.md",
        "millstream.testing",
        "Programs and parts of them, run without Spark. [Testing a program](../testing.md) has examples.",
        ("millstream.testing",),
    ),
    Part(
        "metrics.md",
        "millstream.metrics",
        "Metrics of a program's own.",
        ("millstream.metrics",),
    ),
    Part(
        "errors.md",
        "millstream.errors",
        "The tree of errors. [When something is wrong](../errors.md) says what to do about each.",
        ("millstream.errors",),
    ),
)

COMMANDS = "commands.md"


# -- text ------------------------------------------------------------------------------------------


def prose(docstring: str | None) -> str:
    """A docstring as Markdown: examples become blocks of code.

    >>> prose("Adds.\\n\\n>>> 1 + 1\\n2\\n\\nThat is all.").split("\\n")
    ['Adds.', '', '```python', '>>> 1 + 1', '2', '```', '', 'That is all.']
    """
    parts = re.split(r"\n\s*\n", inspect.cleandoc(docstring or ""))
    written: list[str] = []
    for part in parts:
        example = part.lstrip().startswith(">>>")
        if example and written and written[-1].endswith("\n```") and ">>>" in written[-1]:
            written[-1] = written[-1].removesuffix("```") + f"\n{part}\n```"
        else:
            written.append(f"```python\n{part}\n```" if example else part)
    return "\n\n".join(written)


class Bare(str):
    """An annotation that is shown as it is written."""

    def __repr__(self) -> str:
        return str(self)


def signature(name: str, called: Any) -> str:
    """How something is called, over several lines if it is long.

    >>> def f(self, n: int = 1, *, by: str = "a") -> str: ...
    >>> signature("f", f)
    "f(n: int = 1, *, by: str = 'a') -> str"
    """
    try:
        found = inspect.signature(called)
    except (TypeError, ValueError):
        return name
    given = [
        each.replace(annotation=bare(each.annotation))
        for each in found.parameters.values()
        if each.name not in ("self", "cls")
    ]
    shown = found.replace(parameters=given, return_annotation=bare(found.return_annotation))
    text = f"{name}{shown}"
    if len(text) <= 88 or not given:
        return text
    lines: list[str] = []
    for each in given:
        if each.kind is each.KEYWORD_ONLY and not any(line.startswith("    *") for line in lines):
            lines.append("    *,")
        lines.append(f"    {each},")
    result = shown.return_annotation
    end = ")" if result is found.empty else f") -> {inspect.formatannotation(result)}"
    return "\n".join([f"{name}(", *lines, end])


def bare(annotation: Any) -> Any:
    """An annotation, without quotes if it is text."""
    return Bare(annotation) if isinstance(annotation, str) else annotation


# -- what there is ---------------------------------------------------------------------------------


def ours(thing: Any) -> bool:
    """Whether something was written here."""
    return str(getattr(thing, "__module__", "")).startswith("millstream")


def members(cls: type, documented: set[type]) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of a class, without those of bases that have an entry of their own."""
    seen: set[str] = set()
    for base in cls.__mro__:
        if not ours(base) or (base is not cls and base in documented):
            continue
        for name, member in vars(base).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            if isinstance(member, staticmethod | classmethod | property) or inspect.isfunction(
                member
            ):
                yield name, member


def describe_class(name: str, cls: type, documented: set[type]) -> str:
    """A class: how it is made, what it is, and its methods."""
    lines = [f"## {name} {{ #{name} }}"]
    raises = issubclass(cls, BaseException)
    made = "" if raises or "__init__" not in _written(cls) else signature(name, cls)
    # Streams are made by calls of others.
    if made and made != f"{name}()" and "Transformation" not in made:
        lines.append(f"```python\n{made}\n```")
    bases = [base.__name__ for base in cls.__mro__[1:] if base in documented]
    if bases:
        lines.append("Also has what " + _listed(bases[:3]) + " has.")
    if raises:
        lines.append(f"Code `{getattr(cls, 'code', '')}`.")
    lines.append(prose(cls.__doc__))
    for member_name, member in members(cls, documented):
        lines.append(describe_member(name, member_name, member))
    return "\n\n".join(lines)


def _written(cls: type) -> set[str]:
    return {name for base in cls.__mro__ if ours(base) for name in vars(base)}


def _listed(names: list[str]) -> str:
    return " and ".join(f"[{name}](#{name})" for name in names)


def describe_member(owner: str, name: str, member: Any) -> str:
    """A method or a property."""
    head = f"### {name} {{ #{owner}.{name} }}"
    if isinstance(member, property):
        return f"{head}\n\n*Property.* {prose(member.__doc__)}"
    call = member.__func__ if isinstance(member, staticmethod | classmethod) else member
    before = "" if call is member else f"{owner}."
    docstring = inspect.getdoc(call)
    return f"{head}\n\n```python\n{before}{signature(name, call)}\n```\n\n{prose(docstring)}"


def describe(name: str, thing: Any, documented: set[type]) -> str:
    """An entry of a page."""
    if inspect.isclass(thing):
        return describe_class(name, thing, documented)
    if callable(thing) and ours(thing):
        return f"## {name} {{ #{name} }}\n\n```python\n{signature(name, thing)}\n```\n\n{prose(thing.__doc__)}"
    return f"## {name} {{ #{name} }}\n\n`{thing!r}`"


def entries() -> dict[str, list[tuple[str, str, Any]]]:
    """For each page its (module, name, object), each object on one page alone."""
    found: dict[str, list[tuple[str, str, Any]]] = {}
    taken: set[int] = set()
    for part in PARTS:
        page = found.setdefault(part.file, [])
        for wanted in part.modules:
            module_name, _, only = wanted.partition(":")
            module = importlib.import_module(module_name)
            for name in [only] if only else module.__all__:
                thing = getattr(module, name)
                if id(thing) not in taken and (ours(thing) or only):
                    taken.add(id(thing))
                    page.append((module_name, name, thing))
    return found


def pages() -> dict[str, str]:
    """Every page by the name of its file."""
    found = entries()
    written: dict[str, str] = {}
    index = [
        "# API reference",
        "",
        "Made from docstrings when the site is built. Names are imported from the modules shown.",
        "",
    ]
    index += ["| page | names |", "|---|---|"]
    for part in PARTS:
        documented = {thing for _, _, thing in found[part.file] if inspect.isclass(thing)}
        text = [f"# {part.title}", part.about]
        module = ""
        for module_name, name, thing in found[part.file]:
            if module_name != module:
                module = module_name
                text.append(f"`from {module} import ...`")
            text.append(describe(name, thing, documented))
        written[part.file] = "\n\n".join(text) + "\n"
        names = ", ".join(f"[{name}]({part.file}#{name})" for _, name, _ in found[part.file])
        index.append(f"| [{part.title}]({part.file}) | {names} |")
    index.append(
        f"| [Commands]({COMMANDS}) | `millstream run`, `stop`, `savepoint` and the others |"
    )
    return {"index.md": "\n".join(index) + "\n", **written, COMMANDS: commands()}


# -- the command line ------------------------------------------------------------------------------


def commands() -> str:
    """The page of `millstream`'s commands, from what `--help` says."""
    from millstream.cli import main

    text = ["# Commands", "What `millstream --help` and its commands say."]

    def walk(command: click.Command, words: list[str], parent: click.Context | None) -> None:
        context = click.Context(command, info_name=words[-1], parent=parent)
        context.max_content_width = 100
        text.append(f"## {' '.join(words)}\n\n```text\n{command.get_help(context)}\n```")
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                if below is not None and not below.hidden:
                    walk(below, [*words, name], context)

    walk(main, ["millstream"], None)
    return "\n\n".join(text) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in pages().items():
        (folder / file).write_text(text, encoding="utf-8")
