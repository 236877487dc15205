"""What Ctrl-C leaves of a job, in words: its last checkpoint, and the command that goes on from it."""

from __future__ import annotations

import shlex

from millstream.datastream import overrides
from millstream.runtime.driver.job import JobSettings
from millstream.runtime.driver.run import JobRun
from millstream.storage.storage import shown_root

__all__ = ["what_stays"]


def what_stays(run: JobRun) -> str:
    """For a job that was cancelled by Ctrl-C."""
    settings, name = run.job.settings, run.job.settings.name
    if run.leading is not None:
        return f"this driver has left the job '{name}' to those that stand by"
    done = f"the job '{name}' is cancelled"
    if settings.checkpoint_dir is None:
        return (
            f"{done}, and nothing of its state stays: with execution.checkpointing.dir and "
            "execution.checkpointing.interval set it would go on from its last checkpoint"
        )
    checkpoint = None if run.metrics is None else run.metrics.checkpoint_log.latest_id
    if checkpoint is None:
        return f"{done} before its first checkpoint; the next start begins anew"
    if settings.retention == "DELETE_ON_CANCELLATION":
        return f"{done}, and its checkpoints are removed, as the configuration says"
    where = shown_root(settings.checkpoint_dir)
    return (
        f"{done}; checkpoint {checkpoint} stays in {where}, and {_again(settings)} goes on from it"
    )


def _again(settings: JobSettings) -> str:
    """The command that was typed, as far as it is known."""
    if settings.program is None:
        return "starting it again"
    words, arguments = settings.program
    begin = ["millstream", "run"] if overrides.has_program() else ["python"]
    if begin == ["python"] and words[:1] == ("-pym",):
        words = ("-m", *words[1:])
    return f"`{shlex.join([*begin, *words, *arguments])}`"
