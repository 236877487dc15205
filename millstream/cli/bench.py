"""`millstream bench`: benchmarks that come with Millstream, run on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import click

import millstream
from millstream.bench.figures import chart, document, machine, table
from millstream.bench.nexmark.catalogue import QUERIES
from millstream.bench.nexmark.generator import BLOCK
from millstream.bench.nexmark.measure import generator_rate, job_arguments, measure
from millstream.cli.program import guarded
from millstream.cli.terminal import echo
from millstream.errors import InvalidArgument, RuntimeUnusable

__all__ = ["bench"]


@click.group()
def bench() -> None:
    """Measure Millstream on this machine."""


def _chosen(given: Sequence[str]) -> list[str]:
    names = [name for text in given for name in text.split(",") if name]
    unknown = [name for name in names if name not in QUERIES]
    if unknown:
        raise InvalidArgument("there is no such query", got=unknown, queries=list(QUERIES))
    return names or list(QUERIES)


def _peers() -> Any:
    """The part that runs other systems. It and they are in the source tree alone."""
    path = Path(millstream.__file__).parents[1] / "benchmarks" / "nexmark.py"
    if not path.exists():
        raise RuntimeUnusable(
            "other systems are run from the source tree, and this is an installed package",
            hint="clone the project and call `millstream bench` there, or leave --peers out",
        )
    spec = spec_from_file_location("nexmark_peers", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@bench.command()
@click.argument("queries", nargs=-1)
@click.option("--events", default=2_000_000, show_default=True, help="Events of a run.")
@click.option("--parallelism", "-p", default=2, show_default=True, help="Of every system.")
@click.option("--rounds", default=5, show_default=True, help="Timed runs of each query.")
@click.option("--seed", default=1, show_default=True, help="Of the generator.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write figures there.")
@click.option("--chart", "chart_file", type=click.Path(path_type=Path), help="Draw an SVG there.")
@click.option("--peers", default="", help="Other systems: pyflink, pyspark, spark-sql, bytewax.")
@click.option("-D", "options", multiple=True, metavar="KEY=VALUE", help="Options of Millstream.")
def nexmark(
    queries: tuple[str, ...],
    events: int,
    parallelism: int,
    rounds: int,
    seed: int,
    json_file: Path | None,
    chart_file: Path | None,
    peers: str,
    options: tuple[str, ...],
) -> None:
    """Run Nexmark's QUERIES (all of them, if none is named) and print how many events a second they took.

    Every run is held against the right results; a wrong one ends the benchmark.
    """
    with guarded(traceback_wanted=False):
        if events < BLOCK or rounds < 1 or parallelism < 1:
            raise InvalidArgument(f"--events must be {BLOCK} or more, --rounds and -p 1 or more")
        names = _chosen(queries)
        events -= events % BLOCK
        given = dict(option.split("=", 1) for option in options)
        arguments = job_arguments(parallelism, seed, given)
        facts, making = machine(), generator_rate(seed)

        def say(text: str) -> None:
            echo(text, err=True)

        if peers:
            found = _peers().measure(
                names, peers.split(","), events, rounds, seed, parallelism, arguments
            )
        else:
            found = measure(names, events, rounds, seed, arguments, say)
        about = f"seed {seed}, parallelism {parallelism}. Generator alone: {making:,.0f} events/s in one process."
        echo(f"Nexmark, {about} {facts}\n\n{table(found)}")
        if any("whole" in item.clocks for item in found):
            echo("\n(*) rate of the whole run, warm-up included")
        if json_file:
            json_file.write_text(
                document(
                    found,
                    benchmark="nexmark",
                    machine=facts,
                    seed=seed,
                    parallelism=parallelism,
                    generator_events_per_second=making,
                )
            )
        if chart_file:
            chart_file.write_text(
                chart(found, f"Nexmark: events a second, parallelism {parallelism}")
            )
