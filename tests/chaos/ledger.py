"""The ledger of the kill test: a line of JSON for every round that has ended, written once and never changed.

A round is what one seed does to one job. Its line has every kill with its point and the time of recovery, and what
the oracle found. A round that was interrupted has no line, and is run again; a line that was cut by a crash counts as
none. A line with a `note` says what became of a round that was not clean: the bug, and the change that ended it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Ledger", "Round", "Strike"]


@dataclass(frozen=True)
class Strike:
    """A kill, a pause or a restart. `role` is who was struck; `recovery` is in seconds, None if it was not measured."""

    role: str
    point: str
    recovery: float | None = None


@dataclass
class Round:
    """What one seed has done to one job, and what came of it. `kills` is how many drivers and workers were to die."""

    job: str
    seed: int
    kills: int = 5
    began: str = ""
    seconds: float = 0.0
    commit: str = ""
    machine: str = ""
    strikes: list[Strike] = field(default_factory=list)
    missed: int = 0
    starts: int = 0
    rescales: int = 0
    savepoints: int = 0
    records: int = 0
    lost: int = 0
    duplicated: int = 0
    disordered: int = 0
    wrong: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """True if nothing is lost, doubled, out of order or wrong, and the job did not fail by itself."""
        return not (self.lost or self.duplicated or self.disordered or self.wrong or self.failures)

    def struck(self, role: str) -> int:
        """How many of a role were struck."""
        return sum(strike.role == role for strike in self.strikes)


def _round(line: dict[str, Any]) -> Round:
    strikes = [Strike(**strike) for strike in line.pop("strikes")]
    return Round(**line, strikes=strikes)


@dataclass
class Ledger:
    """A file of rounds, which may not be there yet."""

    path: Path

    def rounds(self) -> list[Round]:
        """All rounds that have ended. Of two lines of one round the first counts."""
        found: dict[tuple[str, int], Round] = {}
        for line in self._lines():
            if "note" not in line:
                one = _round(line)
                found.setdefault((one.job, one.seed), one)
        return list(found.values())

    def notes(self) -> dict[tuple[str, int], str]:
        """What was found out about rounds that were not clean."""
        return {
            (line["job"], line["seed"]): line["note"] for line in self._lines() if "note" in line
        }

    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        *whole, cut = self.path.read_text().split("\n")
        for line in whole:
            if line:
                yield json.loads(line)
        # What stands behind the last end of a line was not written to its own end.
        del cut

    def append(self, one: Round) -> None:
        """Add a round; on disk when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            self._drop_cut(file)
            file.write(json.dumps(asdict(one)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _drop_cut(self, file: Any) -> None:
        """Take away half a line at the end, which would spoil the next one."""
        file.seek(0)
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Only one process runs rounds for a ledger."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                msg = f"another kill test writes to {self.path.name}: wait for it, or use --ledger"
                raise SystemExit(msg) from None
            yield
