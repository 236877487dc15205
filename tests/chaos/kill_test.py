"""The published kill test: every job of the chaos tests, by seeds, for as long as one likes, with a ledger.

```
python -m tests.chaos.kill_test --minutes 60                   # goes on where the last run ended; writes the page
python -m tests.chaos.kill_test --jobs time,kafka --rounds 4   # only these
python -m tests.chaos.kill_test --page                         # only the page, from the ledger
```

The matrix is endless: round n of a job has the seed 1000 * SEED + n. The job with the fewest kills is next. What has
a line in the ledger is not run again, so a run may be ended at any time, with Ctrl-C too; only the round at hand is
lost. A round that is not clean keeps its folder, and the next ones go on. The exit code is 1 if any was not.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from millstream.bench.figures import machine
from millstream.testing import kafka, zookeeper
from tests.chaos import kill_page, leaders, scaling
from tests.chaos.chaos import Chaos
from tests.chaos.jobs import JOBS
from tests.chaos.leaders import LeaderChaos
from tests.chaos.ledger import Ledger, Round, Strike
from tests.chaos.oracle import Verdict
from tests.integration.postgres import find_binaries

__all__ = ["MATRIX", "main", "next_round", "play"]

ROOT = Path(__file__).parents[2]
LEDGER = ROOT / "docs" / "kill_test.jsonl"
Play = Callable[[Round, Path], None]


def _take(one: Round, verdict: Verdict, failures: list[str], folder: Path) -> None:
    """Note what an oracle says, without this machine's folders."""
    one.records, one.lost, one.duplicated = verdict.records, verdict.lost, verdict.duplicated
    one.disordered, one.wrong = verdict.disordered, verdict.wrong
    told = [text.splitlines()[0] for text in failures] + verdict.examples[:5]
    one.failures = [_without_paths(text, folder) for text in told]
    for text in failures:
        print(text, file=sys.stderr)


def _without_paths(text: str, folder: Path) -> str:
    """A text for the ledger.

    >>> _without_paths("lost: /tmp/x/run-0/out of /home/ann/y.py", Path("/tmp/x"))
    'lost: .../run-0/out of ...'
    """
    return re.sub(r"(?<![\w.])/(?:[\w.-]+/)*[\w.-]+", "...", text.replace(str(folder), "..."))[:300]


def _kill_drivers_and_workers(one: Round, folder: Path) -> None:
    restarts = 1 if JOBS[one.job].restart is not None else 0
    chaos = Chaos(one.kills, one.kills, one.seed, folder, one.job, broker_restarts=restarts)
    chaos.run()
    one.strikes = [
        Strike(
            "server" if kill.role == "broker" else kill.role, kill.point, _rounded(kill.recovery)
        )
        for kill in chaos.done
        if kill.struck
    ]
    one.missed = sum(not kill.struck for kill in chaos.done)
    one.starts, one.rescales, one.savepoints = chaos.starts, chaos.rescales, chaos.savepoints
    _take(one, chaos.verdict, chaos.failures, folder)


ROLES = {
    leaders.KILL: "driver",
    leaders.PAUSE: "pause",
    leaders.PAUSE_ALL: "pause",
    leaders.RESTART: "server",
}


def _kill_leaders(one: Round, folder: Path) -> None:
    # Without ZooKeeper's jars all elections are by a file.
    by_file = one.seed % 2 == 1 or zookeeper.missing_tools() is not None
    chaos = LeaderChaos(
        one.kills, 2, 1, one.seed, folder, election="file" if by_file else "zookeeper"
    )
    chaos.run()
    one.strikes = [
        Strike(ROLES[fault.kind], f"leader: {fault.kind}", _rounded(fault.first_record))
        for fault in chaos.done
    ]
    one.starts = chaos.starts
    _take(one, chaos.verdict, chaos.failures, folder)


def _kill_while_scaling(one: Round, folder: Path) -> None:
    world = scaling.World(folder, one.seed, rate=1000)
    verdict, failures = Verdict(), []
    try:
        scaling.play(world, 1)
        verdict.records = world.finish()
    except AssertionError as error:
        failures = [f"scaling: {error}"]
    finally:
        world.close()
    measured = {kind: list(gaps) for kind, gaps in world.gaps.items() if "killed" in kind}
    for point, times in world.killed.items():
        kind = "upgrade" if "upgrade" in point else "rescale"
        for _ in range(times):
            found = [gaps for name, gaps in measured.items() if name.startswith(kind) and gaps]
            one.strikes.append(
                Strike("driver", point, _rounded(found[0].pop(0)) if found else None)
            )
    one.rescales = len(world.gaps["rescale"])
    _take(one, verdict, failures, folder)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


