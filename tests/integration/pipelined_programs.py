"""Programs in pipelined mode, all in one Spark: python -m tests.integration.pipelined_programs FOLDER CASES

Prints a line of JSON for each: its name, and what is wrong, or null. CASES is how many of the conformance cases are run
beside the others; 0 for none, -1 for all.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.common.configuration import Configuration
from millstream.common.execution_mode import RuntimeExecutionMode
from millstream.common.serialization import Encoder
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.datagen import DataGeneratorSource
from millstream.connectors.file.sink import FileSink
from millstream.datastream import (
    DataStream,
    KeyedProcessFunction,
    KeyedStream,
    SourceFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import UserFunctionError
from tests.conformance import script
from tests.conformance.test_cases import CASES, Case, compare, program_of
from tests.waiting import until

# All tasks run at the same time: of the widest case, at parallelism 2.
SLOTS = {"spark.master": "local[24,3]", "execution.mode": "pipelined"}


def environment(**options: str) -> StreamExecutionEnvironment:
    named = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    configuration = Configuration.from_dict({**SLOTS, **named})
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)


class Count(KeyedProcessFunction):
    """Counts, in state; writes down in which processes it was."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, runtime_context: Any) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count"))
        (self._folder / f"pid-{os.getpid()}").touch()

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self._count.update((self._count.value() or 0) + 1)
        yield ctx.get_current_key(), self._count.value()


def written(folder: Path) -> Counter[str]:
    files = [f for f in folder.rglob("*") if f.is_file() and not f.name.startswith(".")]
    return Counter(line for file in files for line in file.read_text().splitlines())


def expected(count: int) -> Counter[str]:
    return Counter(str((n % 10, n // 10 + 1)) for n in range(count))


def counting(folder: Path, count: int | None, rate: int, **options: str) -> Any:
    """A job that counts numbers by their last digit into files, exactly once."""
    folder.mkdir(exist_ok=True)
    env = environment(
        execution__checkpointing__dir=str(folder / "checkpoints"),
        restart_strategy__type="fixed-delay",
        restart_strategy__fixed_delay__attempts="20",
        restart_strategy__fixed_delay__delay="0 s",
        **options,
    )
    env.enable_checkpointing(300)
    source = DataGeneratorSource(lambda n: n, count, rate)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    counts = numbers.key_by(lambda n: n % 10).process(Count(folder)).uid("count")
    sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder()).build()
    counts.map(str).sink_to(sink).uid("files")
    return env.execute_async("counting")


def pids(folder: Path) -> set[int]:
    return {int(path.name[4:]) for path in folder.glob("pid-*")}


def a_worker_is_killed(folder: Path) -> None:
    client = counting(folder, 4000, 1000)
    until(lambda: written(folder / "out"))
    before = pids(folder)
    os.kill(min(before), signal.SIGKILL)
    client.get_job_execution_result().result()
    assert written(folder / "out") == expected(4000)
    assert pids(folder) != before
    assert client.get_metrics().restarts >= 1


def a_job_stops_and_goes_on(folder: Path) -> None:
    client = counting(folder, None, 1000)
    until(lambda: written(folder / "out"))
    path = client.stop_with_savepoint(False, str(folder / "savepoints")).result()
    first = sum(written(folder / "out").values())
    assert written(folder / "out") == expected(first)
    again = counting(folder, None, 1000, execution__state_recovery__path=path)
    until(lambda: sum(written(folder / "out").values()) > first + 1000)
    again.stop_with_savepoint(False, str(folder / "savepoints")).result()
    total = sum(written(folder / "out").values())
    assert written(folder / "out") == expected(total)


def a_function_fails(folder: Path) -> None:
    numbers = environment(restart_strategy__type="none").from_collection(list(range(10)))
    with pytest.raises(UserFunctionError) as caught:
        list(numbers.key_by(lambda n: n % 2).map(lambda n: 1 // (n - 7)).execute_and_collect())
    assert caught.value.evidence["record"] == "7"
    assert "pipelined_programs.py" in str(caught.value.evidence["line"])


def records_come_before_the_checkpoint(folder: Path) -> None:
    env = environment().enable_checkpointing(600_000)
    (folder / "seen").mkdir(parents=True)
    seen = str(folder / "seen")

    def see(value: Any) -> Any:
        Path(seen, str(value[0])).touch()
        return value

    env.add_source(Forever()).key_by(lambda v: v[0] % 3).map(see).print()
    client = env.execute_async("soon")
    until(lambda: len(os.listdir(seen)) > 20)
    client.cancel().result()


class Forever(SourceFunction):
    def run(self, ctx: Any) -> None:
        for number in range(10**9):
            ctx.collect((number, "x"))
            time.sleep(0.005)

    def cancel(self) -> None:
        pass


PROGRAMS: list[Callable[[Path], None]] = [
    a_function_fails,
    records_come_before_the_checkpoint,
    a_job_stops_and_goes_on,
    a_worker_is_killed,
]


def fits(case: Case) -> bool:
    """True of cases whose results do not depend on the mode: not on epochs, the clock, or who comes first."""
    return (
        "error" not in case.blocks
        and case.mode is RuntimeExecutionMode.STREAMING
        and not case.moves_clock
        and "epochs" not in case.options
        and not case.path.stem.startswith("r50")
        and "iterate(" not in case.path.read_text()
    )


def run_case(case: Case, folder: Path) -> None:
    folder.mkdir(parents=True)
    allowed = [parallelism for parallelism, _ in case.variants()]
    parallelism = 2 if 2 in allowed else allowed[0]
    for name in case.of_kind("expect"):
        env = environment().set_parallelism(parallelism)
        scope = program_of(case, env, parallelism, folder)
        stream = scope[name]
        # What is collected of a keyed stream has its key beside it, as in PyFlink.
        if not isinstance(stream, DataStream) or isinstance(stream, KeyedStream):
            continue
        if case.stamps(name):
            stream = script.stamped(stream)
        with stream.execute_and_collect() as results:
            compare(case, list(results), case.expected(name, scope))


def say(name: str, play: Callable[[], None]) -> None:
    problem = None
    began = time.monotonic()
    try:
        play()
    except Exception:
        problem = traceback.format_exc()
    took = round(time.monotonic() - began, 1)
    print(json.dumps({"name": name, "problem": problem, "seconds": took}), flush=True)


def main() -> None:
    """The command line."""
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    for program in PROGRAMS:
        place = folder / program.__name__
        place.mkdir(parents=True)
        say(program.__name__, lambda program=program, place=place: program(place))  # type: ignore[misc]
    cases = [case for case in map(Case, CASES) if fits(case)]
    chosen = cases if count < 0 else cases[:: max(1, len(cases) // count)][:count] if count else []
    for case in chosen:
        say(
            case.path.stem,
            lambda case=case: run_case(case, folder / case.path.stem),  # type: ignore[misc]
        )


if __name__ == "__main__":
    main()
