"""Bugs that are planted into the jobs that are killed: the kill test must find each of them.

```
python -m tests.chaos.planted                          # all of them, until each is found
python -m tests.chaos.planted forgets-timers --kills 20
```

What finds no planted bug would find no real one. A bug is a small change of what the driver or its workers do after
something was lost; without kills, none shows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["PLANTED", "Planted", "found", "plant"]


class Planted(NamedTuple):
    """A bug: what it does, the job in which it shows, and how it gets into the code."""

    what: str
    job: str
    plant: Callable[[], None]


def _resumes_without_commit() -> None:
    from millstream.checkpoint.coordinator import Coordinator

    original = Coordinator._resume

    def resume(self: Any, manifest: Any, kept: Any) -> list[Any]:
        original(self, manifest, kept)
        return []

    Coordinator._resume = resume


def _commits_first() -> None:
    from millstream.checkpoint.coordinator import Coordinator

    original: Callable[..., None] = Coordinator.__init__

    def init(self: Any, layout: Any, *, mode: str = "EXACTLY_ONCE", **options: Any) -> None:
        mode = "AT_LEAST_ONCE" if mode == "EXACTLY_ONCE" else mode
        original(self, layout, mode=mode, **options)

    Coordinator.__init__ = init


def _rewinds(change: Callable[[int], int], *, times: bool = True) -> Callable[[], None]:
    """Sources go on elsewhere than the checkpoint says."""

    def plant_it() -> None:
        from millstream.runtime.driver.planner import EpochPlanner

        original = EpochPlanner.rewind

        def rewind(
            self: Any,
            offsets: Mapping[str, Mapping[str, int]] | None,
            given: Any = None,
            *rest: Any,
        ) -> None:
            moved = offsets and {
                uid: {split: change(at) for split, at in splits.items()}
                for uid, splits in offsets.items()
            }
            original(self, moved, given if times else None, *rest)

        EpochPlanner.rewind = rewind

    return plant_it


def _does_not_read(unwanted: Callable[[Any, str], bool]) -> Callable[[], None]:
    """State that is in the files is not read back."""

    def plant_it() -> None:
        from millstream.runtime.state import store

        original: Any = store.read_segment

        def read(*given: Any, **named: Any) -> Iterator[Any]:
            for info, kind, entries in original(*given, **named):
                if not unwanted(info, kind):
                    yield info, kind, entries

        store.read_segment = read

    return plant_it


def _does_not_write_what_is_gone() -> None:
    from millstream.runtime.state.table import Table

    original = Table.delta

    def delta(self: Any) -> Iterator[tuple[str, Any]]:
        return (block for block in original(self) if block[0] != "D")

    Table.delta = delta


def _is_timers(info: Any, kind: str) -> bool:
    return info is not None and "timers" in info.name


def _is_of_windows(info: Any, kind: str) -> bool:
    return info is not None and (info.kind == "pane" or "window" in info.name)


def _is_no_value(info: Any, kind: str) -> bool:
    return info is not None and kind in "MAR"


def _is_operator_state(info: Any, kind: str) -> bool:
    return info is None


PLANTED = {
    "resumes-without-commit": Planted(
        "what a checkpoint has left to commit is forgotten by the next driver",
        "state",
        _resumes_without_commit,
    ),
    "commits-first": Planted(
        "sinks are committed before the manifest is there", "state", _commits_first
    ),
    "reads-again": Planted(
        "each split goes on one record too early", "state", _rewinds(lambda at: max(0, at - 1))
    ),
    "skips": Planted(
        "each split goes on one record too late",
        "time",
        _rewinds(lambda at: at + 1 if at > 0 else at),
    ),
    "forgets-operator-state": Planted(
        "operator state is not read back", "state", _does_not_read(_is_operator_state)
    ),
    "forgets-maps-and-lists": Planted(
        "entries of maps and lists are not read back", "state", _does_not_read(_is_no_value)
    ),
    "forgets-timers": Planted("timers are not read back", "time", _does_not_read(_is_timers)),
    "forgets-windows": Planted(
        "the contents of windows are not read back", "time", _does_not_read(_is_of_windows)
    ),
    "fires-again": Planted(
        "what was removed from state stays in the files: timers that have fired fire again",
        "time",
        _does_not_write_what_is_gone,
    ),
    "forgets-time": Planted(
        "the time of splits is not restored", "time", _rewinds(lambda at: at, times=False)
    ),
}


def plant(name: str) -> None:
    """Put a bug into this process."""
    PLANTED[name].plant()


def found(name: str, folder: Path, kills: int, seed: int = 1) -> tuple[str, int]:
    """Kill a job that has the bug until the oracle sees it: what it saw, "" if nothing; how many kills that took."""
    from tests.chaos.chaos import Chaos

    chaos = Chaos(kills, kills, seed, folder, PLANTED[name].job, planted=name)
    # Short runs, because a verdict comes at the end of one.
    chaos.per_run, chaos.until_unclean = 2, True
    chaos.run()
    verdict = chaos.verdict
    counts = {
        "lost": verdict.lost,
        "doubled": verdict.duplicated,
        "out of order": verdict.disordered,
        "wrong": verdict.wrong,
    }
    seen = [f"{count:,} {what}" for what, count in counts.items() if count]
    # A driver that fails of itself has noticed too; its message says what.
    seen += [failure.splitlines()[0] for failure in chaos.failures]
    return ", ".join(seen), sum(kill.struck for kill in chaos.done)


def main() -> int:
    """The command line; the exit code is 1 if a bug was not found."""
    args = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    args.add_argument("names", nargs="*", choices=[[], *PLANTED], default=[])
    args.add_argument("--kills", type=int, default=20, help="of drivers, and as many of workers")
    args.add_argument("--seed", type=int, default=1)
    opts = args.parse_args()
    missed = 0
    print("| bug | job | kills | what was seen |\n|---|---|---:|---|", flush=True)
    for name in opts.names or PLANTED:
        with tempfile.TemporaryDirectory(prefix="millstream-planted-") as folder:
            seen, kills = found(name, Path(folder), opts.kills, opts.seed)
        missed += not seen
        bug = PLANTED[name]
        print(f"| {bug.what} | {bug.job} | {kills} | {seen or 'nothing'} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
