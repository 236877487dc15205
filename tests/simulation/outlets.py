"""The systems behind the checker job's sinks, who reads them, and what the oracle says of what has come out.

```
transactions  commits by the committables' names
ledger        remembers (job, epoch) of each commit and nothing else
upserts       the last value of each key
files         the real file sink, in a real folder, from which a consumer takes files away
audit         a sink without a uid, which changed programs lose, rename, or put an operator before
collected     records for the driver
```
"""

from __future__ import annotations

import ast
import os
import shutil
from collections import Counter
from typing import Any

from millstream.runtime.wire.codec import decode
from tests.simulation import program
from tests.simulation.disk import Crash

Ids = Counter


class Violation(AssertionError):
    """The oracle says no; the world remembers, for what raises inside a sink is taken for the sink's failure."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        program.outside.broken = program.outside.broken or self


class Outlets:
    """The part of a world that jobs write to."""

    disk: Any
    depth: int
    mode: str
    counts: dict[str, int]
    start_at: dict[str, int]

    def __init__(self, folder: str) -> None:
        self.prepared: dict[str, list] = {}
        self.transactions: dict[str, list] = {}
        self.ledger: dict[tuple[str, int], dict[str, list]] = {}
        self.upserts: dict[str, int] = {}
        self.audit: dict[str, list] = {}
        # Of the transactions: those that a program with an audit has written.
        self.audited: set[str] = set()
        # What a start with allowNonRestoredState may have given up.
        self.given_up: set[str] = set()
        self.files = folder
        # The file sink of each driver's program has a mark of its own.
        self.mark = ""
        self.taken: list[tuple[str, int]] = []
        self.collected: Ids = Counter()
        self.undelivered: Ids = Counter()

    def chance(self, fault: str, *, free: bool = False) -> bool:
        raise NotImplementedError

    def note(self, *what: Any) -> None:
        raise NotImplementedError

    # -- what sinks do ----------------------------------------------------------------------------------------

    def prepare(self, system: str, context: Any, records: list, *, audited: bool) -> str:
        name = f"{system}-{context.epoch}-{context.subtask}-{context.attempt}"
        if name in self.prepared:
            raise Violation(f"prepared twice: {name}")
        self.prepared[name] = list(records)
        if audited:
            self.audited.add(name)
        return name

    def before_commit(self) -> None:
        if self.chance("commit refused"):
            raise ConnectionError("no reply, nothing done")

    def after_commit(self) -> None:
        if self.chance("reply lost"):
            raise ConnectionError("done, but the reply is lost")
        if self.depth == 0 and self.chance("crash after commit"):
            self.disk.crashed = True
            raise Crash("after a commit")

    def commit(self, system: str, job_id: str, epoch: int, names: list[str]) -> None:
        self.before_commit()
        if names:
            self.note("commit", system, job_id[:6], epoch, names)
        for name in names:
            if name not in self.prepared:
                raise Violation(f"commit of what was never prepared: {name}")
            records = self.prepared[name]
            match system:
                case "transactions":
                    self.transactions.setdefault(name, records)
                case "audit":
                    self.audit.setdefault(name, records)
                case "upserts":
                    self.upserts.update((k, count) for _, _, k, count in records)
                case "ledger":
                    self.ledger.setdefault((job_id, epoch), {})[name] = records
        if names:
            self.after_commit()

    def collect(self, records: list) -> None:
        if self.chance("consumer fails"):
            raise ConnectionError("the consumer is busy")
        self.collected.update((s, n) for s, n, _, _ in records)

    def driver_ended(self, driver: Any) -> None:
        """What it had not handed over goes with it."""
        if driver is not None:
            for row in driver._rows:
                if row.edge in driver.outputs._consumers:
                    self.undelivered.update((s, n) for s, n, _, _ in decode(row.payload).records)

    # -- who reads files --------------------------------------------------------------------------------------

    def visible(self) -> list[str]:
        if not os.path.isdir(self.files):
            return []
        return [f"{self.files}/{name}" for name in sorted(os.listdir(self.files)) if name[0] != "."]

    def take_files(self, share: float, random: Any) -> None:
        for path in self.visible():
            if random.random() < share:
                self.taken += _ids_in(path)
                os.unlink(path)

    def forget_files(self) -> None:
        shutil.rmtree(self.files, ignore_errors=True)

    def committed(self) -> Any:
        """All that has become visible, to be compared with itself."""
        files = sorted(self.taken + [one for path in self.visible() for one in _ids_in(path)])
        ledger = {key: sorted(parts) for key, parts in self.ledger.items()}
        return sorted(self.transactions), sorted(self.audit), ledger, dict(self.upserts), files

    # -- the oracle -------------------------------------------------------------------------------------------

    def check(self, what: str, found: Any, wanted: Any) -> None:
        if found != wanted:
            raise Violation(f"{what}: found {found}, wanted {wanted}")

    def check_outputs(self) -> None:
        """Every id once, in the way that the job's mode promises."""
        every = [(s, n) for s, c in self.counts.items() for n in range(self.start_at.get(s, 0), c)]
        wanted, thirds = Counter(every), Counter(one for one in every if one[1] % 3 == 0)
        files = Counter(self.taken)
        files.update(one for path in self.visible() for one in _ids_in(path))
        side = Counter(one for e in self.ledger.values() for part in e.values() for one in part)
        for what, found, right in (
            ("transactions", _ids(self.transactions.values()), wanted),
            ("ledger", side, thirds),
            ("files", files, wanted),
        ):
            if self.mode != "AT_MOST_ONCE":
                self.check(f"{what}: lost", dict(right - found), {})
            if self.mode != "AT_LEAST_ONCE":
                self.check(f"{what}: doubled", dict(found - right), {})
        self.check("collected: doubled", dict(self.collected - wanted), {})
        if self.mode == "AT_MOST_ONCE":
            return
        self.check("collected: lost", dict(wanted - self.collected - self.undelivered), {})
        if self.mode == "EXACTLY_ONCE":
            self.check_audit()
        counts = Counter(program.key_of((s, n)) for s, c in self.counts.items() for n in range(c))
        touched = {program.key_of(one) for one in every}
        self.check("upserts", self.upserts, {k: n for k, n in counts.items() if k in touched})

    def check_audit(self) -> None:
        """What programs with an audit have processed is there, but for what the user has given up."""
        done = _ids(part for name, part in self.transactions.items() if name in self.audited)
        given_up = _ids(self.prepared[name] for name in self.given_up)
        found = _ids(self.audit.values())
        self.check("audit: lost", dict(done - found - given_up), {})
        self.check("audit: doubled", dict(found - done), {})


def _ids(parts: Any) -> Ids:
    return Counter((s, n) for part in parts for s, n, _, _ in part)


def _ids_in(path: str) -> list[tuple[str, int]]:
    with open(path, encoding="utf-8") as lines:
        return [ast.literal_eval(line)[:2] for line in lines]
