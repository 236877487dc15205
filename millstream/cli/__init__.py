"""The command `millstream`: begin a project, run a program, show its plan, check the machine.

Answers to Flink's `CliFrontend`, with its verbs and flags. Each verb is imported when it is called
for, so `millstream --help` and shell completion stay quick.
"""

from __future__ import annotations

from importlib import import_module

import click

from millstream import __version__

__all__ = ["main"]

# verb: (where its command is, the line that `--help` shows without importing it)
_VERBS = {
    "init": ("millstream.cli.init:init", "Write a small project to begin with."),
    "run": ("millstream.cli.run:run", "Run a program."),
    "info": ("millstream.cli.info:info", "Show the plan of a program without running it."),
    "session": ("millstream.cli.session:session", "Keep a warm Spark that takes jobs."),
    "list": ("millstream.cli.jobs:list_", "List the jobs of a session, or those with checkpoints."),
    "top": ("millstream.cli.top:top", "Show what a running job is doing."),
    "savepoint": ("millstream.cli.savepoint:savepoint", "Look into savepoints and take them."),
    "stop": ("millstream.cli.jobs:stop", "Stop a running job with a savepoint."),
    "cancel": ("millstream.cli.jobs:cancel", "Cancel a running job."),
    "rescale": ("millstream.cli.rescale:rescale", "Give a running job another parallelism."),
    "logs": ("millstream.cli.history:logs", "Show what a job of a session has printed."),
    "history": ("millstream.cli.history:history", "List the jobs of a session that have ended."),
    "replay": ("millstream.cli.replay:replay", "Run an epoch of the past again and show it."),
    "bench": ("millstream.cli.bench:bench", "Measure Millstream on this machine."),
    "doctor": ("millstream.cli.doctor:doctor", "Check that this machine can run Millstream."),
}


class _Verbs(click.Group):
    """A group that imports a verb's module only when the verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module, _, attribute = _VERBS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb, line) for verb, (_, line) in _VERBS.items()])


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Options of a verb: millstream VERB --help",
)
@click.version_option(__version__, "-v", "--version", message="%(prog)s %(version)s")
def main() -> None:
    """Millstream: Flink's DataStream API and guarantees, on Spark."""