MATRIX: dict[str, Play] = {
    **dict.fromkeys(JOBS, _kill_drivers_and_workers),
    "ha": _kill_leaders,
    "scaling": _kill_while_scaling,
}


def unavailable(job: str) -> str | None:
    """Why a job cannot run on this machine, None if it can."""
    if job == "kafka":
        return kafka.missing_tools()
    if job == "postgres":
        try:
            find_binaries()
        except Exception as error:
            return str(error)
    return None


def next_round(done: list[Round], jobs: list[str], seed: int, kills: int = 5) -> Round:
    """The first round without a line, of the job with the fewest kills."""
    struck = {
        job: sum(one.struck("driver") + one.struck("worker") for one in done if one.job == job)
        for job in jobs
    }
    job = min(jobs, key=lambda name: (struck[name], jobs.index(name)))
    ended = {one.seed for one in done if one.job == job}
    number = 1000 * seed
    while number in ended:
        number += 1
    return Round(job, number, kills)


def play(one: Round, matrix: dict[str, Play] = MATRIX) -> Round:
    """Run a round in a folder that is kept if it is not clean."""
    folder = Path(tempfile.mkdtemp(prefix=f"millstream-kill-{one.job}-{one.seed}-"))
    one.began = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    one.commit, one.machine = _commit(), machine()
    began = time.monotonic()
    try:
        matrix[one.job](one, folder)
    except Exception as error:
        one.failures.append(_without_paths(f"{type(error).__name__}: {error}", folder))
    finally:
        one.seconds = round(time.monotonic() - began, 1)
        if one.clean or sys.exc_info()[0] is not None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            print(f"what was written is in {folder}", file=sys.stderr)
    return one


def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "millstream", "tests")
    return git("rev-parse", "--short=10", "HEAD") + (" with changes" if changed else "")


def main(arguments: list[str] | None = None, matrix: dict[str, Play] = MATRIX) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.kill_test", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="after which no round begins")
    parser.add_argument("--rounds", type=int, help="how many at most")
    parser.add_argument("--kills", type=int, default=5, help="of drivers and of workers, a round")
    parser.add_argument("--jobs", help="some of " + ",".join(matrix))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("--page", action="store_true", help="write the page, run nothing")
    given = parser.parse_args(arguments)
    jobs = given.jobs.split(",") if given.jobs else list(matrix)
    if set(jobs) - set(matrix):
        parser.error(f"there are {', '.join(matrix)}")
    ledger = Ledger(given.ledger)
    clean = True
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with ledger.held():
        if not given.page:
            clean = _run(ledger, _available(jobs), given, matrix)
        kill_page.write(ledger, given.ledger.parent)
    return 0 if clean else 1


def _available(jobs: list[str]) -> list[str]:
    found = []
    for job in jobs:
        why = unavailable(job)
        if why is None:
            found.append(job)
        else:
            print(f"{job} is left out: {why}", file=sys.stderr)
    if not found:
        raise SystemExit("no job of the kill test can run on this machine")
    return found


def _run(
    ledger: Ledger, jobs: list[str], given: argparse.Namespace, matrix: dict[str, Play]
) -> bool:
    until, clean, number = time.monotonic() + 60 * given.minutes, True, 0
    while time.monotonic() < until and (given.rounds is None or number < given.rounds):
        one = next_round(ledger.rounds(), jobs, given.seed, given.kills)
        print(f"{one.job}, seed {one.seed}", file=sys.stderr, flush=True)
        try:
            play(one, matrix)
        except KeyboardInterrupt:
            print("the round at hand is left out; all before it are kept", file=sys.stderr)
            break
        if not one.strikes:
            # It says nothing about kills: no driver came up in time. On a machine so busy none of the next would.
            print(
                f"nothing was struck, and the round is not counted: {one.failures}", file=sys.stderr
            )
            return False
        ledger.append(one)
        clean, number = clean and one.clean, number + 1
        print(
            f"{one.job}, seed {one.seed}: {len(one.strikes)} strikes, {one.records:,} ids, "
            f"{'clean' if one.clean else 'NOT CLEAN'}, {one.seconds:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    return clean


if __name__ == "__main__":
    sys.exit(main())
