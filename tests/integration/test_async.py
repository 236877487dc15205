"""Asynchronous I/O on Spark, through lost workers, and against a real database."""

from __future__ import annotations

import asyncio
import os
import re
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millstream.common import Time
from millstream.datastream import AsyncDataStream, AsyncFunction, MapBatchesFunction
from millstream.errors import UserFunctionError
from tests.integration import postgres as server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
MINUTE = Time.minutes(1)
WAITS = {"ordered": AsyncDataStream.ordered_wait, "unordered": AsyncDataStream.unordered_wait}

postgres = server.postgres


class Ask(AsyncFunction):
    """Answers after a while; once, with requests under way, its process dies or its function fails."""

    def __init__(self, note: Path | None = None, how: str = "") -> None:
        self.note, self.how = note, how

    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(value * 7 % 5 / 2000)
        if self.note is not None and value == 260 and not self.note.exists():
            self.note.touch()
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ConnectionError("once")
        return [value]


@pytest.mark.parametrize("how", ["raise", "kill"])
@pytest.mark.parametrize("wait", sorted(WAITS))
def test_every_request_is_answered_once_in_the_output(
    make_env: Any, tmp_path: Path, how: str, wait: str
) -> None:
    env = make_env(
        options={
            "millstream.epoch.records": "100",
            "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "3",
            "restart-strategy.fixed-delay.delay": "10 ms",
        }
    )
    env.enable_checkpointing(50)
    note = tmp_path / "note"
    numbers = env.from_collection(range(500)).rebalance()
    answered = WAITS[wait](numbers, Ask(note, how), MINUTE, 20)
    counts = answered.map(lambda n: (n % 3, 1)).key_by(0).sum(1)
    found = list(counts.execute_and_collect(f"async {wait} {how}"))
    assert note.exists()
    each = {key: len(range(key, 500, 3)) for key in range(3)}
    assert sorted(found) == [(key, n) for key in range(3) for n in range(1, each[key] + 1)]


def test_one_batch(make_env: Any) -> None:
    answered = AsyncDataStream.ordered_wait(make_env().from_collection(range(300)), Ask(), MINUTE)
    assert sorted(answered.execute_and_collect()) == list(range(300))


def test_an_error_comes_as_what_it_is(make_env: Any, tmp_path: Path) -> None:
    stream = make_env().from_collection(range(300))
    answered = AsyncDataStream.ordered_wait(stream, Ask(tmp_path / "note"), MINUTE).name("ask")
    with pytest.raises(UserFunctionError, match="ConnectionError: once") as caught:
        list(answered.execute_and_collect())
    assert caught.value.evidence["operator"] == "ask"
    assert caught.value.evidence["record"] == "260"


@pytest.mark.parametrize("database", ["PostgreSQL", "SQLite"])
def test_enrichment(database: str, request: Any, spark: Any, monkeypatch: Any, capfd: Any) -> None:
    script = str(ROOT / "examples" / "async_enrichment.py")
    arguments = [script]
    if database == "PostgreSQL":
        dsn = request.getfixturevalue("postgres").dsn
        arguments.append(psycopg.conninfo.make_conninfo(**dsn))
    monkeypatch.setattr(sys, "argv", arguments)
    capfd.readouterr()
    runpy.run_path(script, run_name="__main__")
    assert [line for line in capfd.readouterr().out.splitlines() if line.strip()] == [
        "tea for Ben in Oslo",
        "ink for Ann in Lyon",
        "rope for nobody: 9?",
        "salt for Cleo in Bonn",
        "oil for Ben in Oslo",
    ]


class Twice(MapBatchesFunction):
    """Fails once, in the middle of the input."""

    def __init__(self, note: Path) -> None:
        self.note = note

    def map_batches(self, batch: Any) -> Any:
        if batch["value"].max() >= 260 and not self.note.exists():
            self.note.touch()
            raise ConnectionError("once")
        return batch["value"] * 2


def test_batches_of_columns(make_env: Any, tmp_path: Path) -> None:
    """Functions over batches, in epochs of which one is replayed."""
    env = make_env(
        options={
            "millstream.epoch.records": "100",
            "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "3",
            "restart-strategy.fixed-delay.delay": "10 ms",
        }
    )
    env.enable_checkpointing(50)
    numbers = env.from_collection(range(500)).rebalance()
    doubled = numbers.map_batches(Twice(tmp_path / "note"), 30, "pandas")
    kept = doubled.filter_batches(lambda n: n % 3 == 0, 20, "numpy")
    found = kept.flat_map_batches(lambda batch: [[n, -n] for n in batch])
    sixes = range(0, 1000, 6)
    assert sorted(found.execute_and_collect("batches")) == sorted([*sixes, *(-n for n in sixes)])
    assert (tmp_path / "note").exists()


def test_guide() -> None:
    """Its snippets build a program, together; nothing is run."""
    text = (ROOT / "docs" / "async.md").read_text()
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert snippets
    exec("\n".join(snippets), {})
