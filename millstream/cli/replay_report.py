"""What `millstream replay` shows: for people, or as lines of JSON."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from typing import Any

from millstream.cli.terminal import on_one_line
from millstream.errors import MillstreamError
from millstream.redaction import shown
from millstream.runtime.base.text import shorten
from millstream.runtime.driver.muted import muted_sinks
from millstream.runtime.driver.replay import Replay
from millstream.runtime.state.changes import ABSENT, StateChange

__all__ = ["as_json", "as_text", "verdict"]

_TIMERS = {"#event-timers": "event timer", "#processing-timers": "processing timer"}


def verdict(replay: Replay) -> str:
    """How the replay went, in a sentence."""
    if replay.error is not None:
        return "the epoch fails" + (
            ", which it did not in the first run" if replay.completed else ""
        )
    if not replay.completed:
        return (
            "the epoch runs through; the first run has not completed it. If that failed, and the program is the same, "
            "then in a sink, in the engine, or in something that does not always happen"
        )
    if not replay.differences and not replay.counts:
        return "the same state changes as the first run"
    return (
        "not the same as the first run: something in the program is not deterministic, goes by the clock, "
        "or has changed"
    )


def as_text(replay: Replay, operator: str | None, limit: int) -> Iterator[str]:
    """Lines for people."""
    plan, watcher = replay.plan, replay.watcher
    names = {node.uid: on_one_line(node.name) for node in replay.job.graph.nodes.values()}
    after = "nothing" if plan.base is None else f"checkpoint {plan.base}"
    began = dt.datetime.fromtimestamp(plan.at / 1000, dt.UTC).isoformat(" ", "milliseconds")
    yield f"epoch {plan.epoch} of '{on_one_line(replay.job.settings.name)}', which goes on from {after}"
    yield f"the clock stands at {began}"
    yield from _headed("read", list(_ranges(replay)), limit)
    yield from _headed("records in and out", list(_counts(replay, names)), len(names))
    sinks = muted_sinks(replay.job)
    for uid, name in sinks.items():
        seen = watcher.taken.get(uid)
        count = 0 if seen is None else seen.count
        title = f"{_many(count, 'record')} for '{on_one_line(name)}' (uid {uid}), which is muted"
        yield from _headed(title, [] if seen is None else seen.records, limit, count)
    if operator is not None and operator not in sinks:
        for way, place in (("taken", watcher.taken), ("given", watcher.given)):
            records = place.get(operator)
            count = 0 if records is None else records.count
            title = f"{_many(count, 'record')} {way} by '{names[operator]}' (uid {operator})"
            yield from _headed(title, [] if records is None else records.records, limit, count)
    if replay.error is None:
        title = _many(len(replay.changes), "change") + " of state"
        yield from _headed(title, [_told(change) for change in replay.changes], limit)
    if replay.differences:
        told = [_told(change) for change in replay.differences]
        yield from _headed("state after the first run → after this one", told, limit)
    if replay.counts:
        told = [
            f"'{names[uid]}' (uid {uid}): {_pair(first)} → {_pair(now)}"
            for uid, (first, now) in replay.counts.items()
        ]
        yield from _headed("records in the first run → in this one", told, limit)
    yield ""
    yield verdict(replay)


def _headed(
    title: str, lines: Sequence[str], limit: int, count: int | None = None
) -> Iterator[str]:
    yield ""
    yield title
    for line in lines[:limit]:
        yield f"  {on_one_line(line)}"
    more = (len(lines) if count is None else count) - min(limit, len(lines))
    if more > 0:
        yield f"  … and {more:,} more"


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _pair(counts: Sequence[int]) -> str:
    return " in, ".join(f"{count:,}" for count in counts) + (" out" if len(counts) > 1 else " in")


def _ranges(replay: Replay) -> Iterator[str]:
    for work in replay.plan.work:
        for part in work.ranges:
            split = part.progress
            ends = ", which ends there" if split.finished else ""
            yield (
                f"{work.source}: split '{split.split}', positions {split.start} to {split.end}{ends}"
                f" (subtask {work.subtask})"
            )


def _counts(replay: Replay, names: dict[str, str]) -> Iterator[str]:
    taken, given = replay.watcher.taken, replay.watcher.given
    width = max(map(len, names.values()), default=0)
    for uid, name in names.items():
        into = taken[uid].count if uid in taken else 0
        out = given[uid].count if uid in given else 0
        yield f"{name:{width}}  {into:>9,}  {out:>9,}  uid {uid}"


def _told(change: StateChange) -> str:
    key = shorten(change.key)
    place = f"{change.operator}: {_TIMERS.get(change.state, change.state)} of {key}"
    if change.state in _TIMERS:
        return f"{place} {'set' if change.kind == 'added' else 'gone'}"
    before, after = shorten(change.before), shorten(change.after)
    match change.kind:
        case "added":
            return f"{place} added: {after}"
        case "removed":
            return f"{place} removed: {before}"
    return f"{place}: {before} → {after}"


def as_json(replay: Replay, operator: str | None) -> Iterator[str]:
    """Everything, one object a line, each with its `kind`."""
    for line in _objects(replay, operator):
        yield json.dumps({key: _plain(value) for key, value in line.items()})


def _plain(value: Any) -> Any:
    return shown(value) if isinstance(value, str) else value


def _objects(replay: Replay, operator: str | None) -> Iterator[dict[str, Any]]:
    plan, watcher = replay.plan, replay.watcher
    yield {
        "kind": "epoch",
        "epoch": plan.epoch,
        "job": replay.job.settings.name,
        "job_id": plan.job_id,
        "base": plan.base,
        "clock": plan.at,
    }
    for work in plan.work:
        for part in work.ranges:
            split = part.progress
            yield {
                "kind": "range",
                "source": work.source,
                "subtask": work.subtask,
                "split": split.split,
                "start": split.start,
                "end": split.end,
                "ended": split.finished,
            }
    sinks = muted_sinks(replay.job)
    for node in replay.job.graph.nodes.values():
        taken, given = watcher.taken.get(node.uid), watcher.given.get(node.uid)
        yield {
            "kind": "operator",
            "uid": node.uid,
            "name": node.name,
            "sink": node.uid in sinks,
            "in": taken.count if taken else 0,
            "out": given.count if given else 0,
        }
        for way, seen in (("in", taken), ("out", given)):
            for record in seen.records if seen else ():
                yield {"kind": "record", "uid": node.uid, "way": way, "record": record}
    for kind, found in (("change", replay.changes), ("difference", replay.differences)):
        for change in found:
            yield {"kind": kind, **_fields(change)}
    for uid, (first, now) in replay.counts.items():
        yield {"kind": "count", "uid": uid, "first": list(first), "now": list(now)}
    error = replay.error
    if isinstance(error, MillstreamError):
        facts = {name: shown(str(value)) for name, value in error.evidence.items()}
        yield {"kind": "error", "code": error.code, "what": error.what, "evidence": facts}
    elif error is not None:
        yield {"kind": "error", "code": type(error).__name__, "what": str(error), "evidence": {}}
    yield {"kind": "result", "completed": replay.completed, "verdict": verdict(replay)}


def _fields(change: StateChange) -> dict[str, Any]:
    whole = 1 << 30
    return {
        "uid": change.operator,
        "state": change.state,
        "key": shorten(change.key, whole),
        "before": None if change.before is ABSENT else shorten(change.before, whole),
        "after": None if change.after is ABSENT else shorten(change.after, whole),
        "change": change.kind,
    }
