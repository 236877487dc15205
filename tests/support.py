"""What tests of whole programs share: environments without Spark, and a sink that keeps records."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millstream.api.functions import RuntimeContext, SinkFunction
from millstream.common.configuration import Configuration
from millstream.datastream import DataStream, StreamExecutionEnvironment

_numbers = itertools.count()
_kept: dict[int, list[tuple[int, Any]]] = {}


def environment(
    parallelism: int = 1, epoch: int | None = None, **options: Any
) -> StreamExecutionEnvironment:
    """An in-process environment; `epoch` cuts the input into epochs of so many records.

    Other options are given with `__` for a dot and `_` for a hyphen.
    """
    configuration = Configuration()
    configuration.set_string("execution.target", "in-process")
    configuration.set_integer("parallelism.default", parallelism)
    if epoch is not None:
        configuration.set_integer("millstream.epoch.records", epoch)
    for name, value in options.items():
        configuration.set_string(name.replace("__", ".").replace("_", "-"), str(value))
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def collect(stream: DataStream) -> list[Any]:
    """Run the program; the records of one stream."""
    return list(stream.execute_and_collect())


class Keep(SinkFunction):
    """Keeps what it gets, with the subtask's number. Functions are copied, this module is not."""

    def __init__(self, number: int) -> None:
        self._number = number

    def open(self, runtime_context: RuntimeContext) -> None:
        self._subtask = runtime_context.get_index_of_this_subtask()

    def invoke(self, value: Any, context: SinkFunction.Context) -> None:
        _kept[self._number].append((self._subtask, value))


class Kept:
    """The records of several streams of one program."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def add(self, name: str, stream: DataStream, parallelism: int | None = None) -> None:
        """Keep the records of a stream under a name."""
        self._numbers[name] = number = next(_numbers)
        _kept[number] = []
        sink = stream.add_sink(Keep(number)).name(name)
        if parallelism is not None:
            sink.set_parallelism(parallelism)

    def values(self, name: str) -> list[Any]:
        """What came, each subtask's records in their order."""
        return [value for _, value in _kept[self._numbers[name]]]

    def with_subtask(self, name: str) -> list[tuple[int, Any]]:
        """What came and where."""
        return list(_kept[self._numbers[name]])

    def forget(self) -> None:
        """Let go of everything."""
        for number in self._numbers.values():
            del _kept[number]


@contextmanager
def keeping() -> Iterator[Kept]:
    """A place for records that is emptied afterwards."""
    kept = Kept()
    try:
        yield kept
    finally:
        kept.forget()


def program_of(page: str, instead: Mapping[str, str]) -> str:
    """The program that a page of docs/connectors shows, to be run in-process: the first block that
    begins with an import.
    `instead` says what stands in place of what only a user has: an address, a folder."""
    text = (Path(__file__).parents[1] / "docs" / "connectors" / page).read_text()
    found = re.search(r"^```python\n(from [\s\S]*?)^```$", text, re.MULTILINE)
    assert found is not None, f"{page} has no program"
    program = found[1]
    target = {"from_dict({": 'from_dict({"execution.target": "in-process", '}
    for before, after in {**target, **instead}.items():
        assert before in program, f"the program of {page} has no {before}"
        program = program.replace(before, after)
    return program
