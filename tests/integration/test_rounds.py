"""Epochs in rounds on Spark: results before the checkpoint, and processes that end in between."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Encoder, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, SinkFunction
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import FileSink
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import UserFunctionError
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

KEYS = 10
ROUNDS = {
    "millstream.epoch.interval": "50 ms",
    "execution.checkpointing.interval": "1 h",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "2",
    "restart-strategy.fixed-delay.delay": "0 s",
}


class Count(KeyedProcessFunction):
    """Counts its key; at one record it ends its process, or raises, if a file says so."""

    def __init__(self, folder: str, at: int) -> None:
        self.folder, self.at = Path(folder), at

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: int, ctx: Any) -> Any:
        if value == self.at and (self.folder / "raise").exists():
            raise ValueError("as it was told to")
        if value == self.at and not (self.folder / "killed").exists():
            (self.folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.count.value()


class See(SinkFunction):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def invoke(self, value: Any, context: Any) -> None:
        with Path(self.folder, f"seen-{os.getpid()}").open("a") as file:
            file.write(f"{value}\n")


def start(make_env: Callable[..., Any], folder: Path, records: int, at: int) -> Any:
    options = {**ROUNDS, "execution.checkpointing.dir": str(folder / "checkpoints")}
    env = make_env(options=options)
    source = DataGeneratorSource(lambda n: n, records, 300.0)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    counts = numbers.key_by(lambda n: n % KEYS).process(Count(str(folder), at))
    counts.add_sink(See(str(folder)))
    sink = FileSink.for_row_format(str(folder / "out"), Encoder.simple_string_encoder()).build()
    counts.map(str).sink_to(sink)
    return env.execute_async("in rounds")


def lines(files: Any) -> Counter[str]:
    return Counter(line for file in files for line in file.read_text().splitlines())


def seen(folder: Path) -> Counter[str]:
    return lines(folder.glob("seen-*"))


def expected(records: int) -> Counter[str]:
    return Counter(str((n % KEYS, n // KEYS + 1)) for n in range(records))


def test_a_process_that_ends_between_checkpoints_loses_and_doubles_nothing(
    make_env: Callable[..., Any], tmp_path: Path
) -> None:
    client = start(make_env, tmp_path, 900, at=400)
    until(lambda: seen(tmp_path).total() >= 200, 120)
    assert not list(tmp_path.glob("out/**/part-*"))
    client.get_job_execution_result().result()
    out = [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert lines(file for file in out if not file.name.startswith(".")) == expected(900)
    # What does not wait for checkpoints was seen again.
    assert seen(tmp_path) > expected(900)
    assert client.get_metrics().restarts == 1


def test_the_failure_is_told_and_not_what_came_of_it(
    make_env: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "raise").touch()
    client = start(make_env, tmp_path, 600, at=200)
    with pytest.raises(UserFunctionError, match="as it was told to") as raised:
        client.get_job_execution_result().result()
    assert raised.value.evidence["record"] == "200"
