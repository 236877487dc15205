"""Finds what runs a job (Flink's `PipelineExecutorServiceLoader`), by the option `execution.target`.

The runners are found by name, so that building a program imports no Spark; so are what shows the metrics of a job that
wants it.
"""

from __future__ import annotations

from importlib import import_module

from millstream.datastream.on_signal import show_on_signal
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.run import JobRun

__all__ = ["create_run"]

_RUNNERS = {
    "spark": ("millstream.spark.run", "SparkRun"),
    "in-process": ("millstream.runtime.driver.local", "InProcessRun"),
}


def create_run(target: str, job: Job) -> JobRun:
    """A run of the job, not yet started."""
    module, name = _RUNNERS[target]
    run: JobRun = getattr(import_module(module), name)(job)
    show_on_signal(run)
    if job.settings.reporters:
        import_module("millstream.reporters.start").start_reporters(run)
    return run
