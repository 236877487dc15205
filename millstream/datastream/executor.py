"""Finds what runs a job (Flink's `PipelineExecutorServiceLoader`), by the option `execution.target`.

The runners are found by name, so that building a program imports no Spark, and the REST server too, which stands above.
"""

from __future__ import annotations

from importlib import import_module

from millstream.common import options
from millstream.common.configuration import Configuration
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.run import JobRun

__all__ = ["create_run"]

_RUNNERS = {
    "spark": ("millstream.spark.run", "SparkRun"),
    "in-process": ("millstream.runtime.driver.local", "InProcessRun"),
}


def create_run(configuration: Configuration, job: Job) -> JobRun:
    """A run of the job, not yet started, which can be watched if the configuration says so."""
    target = options.get(configuration, options.TARGET)
    module, name = _RUNNERS[target]
    run: JobRun = getattr(import_module(module), name)(job)
    watched = options.get(configuration, options.REST_ENABLED)
    if watched == "true" or (watched == "auto" and target == "spark"):
        import_module("millstream.rest.start").show(run, configuration)
    return run
