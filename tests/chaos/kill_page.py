"""docs/kill_test.md and its charts, from the ledger of the kill test."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from millstream.notebook import Chart, chart
from tests.chaos.ledger import Ledger, Round, Strike

__all__ = ["page", "percentile", "pictures", "write"]

GOAL = 1000
ROLES = {"driver": "drivers", "worker": "workers", "pause": "pauses", "server": "servers"}
KINDS = ("lost", "duplicated", "disordered", "wrong")
HEAD = """# The kill test

Jobs on a real Spark whose drivers and Python workers are killed with `kill -9`, at named points (between a manifest
and its commit, in the middle of a batch, while a snapshot is half written, ...) and at random times; leaders that
others stand by for are killed and paused; drivers are killed while they rescale and upgrade; the broker and
ZooKeeper are restarted in mid-run. When a round ends, an oracle that knows the input reads everything that the job
has written and counts what is lost, doubled, out of order and wrong. How the jobs and the oracle work says
[reliability.md](reliability.md).

`make kill-test` (`MINUTES=60`) goes on where the last run ended: `docs/kill_test.jsonl` has a line for every round,
and this page and its charts are written from it. Rounds follow from seeds: `python -m tests.chaos.kill_test --jobs
time --rounds 1` runs the next one of a job. The goal is 1,000 drivers and 1,000 workers killed over all jobs. What
[reliability.md](reliability.md) tells of earlier series is not counted here.
"""


def percentile(times: list[float], share: float) -> float:
    """The time within which this share of all is done, by nearest rank.

    >>> percentile([4.0, 1.0, 2.0, 3.0], 0.5), percentile([1.0], 0.99)
    (2.0, 1.0)
    """
    ranked = sorted(times)
    return ranked[max(0, -(-len(ranked) * round(share * 100) // 100) - 1)]


def _times(strikes: Iterable[Strike]) -> list[float]:
    return [strike.recovery for strike in strikes if strike.recovery is not None]


def _by_job(rounds: list[Round]) -> dict[str, list[Round]]:
    return {
        job: [one for one in rounds if one.job == job]
        for job in dict.fromkeys(one.job for one in rounds)
    }


def _strikes(rounds: list[Round]) -> list[Strike]:
    return [strike for one in rounds for strike in one.strikes]


def page(rounds: list[Round], notes: dict[tuple[str, int], str]) -> str:
    """The whole page."""
    if not rounds:
        return HEAD + "\nNo round has been run yet.\n"
    parts = [HEAD, _so_far(rounds), _verdicts(rounds), _recoveries(rounds), _points(rounds)]
    return "\n".join([*parts, _unclean(rounds, notes), _where(rounds)]).rstrip("\n") + "\n"


def _so_far(rounds: list[Round]) -> str:
    counts = {role: sum(one.struck(role) for one in rounds) for role in ROLES}
    totals = {kind: sum(getattr(one, kind) for one in rounds) for kind in KINDS}
    hours = sum(one.seconds for one in rounds) / 3600
    failed = sum(bool(one.failures) for one in rounds)
    left = [
        f"{max(0, GOAL - counts[role]):,} {ROLES[role]}"
        for role in ("driver", "worker")
        if counts[role] < GOAL
    ]
    return "\n".join(
        [
            "## So far",
            "",
            f"{counts['driver']:,} drivers and {counts['worker']:,} workers killed, "
            f"{counts['pause']:,} leaders paused, {counts['server']:,} servers restarted, "
            f"in {len(rounds):,} rounds and {hours:.1f} hours. Of "
            f"{sum(one.records for one in rounds):,} ids **{totals['lost']:,} lost, {totals['duplicated']:,} doubled, "
            f"{totals['disordered']:,} out of order, {totals['wrong']:,} wrong**; "
            f"{failed:,} rounds in which something failed. "
            + (f"To the goal: {' and '.join(left)}." if left else "The goal is reached."),
            "",
            "![kills by job](images/kill_test_kills.svg)",
            "",
        ]
    )


def _verdicts(rounds: list[Round]) -> str:
    lines = [
        "## By job",
        "",
        "| job | rounds | drivers | workers | pauses | servers "
        "| ids | lost | doubled | out of order | wrong | failed rounds |",
        "|---|" + "---:|" * 11,
    ]
    for job, own in [*_by_job(rounds).items(), ("all", rounds)]:
        cells = [
            len(own),
            *(sum(one.struck(role) for one in own) for role in ROLES),
            sum(one.records for one in own),
            *(sum(getattr(one, kind) for one in own) for kind in KINDS),
            sum(bool(one.failures) for one in own),
        ]
        lines.append(f"| {job} | " + " | ".join(f"{cell:,}" for cell in cells) + " |")
    return "\n".join([*lines, ""])


def _row(names: list[str], strikes: list[Strike]) -> str:
    times = _times(strikes)
    shown = (
        [f"{percentile(times, share):.1f} s" for share in (0.5, 0.9, 0.99)]
        + [f"{max(times):.1f} s"]
        if times
        else [""] * 4
    )
    return "| " + " | ".join([*names, f"{len(strikes):,}", *shown]) + " |"


def _recoveries(rounds: list[Round]) -> str:
    lines = [
        "## Recovery",
        "",
        "Of a driver: from the start of the next one to its first checkpoint, with the start of Python and Spark in "
        "it; in the job `ha`, where others stand by, from the kill to the first record of the new leader; in "
        "`scaling`, the longest time without output. Of a worker: from its death to the next checkpoint.",
        "",
        "| job | struck | times | p50 | p90 | p99 | max |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for job, own in [*_by_job(rounds).items(), ("all", rounds)]:
        for role in ROLES:
            strikes = [strike for strike in _strikes(own) if strike.role == role]
            if _times(strikes):
                lines.append(_row([job, ROLES[role]], strikes))
    return "\n".join([*lines, "", "![time of recovery](images/kill_test_recovery.svg)", ""])


def _points(rounds: list[Round]) -> str:
    every = _strikes(rounds)
    lines = [
        "## By point",
        "",
        "| struck | where | times | p50 | p90 | p99 | max |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for role, point in sorted({(strike.role, strike.point) for strike in every}):
        own = [strike for strike in every if (strike.role, strike.point) == (role, point)]
        lines.append(_row([ROLES[role], point], own))
    missed = sum(one.missed for one in rounds)
    return "\n".join(
        [*lines, "", f"{missed:,} kills more came too late: what they were for had ended.", ""]
    )


def _unclean(rounds: list[Round], notes: dict[tuple[str, int], str]) -> str:
    wrong = [one for one in rounds if not one.clean]
    if not wrong:
        return "## Rounds that were not clean\n\nNone.\n"
    lines = [
        "## Rounds that were not clean",
        "",
        "| job | seed | commit | found | what it was |",
        "|---|---:|---|---|---|",
    ]
    for one in wrong:
        found = [f"{getattr(one, kind)} {kind}" for kind in KINDS if getattr(one, kind)]
        told = "; ".join([*found, *one.failures[:1]]).replace("|", "\\|").replace("\n", " ")
        note = notes.get((one.job, one.seed), "not yet known")
        lines.append(f"| {one.job} | {one.seed} | {one.commit} | {told} | {note} |")
    return "\n".join([*lines, ""])


def _where(rounds: list[Round]) -> str:
    commits = list(dict.fromkeys(one.commit for one in rounds))
    machines = list(dict.fromkeys(one.machine.split("; ")[0].split(", load")[0] for one in rounds))
    shown = ", ".join(commits[-8:]) + (
        f" and {len(commits) - 8} before" if len(commits) > 8 else ""
    )
    return "\n".join(
        [
            "## Where and when",
            "",
            f"From {min(one.began for one in rounds)} to {max(one.began for one in rounds)} UTC, on "
            f"{'; '.join(machines)}; commits {shown}. {sum(one.starts for one in rounds):,} drivers were started, "
            f"{sum(one.rescales for one in rounds):,} times with another parallelism, "
            f"{sum(one.savepoints for one in rounds):,} times from a savepoint.",
            "",
        ]
    )


def pictures(rounds: list[Round]) -> dict[str, Chart]:
    """The charts by the names of their files."""
    kills = [
        {"job": job, "kills": sum(one.struck(role) for one in own), "struck": ROLES[role]}
        for job, own in _by_job(rounds).items()
        for role in ("driver", "worker")
    ]
    recovery = []
    for role in ("driver", "worker", "pause"):
        times = sorted(_times(strike for strike in _strikes(rounds) if strike.role == role))
        recovery += [
            {"seconds": seconds, "percent": 100 * place / len(times), "struck": ROLES[role]}
            for place, seconds in enumerate(times, 1)
        ]
    return {
        "kill_test_kills.svg": chart(kills, "kills", "job", "struck", "kills by job"),
        "kill_test_recovery.svg": chart(
            recovery,
            "percent",
            "seconds",
            "struck",
            "percent that has recovered within so many seconds",
        ),
    }


def write(ledger: Ledger, docs: Path) -> None:
    """The page and its pictures, beside the ledger."""
    rounds = ledger.rounds()
    (docs / "images").mkdir(parents=True, exist_ok=True)
    (docs / "kill_test.md").write_text(page(rounds, ledger.notes()))
    if rounds:
        for name, picture in pictures(rounds).items():
            # A picture in a page does not know whether that is light or dark.
            ground = '<rect width="100%" height="100%" fill="white"/>'
            opened, rest = picture.svg().split(">", 1)
            (docs / "images" / name).write_text(f"{opened}>\n{ground}{rest}\n")
