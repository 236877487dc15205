"""`millstream replay`: run an epoch of the past again, in this process, with sinks muted, and show what it did.

The program runs up to its first `env.execute()`, which hands its job over; the epoch is replayed there, inside of the
program, so that its classes are found as they were.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import click

from millstream.cli.program import (
    ProgramCommand,
    guarded,
    handed_over,
    parse_program,
    program_options,
)
from millstream.cli.terminal import echo
from millstream.errors import ConfigurationError, InvalidArgument, StateNotFound

__all__ = ["replay"]

_NAMED = ("-py", "--python", "-pym", "--pyModule")
# Options that may also stand behind the program, and whether a value follows.
_BEHIND = {
    "--epoch": True,
    "--operator": True,
    "--break-at": True,
    "--dir": True,
    "--limit": True,
    "--pdb": False,
    "--json": False,
    "--traceback": False,
}


class ReplayCommand(ProgramCommand):
    """A command whose own options may stand before the program, or directly behind it: `replay job.py --epoch 7`.
    Everything from the first other word on is the program's, or from `--` on."""

    def _split(self, ctx: click.Context, args: list[str]) -> tuple[list[str], list[str]]:
        mine, rest = super()._split(ctx, args)
        if not rest or any(word in _NAMED for word in mine):
            return mine, rest
        at = 1
        while at < len(rest):
            name, equals, _ = rest[at].partition("=")
            if name not in _BEHIND:
                break
            at += 2 if _BEHIND[name] and not equals else 1
        behind = rest[at:]
        return [*mine, *rest[1:at]], [rest[0], *(behind[1:] if behind[:1] == ["--"] else behind)]


@dataclass(frozen=True)
class _Asked:
    """What the command line asks for."""

    epoch: int | None
    operator: str | None
    break_at: str | None
    directory: str | None
    limit: int
    post_mortem: bool
    as_json: bool


@click.command(cls=ReplayCommand)
@program_options
@click.option(
    "--epoch", type=click.IntRange(min=0), metavar="N", help="The epoch; else the last one."
)
@click.option("--operator", metavar="UID", help="Show the records that this operator got and gave.")
@click.option("--pdb", "post_mortem", is_flag=True, help="Open the debugger where the epoch fails.")
@click.option(
    "--break-at", metavar="UID", help="Open the debugger in the functions of an operator."
)
@click.option(
    "--dir",
    "directory",
    envvar="MILLSTREAM_CHECKPOINT_DIR",
    metavar="FOLDER",
    help="The checkpoint directory, or MILLSTREAM_CHECKPOINT_DIR; else what the program says.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="How many records, ranges and changes are shown; all are counted.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all of it as lines of JSON.")
def replay(
    *,
    traceback_wanted: bool,
    epoch: int | None,
    operator: str | None,
    break_at: str | None,
    directory: str | None,
    limit: int,
    post_mortem: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run an epoch of the past again, in this process, from its checkpoint and with the records it read, and show
    what went in, what came out and what it did to state. Sinks are muted and nothing is written to the job's
    folder; the functions run for real.

    \b
    millstream replay job.py --epoch 7
    millstream replay job.py --epoch 7 --pdb -- --input orders.csv
    millstream replay job.py --epoch 7 --operator enrich --break-at enrich
    """
    asked = _Asked(epoch, operator, break_at, directory, limit, post_mortem, as_json)
    with guarded(traceback_wanted=traceback_wanted):
        from millstream.datastream.overrides import set_job_only

        program = parse_program(**options)
        went_well = handed_over(program, set_job_only, lambda job: _replay(job, asked))
    sys.exit(0 if went_well else 1)


def _replay(job: Any, asked: _Asked) -> bool:
    """True if the epoch ran through, and did what the first run did."""
    from millstream.cli.debugger import Left, ReplayDebugger
    from millstream.cli.replay_report import as_json, as_text
    from millstream.runtime.base.text import shorten
    from millstream.runtime.driver.muted import muted_sinks
    from millstream.runtime.driver.plan_file import replayable
    from millstream.runtime.driver.replay import replay_epoch
    from millstream.runtime.operators.watching import Watcher

    storage = _folder(job, asked.directory)
    nodes = {node.uid: node for node in job.graph.nodes.values()}
    for uid in (asked.operator, asked.break_at):
        if uid is not None and uid not in nodes:
            raise InvalidArgument(
                f"the program has no operator with the uid {uid!r}", found=", ".join(nodes)
            )
    epoch = asked.epoch
    if epoch is None:
        can = replayable(storage)
        if not can:
            raise StateNotFound(
                "no epoch of this job can be replayed",
                folder=storage.root,
                hint="epochs are written down where checkpoints are; those of a job that has ended are gone",
            )
        epoch = can[-1]
    kept = {*muted_sinks(job), *([asked.operator] if asked.operator else [])}
    watcher = (
        Watcher(kept, None, lambda record: shorten(record, 1 << 30))
        if asked.as_json
        else Watcher(kept, asked.limit)
    )
    debugger = ReplayDebugger() if asked.post_mortem or asked.break_at else None
    if debugger is not None and asked.break_at is not None:
        debugger.break_at(nodes[asked.break_at])

    def around(run: Callable[[], list[Any]]) -> list[Any]:
        if debugger is None or asked.break_at is None:
            return run()
        return debugger.run_until_break(run)

    try:
        # What functions print is no JSON.
        with redirect_stdout(sys.stderr if asked.as_json else sys.stdout):
            made = replay_epoch(job, storage, epoch, watcher, around)
    except Left:
        echo("left by the debugger: the epoch has not been run to its end", err=True)
        return False
    lines = (
        as_json(made, asked.operator)
        if asked.as_json
        else as_text(made, asked.operator, asked.limit)
    )
    _write(lines)
    if made.error is not None:
        if not asked.as_json:
            click.echo("")
            click.secho(str(made.error), fg="red", err=True)
        if debugger is not None and asked.post_mortem:
            debugger.look_at(made.error)
    return made.error is None and not made.differences and not made.counts


def _write(lines: Iterable[str]) -> None:
    """Write lines until nobody reads them any more, as `head` does."""
    try:
        for line in lines:
            echo(line)
    except BrokenPipeError:
        # Python would try once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _folder(job: Any, directory: str | None) -> Any:
    """The folder of a job, which is only read."""
    from millstream.runtime.driver.job_folder import job_folder_name
    from millstream.storage.open import open_storage
    from millstream.storage.seal import Seal
    from millstream.storage.storage import shown_root, stable

    settings = job.settings
    base = directory or settings.checkpoint_dir
    if base is None and not job.batch:
        raise ConfigurationError(
            "there is nothing to replay from: the program has no checkpoint directory",
            hint="set execution.checkpointing.dir and run the job, or give the folder with --dir",
        )
    root = f"{stable(base or '.').rstrip('/')}/{job_folder_name(settings.name)}"
    storage = open_storage(root, seal=Seal.of(settings.key_file))
    if not job.batch and not storage.list(""):
        raise StateNotFound(
            f"there is no job '{settings.name}' in the checkpoint directory",
            folder=shown_root(root),
            hint="millstream list shows the jobs in a folder; one that has ended in order is gone",
        )
    return storage
