"""Timed runs of queries, each in a process of its own, each held against its oracle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from millstream.bench.figures import Figures
from millstream.bench.nexmark import oracle
from millstream.bench.nexmark.generator import BLOCK, Events, Generator
from millstream.errors import JobError

__all__ = ["checked", "expected", "generator_rate", "job_arguments", "measure"]

_TIMEOUT = 1_800


@lru_cache(maxsize=256)
def expected(query: str, events: int, seed: int) -> str:
    """The hash that a run must have."""
    return oracle.digest(query, Events(Generator(seed), events))


def checked(result: dict[str, Any], seed: int) -> dict[str, Any]:
    """A run's line, if its results are right."""
    wanted = expected(result["query"], result["total_records"], seed)
    if result["hash"] != wanted:
        raise JobError(
            "the benchmark's results are wrong, so its times mean nothing",
            query=result["query"],
            system=result["system"],
            hash=result["hash"],
            expected=wanted,
        )
    return result


def generator_rate(seed: int) -> float:
    """How many events one process makes in a second and throws away, over about a second."""
    generator, began, made = Generator(seed), time.perf_counter(), 0
    while time.perf_counter() < began + 1:
        generator.block(made)
        made += 1
    return made * BLOCK / (time.perf_counter() - began)


def job_arguments(
    parallelism: int, seed: int, options: Mapping[str, str] | None = None
) -> list[str]:
    """What every run of Millstream is given, beside query and number of events."""
    more = [f"-D{key}={value}" for key, value in (options or {}).items()]
    return ["--parallelism", str(parallelism), "--seed", str(seed), *more]


def _run(query: str, events: int, arguments: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "millstream.bench.nexmark.job", "--query", query]
    command += ["--records", str(events), *arguments]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, start_new_session=True)
        try:
            code: int | None = process.wait(_TIMEOUT)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            # With everything that it started: a JVM may outlive its Python.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        errors.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
        found = [line for line in lines if line.startswith('{"system"')]
        if code != 0 or not found:
            tail = "\n".join(errors.read().decode(errors="replace").splitlines()[-30:])
            ended = f"after {_TIMEOUT} s it had not ended" if code is None else f"exit code {code}"
            raise JobError("a run of the benchmark failed", query=query, ended=ended, wrote=tail)
    result: dict[str, Any] = json.loads(found[-1])
    return result


def measure(
    queries: Sequence[str],
    events: int,
    rounds: int,
    seed: int,
    arguments: Sequence[str],
    say: Callable[[str], None],
) -> list[Figures]:
    """Run all queries in turn, `rounds` times; every other round goes backwards."""
    found = [Figures(query, "millstream", events) for query in queries]
    for number in range(1, rounds + 1):
        for item in found if number % 2 else reversed(found):
            item.add(checked(_run(item.query, events, arguments), seed))
            say(f"round {number}: {item.query} {item.rates[-1]:,.0f}/s, results right")
    return found
