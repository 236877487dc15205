"""What an epoch was planned to be, written down before its tasks run, so that it can be run again (`replay.py`).

```
chk-6/_metadata   checkpoint 6
chk-6/_plan       what epoch 7 reads, which goes on from there; gone with the checkpoint
chk-6/_plan-1     if it has more rounds than fit: the next of them
start/_plan       the same of an epoch that goes on from nothing
```

The file is rewritten by every attempt of the epoch, and the last one by each of its rounds. It tells which ranges of
which splits went to which subtask, what receivers are told of splits, and when the epoch began. Records that only the
driver has are in it if they are few.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from millstream.checkpoint.manifest import list_epochs
from millstream.checkpoint.statefile import damaged
from millstream.errors import StateDamaged
from millstream.runtime.wire.codec import dumps
from millstream.runtime.wire.ranges import ONLY, Round, SplitRange, SubtaskRanges
from millstream.runtime.wire.reports import SplitProgress
from millstream.storage.seal import signed, verified
from millstream.storage.storage import Storage

__all__ = [
    "START",
    "EpochPlan",
    "LaterRound",
    "PlannedRange",
    "PlannedWork",
    "bytes_of",
    "plan_name",
    "planned",
    "read_plan",
    "replay_command",
    "replayable",
    "write_plan",
]

START = "start"
# Records that only the driver has are kept up to so many bytes an epoch.
_MOST_BYTES = 1 << 20
# An epoch may have thousands of rounds: each of them writes the file of the last so many.
_ROUNDS = 64


class PlannedRange(msgspec.Struct, frozen=True, array_like=True):
    """A part of a split. `records` are pickled, if only the driver had them; `left_out` if they were too many."""

    channel: int
    progress: SplitProgress
    new: bool
    quiet_ms: int
    records: bytes | None = None
    left_out: bool = False


class PlannedWork(msgspec.Struct, frozen=True, array_like=True):
    """What a subtask of a source, named by its uid, reads."""

    source: str
    subtask: int
    ranges: list[PlannedRange]
    ended: bool
    over: bool


class LaterRound(msgspec.Struct, frozen=True, array_like=True):
    """A round of an epoch after its first: the clock when it began, and what is read in it."""

    at: int
    work: list[PlannedWork]


class EpochPlan(msgspec.Struct, frozen=True, kw_only=True):
    """An epoch that goes on from checkpoint `base`, or from nothing. `at` is the clock when it began. `first` is true
    of the first epoch of an attempt, `strict` if all restored state had to be asked for; `operators` has the
    parallelism of all of them by uid, and `work` is the first round's. The manifest that the epoch ends with has the
    same `token`."""

    token: str
    epoch: int
    base: int | None
    job_id: str
    at: int
    first: bool
    strict: bool
    operators: dict[str, int]
    work: list[PlannedWork]
    later: list[LaterRound] = []


class _Further(msgspec.Struct, frozen=True):
    """Rounds of the plan with the same token, after those of the files before."""

    token: str
    later: list[LaterRound]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(EpochPlan)
_further = msgspec.msgpack.Decoder(_Further)


def plan_name(base: int | None) -> str:
    """Where the plan of the epoch after a checkpoint is kept.

    >>> plan_name(6), plan_name(None)
    ('chk-6/_plan', 'start/_plan')
    """
    return f"{START if base is None else f'chk-{base}'}/_plan"


def planned(
    work: Sequence[SubtaskRanges], uids: Mapping[int, str], held: int = 0
) -> list[PlannedWork]:
    """An epoch's work as a plan has it; `uids` names the sources by their vertices. `held` bytes of records are in the
    plan already."""
    room = _MOST_BYTES - held
    parts: list[PlannedWork] = []
    for task in work:
        ranges: list[PlannedRange] = []
        for part in task.ranges:
            records = _pickled(part.records) if part.records else None
            left_out = bool(part.records) and (records is None or len(records) > room)
            if left_out:
                records = None
            room -= len(records or b"")
            ranges.append(
                PlannedRange(
                    part.channel, part.progress, part.new, part.quiet_ms, records, left_out
                )
            )
        parts.append(PlannedWork(uids[task.vertex], task.subtask, ranges, task.ended, task.over))
    return parts


def bytes_of(work: Sequence[PlannedWork]) -> int:
    """How many bytes of records a plan holds with it."""
    return sum(len(part.records or b"") for task in work for part in task.ranges)


def _pickled(records: list[Any]) -> bytes | None:
    try:
        return dumps(records)
    except Exception:
        # Whether they can be sent anywhere is not decided here.
        return None


def write_plan(storage: Storage, plan: EpochPlan) -> None:
    """Write an epoch's plan, in place of that of a former attempt; of one that is there but for its last round, the
    file which that is in."""
    name = plan_name(plan.base)
    number = max(0, len(plan.later) - 1) // _ROUNDS
    if number:
        name = f"{name}-{number}"
        data = _encoder.encode(_Further(plan.token, plan.later[number * _ROUNDS :]))
    else:
        data = _encoder.encode(plan)
    storage.write(name, signed(storage.seal, name, data))


def read_plan(storage: Storage, base: int | None) -> EpochPlan | None:
    """The plan of the epoch after a checkpoint; None if there is none."""
    name = plan_name(base)
    try:
        data = storage.read(name)
    except FileNotFoundError:
        return None
    try:
        plan = _decoder.decode(verified(storage.seal, name, data))
        later = list(plan.later)
        while later and len(later) % _ROUNDS == 0:
            name = f"{plan_name(base)}-{len(later) // _ROUNDS}"
            if not storage.exists(name):
                break
            further = _further.decode(verified(storage.seal, name, storage.read(name)))
            if further.token != plan.token:
                # Of a former attempt, which came further.
                break
            later += further.later
    except msgspec.DecodeError as error:
        raise damaged(name, str(error)) from None
    return msgspec.structs.replace(plan, later=later)


def replayable(storage: Storage) -> list[int]:
    """The epochs that have a plan and whatever they go on from, oldest first. One whose plan is damaged counts, if its
    number is known without it."""
    found = [epoch + 1 for epoch in list_epochs(storage) if storage.exists(plan_name(epoch))]
    try:
        first = read_plan(storage, None)
    except StateDamaged:
        first = None
    return sorted({*found, *([] if first is None else [first.epoch])})


def replay_command(program: tuple[tuple[str, ...], tuple[str, ...]], epoch: int) -> str:
    """What to type to see an epoch again; `program` is the words that name the program, and its arguments.

    >>> replay_command((("job.py",), ("--input", "a b")), 7)
    "millstream replay job.py --epoch 7 -- --input 'a b'"
    """
    words, arguments = program
    line = ["millstream", "replay", *words, "--epoch", str(epoch)]
    return shlex.join([*line, "--", *arguments] if arguments else line)


def as_ranges(
    work: PlannedWork, vertex: int, records: Sequence[list[Any] | None], of_epoch: Round = ONLY
) -> SubtaskRanges:
    """The work of a plan, for the tasks; `records` are those of its ranges that only the driver had."""
    ranges = tuple(
        SplitRange(part.channel, part.progress, held, part.new, part.quiet_ms)
        for part, held in zip(work.ranges, records, strict=True)
    )
    return SubtaskRanges(vertex, work.subtask, ranges, work.ended, work.over, of_epoch)
