"""`millstream info`: the plan of a program, without running it.

Answers to `flink info`. The program runs up to its first `env.execute()`, which hands its plan over
instead of starting a job. Whatever the program prints on the way goes to stderr, so that stdout
holds the plan alone.
"""

from __future__ import annotations

import json
from typing import Any

import click

from millstream.cli.program import (
    ProgramCommand,
    guarded,
    handed_over,
    parse_program,
    program_options,
)

__all__ = ["draw", "info"]


def _label(node: dict[str, Any]) -> str:
    return f"{node['id']}: {node['contents']}"


def _text(node: dict[str, Any], strategy: str | None) -> str:
    arrow = f"{strategy} → " if strategy else ""
    count = node.get("parallelism", 1)
    promise = f", uid {node['uid']}, {node['guarantee']}" if "guarantee" in node else ""
    return f"{arrow}{_label(node)}  ({node['pact']}, parallelism {count}{promise})"


def draw(plan: dict[str, Any]) -> str:
    """A plan as a tree from its sources down; an operator with several inputs is drawn out once.

    >>> words = {"id": 1, "contents": "words", "pact": "Data Source", "parallelism": 1}
    >>> files = {"id": 2, "contents": "files", "pact": "Data Sink", "parallelism": 2}
    >>> promise = {"uid": "out", "guarantee": "exactly-once"}
    >>> inputs = {"predecessors": [{"id": 1, "ship_strategy": "HASH"}]}
    >>> print(draw({"nodes": [words, files | promise | inputs]}))
    1: words  (Data Source, parallelism 1)
    └── HASH → 2: files  (Data Sink, parallelism 2, uid out, exactly-once)
    """
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    nodes = {node["id"]: node for node in plan["nodes"]}
    outputs: dict[Any, list[tuple[str, Any]]] = {identity: [] for identity in nodes}
    for identity, node in nodes.items():
        for edge in node.get("predecessors", ()):
            outputs[edge["id"]].append((edge.get("ship_strategy", ""), identity))

    drawn = set()

    def grow(branch: Tree, identity: Any) -> None:
        drawn.add(identity)
        for strategy, target in outputs[identity]:
            if target in drawn:
                branch.add(Text(f"{strategy} → {_label(nodes[target])}  (drawn above)"))
            else:
                grow(branch.add(Text(_text(nodes[target], strategy))), target)

    # The console measures and records only; width without bound keeps long names on their line.
    console = Console(width=10_000, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        for identity, node in nodes.items():
            if not node.get("predecessors"):
                tree = Tree(Text(_text(node, None)))
                grow(tree, identity)
                console.print(tree)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


@click.command(cls=ProgramCommand)
@program_options
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON, in Flink's form.")
def info(*, traceback_wanted: bool, as_json: bool, **options: Any) -> None:
    """Show the plan of a program without running it.

    \b
    millstream info -p 4 job.py --input orders.csv
    """
    with guarded(traceback_wanted=traceback_wanted):
        from millstream.datastream.overrides import set_plan_only

        plan = handed_over(parse_program(**options), set_plan_only, dict)
        click.echo(json.dumps(plan, indent=2) if as_json else draw(plan))
