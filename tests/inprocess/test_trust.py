"""Where trust ends: what reads state from outside makes plain values of it and never calls what a file names.

Every way in which a file could name code is planted here, and every tool is let loose on it. What the planted code
would do is make a folder.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from click.testing import CliRunner

from millstream import state
from millstream.checkpoint.manifest import (
    METADATA,
    GeneratorState,
    Manifest,
    OperatorInfo,
    StoreState,
    encode_manifest,
)
from millstream.checkpoint.statefile import Header, StateFile, StateWriter, TableInfo
from millstream.cli import main
from millstream.common import Row
from millstream.errors import MillstreamError
from millstream.runtime.wire.codec import dumps
from millstream.runtime.wire.key_objects import KNOWN
from millstream.runtime.wire.keys import canonical
from millstream.storage.storage import LocalStorage

FILE = "shared/op/0/000000000001-a"
PLAIN = TableInfo("op/s", "value", "plain", "Long")
PICKLED = TableInfo("op/s", "value", "pickle")


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


class Colour(Enum):
    RED = 1


def savepoint(
    folder: Path,
    blocks: list[tuple[str, Any]],
    table: TableInfo = PLAIN,
    kind: str = "value",
    name: str = "s",
    **manifest: Any,
) -> str:
    """A savepoint of one file. A block is its kind and what it holds."""
    storage = LocalStorage(str(folder))
    with storage.open_write(FILE) as stream:
        writer = StateWriter(stream, Header(FILE, 1, True, [table]), dumps)
        for of_kind, content in blocks:
            if of_kind in "SO":
                writer._block(of_kind.encode() + dumps(content))
            else:
                writer.entries(0, of_kind, content)
        writer.end()
    store = StoreState(
        subtask=0,
        parallelism=1,
        max_parallelism=128,
        operators=["op"],
        segments=[StateFile(FILE, 1, True, writer.size)],
    )
    info = OperatorInfo(
        name="op", parallelism=1, max_parallelism=128, states={name: {"kind": kind}}
    )
    made = Manifest(
        epoch=1,
        job_id="j",
        stores={"op/0": store},
        operators={"op": info},
        savepoint=True,
        **manifest,
    )
    storage.publish(METADATA, encode_manifest(made))
    return str(folder)


def listed(codec: str, elements: list[Any]) -> list[tuple[str, Any]]:
    return [("S", {"op/s": {"kind": "list", "parts": [[codec, None, elements]]}})]


def _nested(evil: Evil) -> bytes:
    return canonical(frozenset({(1, evil)}))


PLANTED: dict[str, Callable[[Path, Evil], str]] = {
    "a key": lambda to, evil: savepoint(to, [("P", [(pickle.dumps(evil), 1)])]),
    "a key with a window": lambda to, evil: savepoint(to, [("P", [((pickle.dumps(evil), 5), 1)])]),
    "a key that is gone": lambda to, evil: savepoint(
        to, [("P", [("a", 1)]), ("D", [pickle.dumps(evil)])]
    ),
    "what a key is made by": lambda to, evil: savepoint(to, [("P", [(canonical(evil), 1)])]),
    "a part of a key": lambda to, evil: savepoint(to, [("P", [(_nested(evil), 1)])]),
    "a plain value": lambda to, evil: savepoint(to, [("P", [("a", evil)])]),
    "a pickled value": lambda to, evil: savepoint(to, [("P", [("a", evil)])], PICKLED),
    "a key of a pickled table": lambda to, evil: savepoint(
        to, [("P", [(pickle.dumps(evil), 1)])], PICKLED
    ),
    "a plain list": lambda to, evil: savepoint(
        to, [("A", [("a", [evil])])], TableInfo("op/s", "list", "plain", "Long"), "list"
    ),
    "a plain map": lambda to, evil: savepoint(
        to,
        [("M", [("a", [("b", (evil, 1))])])],
        TableInfo("op/s", "map", "plain", {"entry": ["String", "Long"]}),
        "map",
    ),
    "operator state": lambda to, evil: savepoint(
        to, listed("plain", [evil]), PLAIN, "operator list"
    ),
    "pickled operator state": lambda to, evil: savepoint(
        to, listed("pickle", [pickle.dumps(evil)]), PLAIN, "operator list"
    ),
    "operator state of 0.1.0": lambda to, evil: savepoint(
        to, [("O", {"op/s": {"kind": "list", "value": [evil]}})], PLAIN, "operator list"
    ),
    "the manifest": lambda to, evil: savepoint(
        to,
        [("P", [("a", 1)])],
        times={"src": {"0": {"w": GeneratorState(generator=pickle.dumps(evil))}}},
        committables={"sink": [pickle.dumps(evil)]},
        extra={"any": pickle.dumps(evil).hex()},
    ),
}


def planted(place: str, folder: Path, made: Path) -> str:
    path = PLANTED[place](folder, Evil(made))
    # Whoever has made a key with a function knows it.
    KNOWN.clear()
    return path


TOOLS: dict[str, Callable[[str], Any]] = {
    "rows": lambda path: list(state.open_savepoint(path).rows("op", "s")),
    "pandas": lambda path: state.read_pandas(path, "op", "s"),
    "frame": lambda path: state.read(path, "op", "s", spark=object()),
    "update": lambda path: state.edit(path).update("op", "s", lambda key, value: value),
    "put": lambda path: state.edit(path).put("op", "s", "b", 2),
    "write": lambda path: state.edit(path).write(f"{path}-edited"),
    "show": lambda path: CliRunner().invoke(main, ["savepoint", "show", path]),
}
# Nobody reads what is planted there, but for a job.
HARMLESS = {"the manifest"}


def outcome(tool: Callable[[str], Any], path: str) -> str:
    """What a tool has to say; nothing if it is content."""
    try:
        tool(path)
    except MillstreamError as error:
        return f"{error.code} {error}" if error.code == "STATE_NOT_TRUSTED" else error.code
    except AttributeError as error:
        return (
            "no session" if "'object' object has no attribute 'range'" in str(error) else str(error)
        )
    return ""


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("place", PLANTED)
def test_no_tool_runs_what_is_planted(place: str, tool: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    path = planted(place, tmp_path / "savepoint", made)
    said = outcome(TOOLS[tool], path)
    assert not made.exists()
    if tool in ("show", "write") or place in HARMLESS:
        assert said in ("", "no session")
    else:
        assert said == "UNSUPPORTED_OPERATION" or re.match(
            "STATE_NOT_TRUSTED.*(op/s|operator state)", said
        )


@pytest.mark.parametrize("place", PLANTED)
def test_what_is_planted_is_able_to_run(place: str, tmp_path: Path) -> None:
    """The tests above could pass because nothing would ever run."""
    made = tmp_path / "made"
    path = planted(place, tmp_path / "savepoint", made)
    with suppress(Exception):
        list(state.open_savepoint(path, allow_pickle=True).rows("op", "s"))
    runs = (
        "a pickled value",
        "a key of a pickled table",
        "pickled operator state",
        "operator state of 0.1.0",
    )
    assert made.exists() == (place in runs)


VALUES = [
    "a", 1, 1.5, None, True, b"x", (1, "a"), [1, [2]], {"a": 1}, {1, 2}, frozenset({"a"}), 1j,
    date(2026, 1, 1), datetime(2026, 1, 1, 5), datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")), timedelta(seconds=5), Decimal("1.50"),
    UUID(int=5), Row(a=1, b="x"), Row(1, date(2026, 1, 1)), np.int64(5), np.float32(1.5),
    np.datetime64("2026-01-01", "us"),
]  # fmt: skip


@pytest.mark.parametrize("key", VALUES, ids=repr)
def test_a_key_that_is_a_value_needs_no_trust(key: Any, tmp_path: Path) -> None:
    path = savepoint(tmp_path, [("P", [(canonical(key), 1)])])
    ((found, value),) = state.open_savepoint(path).rows("op", "s")
    assert (found, type(found), value) == (key, type(key), 1)


def test_a_key_of_the_programs_class_needs_trust(tmp_path: Path) -> None:
    path = savepoint(tmp_path, [("P", [(canonical(Colour.RED), 1)])])
    KNOWN.clear()
    with pytest.raises(MillstreamError, match="allow_pickle=True") as raised:
        list(state.open_savepoint(path).rows("op", "s"))
    assert raised.value.code == "STATE_NOT_TRUSTED"
    assert "op/s" in str(raised.value)
    assert list(state.open_savepoint(path, allow_pickle=True).rows("op", "s")) == [(Colour.RED, 1)]


def test_a_pickled_table_is_read_if_it_is_trusted(tmp_path: Path) -> None:
    path = savepoint(tmp_path, [("P", [("a", Colour.RED)])], PICKLED)
    with pytest.raises(MillstreamError, match="allow_pickle=True"):
        state.read_pandas(path, "op", "s")
    assert list(state.open_savepoint(path, allow_pickle=True).rows("op", "s")) == [
        ("a", Colour.RED)
    ]
    edited = state.edit(path, allow_pickle=True)
    edited.put("op", "s", "b", Colour.RED)
    edited.write(f"{path}-edited")
    frame = state.read_pandas(f"{path}-edited", "op", "s", allow_pickle=True)
    assert list(frame["key"]) == ["a", "b"]


def test_a_plain_table_is_read_beside_a_pickled_one(tmp_path: Path) -> None:
    """What nobody asks for is neither trusted nor in the way."""
    made = tmp_path / "made"
    path = str(tmp_path / "savepoint")
    storage = LocalStorage(path)
    savepoint(tmp_path / "savepoint", [("P", [("a", 1)])])
    with storage.open_write(FILE) as stream:
        tables = [TableInfo("op/other", "value", "pickle"), PLAIN]
        writer = StateWriter(stream, Header(FILE, 1, True, tables), dumps)
        writer.entries(0, "P", [("a", Evil(made))])
        writer.entries(1, "P", [("a", 1)])
        writer.end()
    storage.delete(METADATA)
    store = StoreState(
        subtask=0, parallelism=1, max_parallelism=128, operators=["op"],
        segments=[StateFile(FILE, 1, True, writer.size)],
    )  # fmt: skip
    info = OperatorInfo(
        name="op", parallelism=1, max_parallelism=128, states={"s": {"kind": "value"}}
    )
    storage.publish(
        METADATA,
        encode_manifest(
            Manifest(
                epoch=1, job_id="j", stores={"op/0": store}, operators={"op": info}, savepoint=True
            )
        ),
    )
    assert list(state.open_savepoint(path).rows("op", "s")) == [("a", 1)]
    with pytest.raises(MillstreamError, match="op/other"):
        state.edit(path).put("op", "s", "a", 2)
    assert not made.exists()


@pytest.mark.parametrize("value", [[5, 6], "evil"])
def test_timers_need_no_trust_unless_code_is_among_them(value: Any, tmp_path: Path) -> None:
    made = tmp_path / "made"
    blocks = [("P", [(canonical(("k", 1)), Evil(made) if value == "evil" else value)])]
    timers = TableInfo("op/#timers", "value", "pickle")
    path = savepoint(tmp_path / "savepoint", blocks, timers, name="#timers")
    said = outcome(lambda path: list(state.open_savepoint(path).rows("op", "#timers")), path)
    assert said.startswith("STATE_NOT_TRUSTED") == (value == "evil")
    assert not made.exists()
