"""Executors whose Python cannot run a job: recognized in what Spark says, and told with what they say themselves."""

from __future__ import annotations

import contextlib
import re
import sys

from pyspark.sql import SparkSession

from millstream import __version__
from millstream.errors import ExecutorUnusable, MillstreamError
from millstream.spark.executors import examine

__all__ = ["another_version", "unfit", "with_facts"]

SHIP = "millstream run --ship-environment brings the packages along, to any host with Python {}"
_SECONDS = 20.0
# What a worker imports before it comes to a function of the program.
_OURS = r"millstream|pyarrow|pandas|numpy|cloudpickle|msgspec|lmdb|pyspark|py4j|click|yaml|typing_extensions"

_HOST = re.compile(r"\(([^\s()]+) executor ([^\s()]+)\)")
_NO_PYTHON = re.compile(r"\[millstream-no-python\] ([^\n]*)")
_MINOR = re.compile(
    r"Python in worker has different version: ([^\s,]+) than that in driver: ([^\s,]+)"
)
_NO_PROGRAM = re.compile(r"Cannot run program \"([^\"]+)\"")
_NO_MODULE = re.compile(rf"No module named '?((?:{_OURS})(?:\.[\w.]+)?)'?")
_NO_PACKAGE = re.compile(r"\[PACKAGE_NOT_INSTALLED\] ([^\n;]*)")


def _driver() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def unfit(text: str) -> ExecutorUnusable | None:
    """The error, if what Spark says is that the Python of an executor does not fit.

    >>> said = (
    ...     "Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): No module named 'millstream'"
    ... )
    >>> print(unfit(said).evidence)
    {'host': '10.0.0.7', 'executor': '1', 'missing': 'millstream'}
    """
    found = _HOST.search(text)
    where = {} if found is None else {"host": found[1], "executor": found[2]}
    ship = SHIP.format(_driver())
    if match := _NO_PYTHON.search(text):
        return ExecutorUnusable(
            "no Python of an executor's host fits the environment that was shipped",
            **where,
            tried=match[1].replace("; ", "\n").strip(),
            hint=f"install Python {_driver()} of the same system there, or name it: "
            "-Dspark.pyspark.python=/path/to/python",
        )
    if match := _MINOR.search(text):
        return ExecutorUnusable(
            f"an executor runs Python {match[1]}, the driver {match[2]}: pickled code does not travel between them",
            **where,
            hint=f"name a Python {match[2]} of the executors' hosts: -Dspark.pyspark.python=/path/to/python; or {ship}",
        )
    if match := _NO_PROGRAM.search(text):
        return ExecutorUnusable(
            f"an executor's host has no such Python: {match[1]}",
            **where,
            hint=f"install it there, or name one that is there: -Dspark.pyspark.python=/path/to/python{_driver()}",
        )
    match = _NO_MODULE.search(text) or _NO_PACKAGE.search(text)
    if match is None:
        return None
    return ExecutorUnusable(
        "the Python of an executor does not have what a job needs",
        **where,
        missing=match[1],
        hint=f"{ship}; or pip install millstream=={__version__} for that Python; or name another: "
        "-Dspark.pyspark.python=/path/to/python",
    )


def with_facts(session: SparkSession, error: MillstreamError) -> MillstreamError:
    """The error with what the executors say of themselves, where one of them lacks packages: Spark does not tell which
    Python it was."""
    if not isinstance(error, ExecutorUnusable) or "missing" not in error.evidence:
        return error
    with contextlib.suppress(Exception):
        told = [
            f"{facts.name}: {facts.python}, Python {'.'.join(map(str, facts.version))}, "
            + (f"without {', '.join(facts.missing)}" if facts.missing else "has everything")
            for facts in examine(session, seconds=_SECONDS)
        ]
        error.evidence["executors"] = "\n".join(told)
    return error


def another_version(driver: str, python: str) -> ExecutorUnusable | None:
    """In a worker: the error, if its Millstream is not the driver's."""
    if driver == __version__:
        return None
    import socket

    return ExecutorUnusable(
        f"an executor has Millstream {__version__}, the driver {driver}",
        host=socket.gethostname(),
        python=python,
        hint=f"pip install millstream=={driver} there; or {SHIP.format(_driver())}",
    )
