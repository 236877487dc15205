"""Finds what runs a job (Flink's `PipelineExecutorServiceLoader`), by the option `execution.target`.

The runners are found by name, so that building a program imports no Spark; so are the REST server and what reports
metrics, which stand above.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module

from millstream.common import options
from millstream.common.configuration import Configuration
from millstream.datastream import overrides
from millstream.datastream.on_signal import show_on_signal
from millstream.datastream.progress import is_shown, say
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.leading import take_part
from millstream.runtime.driver.run import JobRun

__all__ = ["create_run", "show_run"]

_RUNNERS = {
    "spark": ("millstream.spark.run", "SparkRun"),
    "in-process": ("millstream.runtime.driver.local", "InProcessRun"),
}


def create_run(target: str, job: Job) -> JobRun:
    """A run of the job, not yet started."""
    module, name = _RUNNERS[target]
    leading = take_part(job)
    if target == "spark" and not _spark_runs() and is_shown(job.settings):
        # It takes seconds, of which importing it is one.
        say(job.settings, "starting Spark")
    run: JobRun = getattr(import_module(module), name)(job)
    run.leading = leading
    run.say = partial(say, job.settings)
    show_on_signal(run)
    if job.settings.reporters:
        import_module("millstream.reporters.start").start_reporters(run)
    return run


def _spark_runs() -> bool:
    """True if this process has a Spark. Whoever has not imported it has none."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return getattr(context, "_active_spark_context", None) is not None


def show_run(run: JobRun, configuration: Configuration) -> None:
    """Have a run that is about to start watched over REST, if the configuration says so."""
    configuration = overrides.forced(configuration)
    watched = options.get(configuration, options.REST_ENABLED)
    on_spark = options.get(configuration, options.TARGET) == "spark"
    if watched == "true" or (watched == "auto" and on_spark):
        import_module("millstream.rest.start").show(run, configuration)
    overrides.show_run_to(run)
