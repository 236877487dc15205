"""The coordinator's specification: what it is told on the left, what it says on the right.

Each case is a list of lines (event, commands). `DRIVER_STARTS` between two lines is a new attempt: a coordinator that
knows nothing but what `Resume` tells it. `epoch(n, ...)` stands for the seven lines of an epoch in which nothing is
remarkable but what is given.
"""

from __future__ import annotations

from typing import Any, get_args

import pytest

from millstream.checkpoint.commands import (
    Command,
    Commit,
    Compact,
    Deliver,
    Finish,
    Intend,
    Plan,
    Publish,
    Remove,
    Run,
)
from millstream.checkpoint.coordinator import Coordinator, Layout
from millstream.checkpoint.events import (
    Acknowledgement,
    Cleaned,
    Committed,
    Compacted,
    CompactionFailed,
    Delivered,
    Event,
    Intended,
    Next,
    Pinned,
    Planned,
    Published,
    Ran,
    Resume,
    Unpinned,
)
from millstream.checkpoint.manifest import (
    FeedbackFile,
    GeneratorState,
    Manifest,
    OperatorInfo,
    Parent,
    StoreState,
)
from millstream.checkpoint.statefile import StateFile
from millstream.errors import EngineError
from millstream.runtime.state.segments import extend_segments

DRIVER_STARTS = object()


class Fails:
    """In the place of commands: the event is a defect, and this is said of it."""

    def __init__(self, error: type[Exception], *words: str) -> None:
        self.error = error
        self.words = words


# -- words for the table -----------------------------------------------------------------------------------------


def report(level: int = 1, subtask: int = 0, **facts: Any) -> Acknowledgement:
    """A task's report, in which there is nothing but what is said."""
    facts = {"stores": {}, "registered": {}, "committables": {}, "input_ended": False} | facts
    return Acknowledgement(level=level, subtask=subtask, attempt=facts.pop("attempt", ""), **facts)


ALL = (report(0), report(1, 0), report(1, 1))
"""Every task of the layout has reported."""


def wrote(*files: StateFile | None, **facts: Any) -> tuple[Acknowledgement, ...]:
    """All tasks have reported; those of level 1 with the files that the stores `sum/0` and `sum/1` have written."""
    reports = [report(0)]
    for subtask in range(2):
        stores = {f"sum/{subtask}": files[subtask]} if subtask < len(files) else {}
        reports.append(report(1, subtask, stores=stores, attempt=f"attempt {subtask}"))
    return (*reports, *facts.get("more", ()))


def full(name: str, **facts: Any) -> StateFile:
    return StateFile(name, 0, full=True, size=10, **facts)


def changes(name: str) -> StateFile:
    return StateFile(name, 0, full=False, size=1)


def manifest(epoch: int, **facts: Any) -> Manifest:
    """A manifest of the job at hand."""
    return Manifest(epoch=epoch, job_id="job", job_name="word count", **facts)


def store(*segments: StateFile, subtask: int = 0, **facts: Any) -> StoreState:
    facts = {"attempt": f"attempt {subtask}"} | facts
    return StoreState(
        subtask=subtask,
        parallelism=2,
        max_parallelism=128,
        operators=["sum"],
        segments=list(segments),
        **facts,
    )


def sums(*segments: StateFile, **facts: Any) -> dict[str, StoreState]:
    """The stores of a manifest to which only `sum/0` has reported."""
    return {"sum/0": store(*segments, **facts)}


def epoch(
    number: int,
    made: Manifest | None = None,
    *,
    reports: tuple[Acknowledgement, ...] = ALL,
    planned: Planned | None = None,
    removes: Remove | None = None,
    cleaned: Cleaned | None = None,
    compactions: tuple[Compact, ...] = (),
) -> list[Any]:
    """An epoch under EXACTLY_ONCE, from its beginning to its end."""
    made = made or manifest(number)
    return [
        (Next(), [Plan(number)]),
        (planned or Planned({}), [Run(number)]),
        (Ran(reports), [Publish(made)]),
        (Published(), [Commit(made)]),
        (Committed(), [Deliver(made)]),
        (Delivered(), [removes or Remove(number, [], [])]),
        (cleaned or Cleaned(), [*compactions, Finish(ended=made.ended)]),
    ]


def resumed(last: Manifest, *kept: Manifest) -> list[Any]:
    """A driver starts from a checkpoint: what it may have left to do is done first."""
    return [
        (Resume(last, kept or (last,)), [Commit(last, again=True)]),
        (Committed(), [Deliver(last, again=True)]),
        (Delivered(), []),
    ]


LAYOUT = Layout(
    "job",
    "word count",
    tasks=[1, 2],
    stores={f"sum/{subtask}": store(subtask=subtask, attempt="") for subtask in range(2)},
)
OFFSETS = {"source": {"split": 100}}
MORE_OFFSETS = {"source": {"split": 200}}
TIMES = {"source": {"split": {"watermarks": GeneratorState(50, 49)}}}
A, B, C, D = changes("a"), changes("b"), changes("c"), changes("d")
FED_BACK = FeedbackFile("fed back", epoch=0, size=3, records=1)
FED_BEFORE = FeedbackFile("fed before", epoch=0, size=3, records=1)
ELSEWHERE = Parent(
    root="/elsewhere", subtask=0, parallelism=1, operators=["sum"], segments=[full("there")]
)
IN_OWN_FOLDER = Parent(
    root="", subtask=0, parallelism=1, operators=["sum"], segments=[full("here")]
)


def operator(**states: Any) -> OperatorInfo:
    return OperatorInfo(name="sum", parallelism=2, max_parallelism=128, states=states)


def three_long(segments: Any) -> bool:
    """When segments are compacted in this table."""
    return len(segments) >= 3


# -- the table ---------------------------------------------------------------------------------------------------

CASES: dict[str, list[Any]] = {
    # An epoch.
    "an epoch is planned, run, published, committed, delivered, cleaned up after, and over": [
        (Resume(None), []),
        (Next(), [Plan(0)]),
        (Planned(OFFSETS), [Run(0)]),
        (Ran(ALL), [Publish(manifest(0, offsets=OFFSETS))]),
        (Published(), [Commit(manifest(0, offsets=OFFSETS))]),
        (Committed(), [Deliver(manifest(0, offsets=OFFSETS))]),
        (Delivered(), [Remove(0, [], [])]),
        (Cleaned(), [Finish(ended=False)]),
    ],
    "epochs are numbered in order": [
        (Resume(None), []),
        *epoch(0),
        *epoch(1),
        (Next(), [Plan(2)]),
    ],
    "while the interval is not over nothing is planned, and the same epoch is asked for again": [
        (Resume(None), []),
        (Next(), [Plan(0)]),
        (Next(), [Plan(0)]),
        (Planned(OFFSETS), [Run(0)]),
    ],
    "a manifest has when it was made, what the engine wants to find again, and the splits' times": [
        (Resume(None), []),
        (Next({"batch": 6}), [Plan(0)]),
        (Next({"batch": 7}), [Plan(0)]),
        (Planned(OFFSETS), [Run(0)]),
        (
            Ran(ALL, TIMES, at=12.5),
            [
                Publish(
                    manifest(0, offsets=OFFSETS, times=TIMES, created_at=12.5, extra={"batch": 7})
                )
            ],
        ),
    ],
    "nothing of an epoch is left in the next one's manifest but its state": [
        (Resume(None), []),
        (Next({"batch": 7}), [Plan(0)]),
        (Planned(OFFSETS, {"loop": [FED_BEFORE]}), [Run(0)]),
        (
            Ran((*ALL, report(committables={"sink": [b"x"]})), TIMES, at=1.0),
            [
                Publish(
                    made := manifest(
                        0,
                        offsets=OFFSETS,
                        feedback={"loop": [FED_BEFORE]},
                        committables={"sink": [b"x"]},
                        times=TIMES,
                        created_at=1.0,
                        extra={"batch": 7},
                    )
                )
            ],
        ),
        (Published(), [Commit(made)]),
        (Committed(), [Deliver(made)]),
        (Delivered(), [Remove(0, [], [])]),
        (Cleaned(), [Finish(ended=False)]),
        *epoch(1, manifest(1, offsets=MORE_OFFSETS), planned=Planned(MORE_OFFSETS)),
    ],
    "the committables of all tasks are committed together, in the order of the reports": [
        (Resume(None), []),
        *epoch(
            0,
            manifest(0, committables={"files": [b"1", b"2", b"3"], "table": [b"4"]}),
            reports=(
                report(0),
                report(1, 0, committables={"files": [b"1", b"2"]}),
                report(1, 1, committables={"files": [b"3"], "table": [b"4"]}),
            ),
        ),
    ],
    # Who has to report.
    "a task of a deeper level that has not reported fails the epoch": [
        (Resume(None), []),
        (Next(), [Plan(0)]),
        (Planned({}), [Run(0)]),
        (
            Ran((report(0), report(1, 0))),
            Fails(EngineError, "epoch 0", "tasks [1] of level 1 did not report"),
        ),
    ],
    "a level of which nobody has reported fails the epoch": [
        (Resume(None), []),
        (Next(), [Plan(0)]),
        (Planned({}), [Run(0)]),
        (Ran((report(0),)), Fails(EngineError, "tasks [0, 1] of level 1 did not report")),
    ],
    "of level 0 only those report that have something to read": [
        (Resume(None), []),
        *epoch(0, reports=(report(1, 0), report(1, 1))),
    ],
    "a task that has reported twice, as an attempt that was doubled, does no harm": [
        (Resume(None), []),
        *epoch(0, reports=(*ALL, report(1, 1))),
    ],
    # The end.
    "a job is over after the epoch in which one of its tasks saw the end of the input": [
        (Resume(None), []),
        *epoch(
            0,
            manifest(0, ended=True),
            reports=(report(0), report(1, 0, input_ended=True), report(1, 1)),
        ),
    ],
    "what the end of the input has fed back goes round once more": [
        (Resume(None), []),
        *epoch(
            0,
            manifest(0, feedback={"loop": [FED_BACK]}),
            reports=(*ALL, report(input_ended=True, feedback={"loop": [FED_BACK]})),
        ),
        *epoch(1, manifest(1, ended=True), reports=(*ALL, report(input_ended=True))),
    ],
    "what an epoch has not read of what was fed back stays, before what it feeds back itself": [
        (Resume(None), []),
        *epoch(
            0,
            manifest(0, feedback={"loop": [FED_BEFORE, FED_BACK]}),
            planned=Planned({}, unread={"loop": [FED_BEFORE]}),
            reports=(*ALL, report(feedback={"loop": [FED_BACK]})),
        ),
    ],
    "stop with drain: tasks see the end of the input, the checkpoint is not one of a job that is over": [
        (Resume(None), []),
        *epoch(
            0,
            manifest(0, offsets=OFFSETS),
            planned=Planned(OFFSETS, drain=True),
            reports=(*ALL, report(input_ended=True)),
        ),
    ],
    "a job whose drained savepoint failed goes on, and ends when its input does": [
        (Resume(None), []),
        *epoch(0, planned=Planned({}, drain=True), reports=(*ALL, report(input_ended=True))),
        *epoch(1, manifest(1, ended=True), reports=(*ALL, report(input_ended=True))),
    ],
    # Other guarantees.
    "AT_LEAST_ONCE commits before it publishes": [
        {"mode": "AT_LEAST_ONCE"},
        (Resume(None), []),
        (Next(), [Plan(0)]),
        (Planned({}), [Run(0)]),
        (Ran(ALL), [Commit(manifest(0))]),
        (Committed(), [Publish(manifest(0))]),
        (Published(), [Deliver(manifest(0))]),
        (Delivered(), [Remove(0, [], [])]),
        (Cleaned(), [Finish(ended=False)]),
        (Next(), [Plan(1)]),
    ],
    "AT_LEAST_ONCE: what was committed before the driver died, and never published, is done again": [
        {"mode": "AT_LEAST_ONCE"},
        *resumed(manifest(4)),
        (Next(), [Plan(5)]),
        (Planned({}), [Run(5)]),
        (Ran(ALL), [Commit(manifest(5))]),
        DRIVER_STARTS,
        *resumed(manifest(4)),
        (Next(), [Plan(5)]),
        (Planned({}), [Run(5)]),
        (Ran(ALL), [Commit(manifest(5))]),
    ],
    "AT_MOST_ONCE says what it is going to read before it reads it": [
        {"mode": "AT_MOST_ONCE"},
        (Resume(None), []),
        (Next(), [Plan(0)]),
        (
            Planned(OFFSETS, {"loop": [FED_BEFORE]}),
            [Intend(0, OFFSETS, {"loop": [FED_BEFORE]})],
        ),
        (Intended(), [Run(0)]),
        (
            Ran(ALL),
            [Publish(made := manifest(0, offsets=OFFSETS, feedback={"loop": [FED_BEFORE]}))],
        ),
        (Published(), [Commit(made)]),
        (Committed(), [Deliver(made)]),
    ],
    # Failures, and starting again.
    "an epoch whose manifest could not be written never was": [
        *resumed(manifest(4)),
        (Next(), [Plan(5)]),
        (Planned({}), [Run(5)]),
        (Ran(ALL), [Publish(manifest(5))]),
        DRIVER_STARTS,
        *resumed(manifest(4)),
        (Next(), [Plan(5)]),
    ],
    "a job that fails before its first checkpoint begins with nothing": [
        (Resume(None), []),
        (Next(), [Plan(0)]),
        (Planned({}), [Run(0)]),
        DRIVER_STARTS,
        (Resume(None), []),
        (Next(), [Plan(0)]),
    ],
    "a commit that failed is repeated from the manifest before anything else": [
        (Resume(None), []),
        (Next(), [Plan(0)]),
        (Planned({}), [Run(0)]),
        (
            Ran((*ALL, report(committables={"sink": [b"x"]}))),
            [Publish(manifest(0, committables={"sink": [b"x"]}))],
        ),
        (Published(), [Commit(manifest(0, committables={"sink": [b"x"]}))]),
        DRIVER_STARTS,
        (
            Resume(manifest(0, committables={"sink": [b"x"]})),
            [Commit(manifest(0, committables={"sink": [b"x"]}), again=True)],
        ),
        (Committed(), [Deliver(manifest(0, committables={"sink": [b"x"]}), again=True)]),
        (Delivered(), []),
        (Next(), [Plan(1)]),
    ],
    "the epoch after the one that was resumed is an ordinary one, its commit a first one": [
        *resumed(manifest(7)),
        *epoch(8),
        *epoch(9, removes=Remove(9, [7], [])),
    ],
    "where the job was started from is known for good": [
        *resumed(manifest(4, restored_from="/savepoint")),
        *epoch(5, manifest(5, restored_from="/savepoint")),
    ],
    # State files.
    "a store's files are its segments, and a full one begins anew": [
        (Resume(None), []),
        *epoch(
            0,
            manifest(0, stores={"sum/0": store(A), "sum/1": store(B, subtask=1)}),
            reports=wrote(A, B),
        ),
        *epoch(
            1,
            manifest(1, stores={"sum/0": store(A, C), "sum/1": store(full("x"), subtask=1)}),
            reports=wrote(C, full("x")),
        ),
    ],
    "a store that has changed nothing, or has not reported, keeps its segments": [
        (Resume(None), []),
        *epoch(0, manifest(0, stores=sums(A)), reports=wrote(A)),
        *epoch(1, manifest(1, stores=sums(A)), reports=wrote(None)),
        *epoch(2, manifest(2, stores=sums(A)), removes=Remove(2, [0], [])),
    ],
    "what the subtasks of another layout hold is needed until there is a full file": [
        *resumed(manifest(0, stores=sums(parents=[IN_OWN_FOLDER]))),
        *epoch(1, manifest(1, stores=sums(A, parents=[IN_OWN_FOLDER])), reports=wrote(A)),
        *epoch(
            2,
            manifest(2, stores=sums(full("x"))),
            reports=wrote(full("x")),
            removes=Remove(2, [0], []),
        ),
        *epoch(
            3,
            manifest(3, stores=sums(full("x"))),
            removes=Remove(3, [1], ["a", "here"]),
        ),
    ],
    "what an operator has registered is known for good, also after the operator is gone": [
        {"operators": {"sum": operator(total={"kind": "value"})}},
        *resumed(manifest(0, operators={"sum": operator(old={}), "gone": operator(x={})})),
        (Next(), [Plan(1)]),
        (Planned({}), [Run(1)]),
        (
            Ran((*ALL, report(registered={"sum": {"new": {"kind": "map"}}}))),
            [
                Publish(
                    manifest(
                        1,
                        operators={
                            "sum": operator(old={}, total={"kind": "value"}, new={"kind": "map"}),
                            "gone": operator(x={}),
                        },
                    )
                )
            ],
        ),
    ],
    "a new job's operators are as the layout says": [
        {"operators": {"sum": operator(total={"kind": "value"})}},
        (Resume(None), []),
        *epoch(0, manifest(0, operators={"sum": operator(total={"kind": "value"})})),
    ],
    "an operator that a former program did not have is as the layout says": [
        {"operators": {"sum": operator(total={"kind": "value"})}},
        *resumed(manifest(0)),
        *epoch(1, manifest(1, operators={"sum": operator(total={"kind": "value"})})),
    ],
    # What is kept.
    "two checkpoints stay, for tasks read the one before while the next is published": [
        {"retained": 1},
        (Resume(None), []),
        *epoch(0, manifest(0, stores=sums(full("x"))), reports=wrote(full("x"))),
        *epoch(1, manifest(1, stores=sums(full("y"))), reports=wrote(full("y"))),
        *epoch(
            2,
            manifest(2, stores=sums(full("z"))),
            reports=wrote(full("z")),
            removes=Remove(2, [0], ["x"]),
        ),
    ],
    "as many checkpoints stay as are to be retained": [
        {"retained": 3},
        (Resume(None), []),
        *epoch(0),
        *epoch(1),
        *epoch(2),
        *epoch(3, removes=Remove(3, [0], [])),
        *epoch(4, removes=Remove(4, [1], [])),
    ],
    "a file stays as long as a checkpoint that stays needs it": [
        (Resume(None), []),
        *epoch(0, manifest(0, stores=sums(A)), reports=wrote(A)),
        *epoch(1, manifest(1, stores=sums(A, B)), reports=wrote(B)),
        *epoch(
            2,
            manifest(2, stores=sums(full("x"))),
            reports=wrote(full("x")),
            removes=Remove(2, [0], []),
        ),
        *epoch(3, manifest(3, stores=sums(full("x"))), removes=Remove(3, [1], ["a", "b"])),
    ],
    "what a former driver has left over goes with the first epoch": [
        *resumed(manifest(3), manifest(1, stores=sums(A)), manifest(2), manifest(3)),
        *epoch(4, removes=Remove(4, [1, 2], ["a"])),
    ],
    "what attempts have left behind is looked for every so many epochs": [
        {"sweep_every": 3},
        (Resume(None), []),
        *epoch(0, manifest(0, stores=sums(A)), reports=wrote(A)),
        *epoch(1, manifest(1, stores=sums(A, B)), reports=wrote(B)),
        *epoch(
            2,
            manifest(2, stores=sums(full("x"))),
            reports=wrote(full("x")),
            removes=Remove(2, [0], [], keep=frozenset({"a", "b", "x"})),
        ),
        *epoch(3, manifest(3, stores=sums(full("x"))), removes=Remove(3, [1], ["a", "b"])),
    ],
    # Savepoints.
    "the files of a savepoint that is being copied stay, although their checkpoint goes": [
        (Resume(None), []),
        *epoch(0, manifest(0, stores=sums(full("x"))), reports=wrote(full("x"))),
        (Pinned(frozenset({"x"})), []),
        *epoch(1, manifest(1, stores=sums(full("y"))), reports=wrote(full("y"))),
        *epoch(2, manifest(2, stores=sums(full("y"))), removes=Remove(2, [0], [])),
    ],
    "once the savepoint is done its files go with their checkpoint": [
        (Resume(None), []),
        *epoch(0, manifest(0, stores=sums(full("x"))), reports=wrote(full("x"))),
        (Pinned(frozenset({"x"})), []),
        *epoch(1, manifest(1, stores=sums(full("y"))), reports=wrote(full("y"))),
        (Unpinned(frozenset({"x"})), []),
        *epoch(2, manifest(2, stores=sums(full("y"))), removes=Remove(2, [0], ["x"])),
    ],
    "a file that two savepoints need stays until both are done": [
        (Resume(None), []),
        *epoch(0, manifest(0, stores=sums(full("x"))), reports=wrote(full("x"))),
        (Pinned(frozenset({"x"})), []),
        (Pinned(frozenset({"x"})), []),
        *epoch(1, manifest(1, stores=sums(full("y"))), reports=wrote(full("y"))),
        (Unpinned(frozenset({"x"})), []),
        *epoch(2, manifest(2, stores=sums(full("y"))), removes=Remove(2, [0], [])),
    ],
    "what was pinned when its checkpoint went is left to those who look for leftovers": [
        {"sweep_every": 4},
        (Resume(None), []),
        *epoch(0, manifest(0, stores=sums(full("x"))), reports=wrote(full("x"))),
        (Pinned(frozenset({"x"})), []),
        *epoch(1, manifest(1, stores=sums(full("y"))), reports=wrote(full("y"))),
        *epoch(2, manifest(2, stores=sums(full("y"))), removes=Remove(2, [0], [])),
        *epoch(
            3,
            manifest(3, stores=sums(full("y"))),
            removes=Remove(3, [1], [], keep=frozenset({"x", "y"})),
        ),
        (Unpinned(frozenset({"x"})), []),
        *epoch(4, manifest(4, stores=sums(full("y"))), removes=Remove(4, [2], [])),
    ],
    # What the job was started from and has claimed.
    "what was claimed goes as soon as no checkpoint needs it": [
        *resumed(manifest(0, claims="/old", stores=sums(parents=[ELSEWHERE]))),
        *epoch(1, manifest(1, claims="/old", stores=sums(full("x"))), reports=wrote(full("x"))),
        *epoch(
            2,
            manifest(2, claims="/old", stores=sums(full("x"))),
            removes=Remove(2, [0], [], claimed=True),
            cleaned=Cleaned(claimed=True),
        ),
        *epoch(3, manifest(3, stores=sums(full("x"))), removes=Remove(3, [1], [])),
    ],
    "what was claimed and could not be removed is tried again": [
        *resumed(manifest(0, claims="/old")),
        *epoch(1, manifest(1, claims="/old"), removes=Remove(1, [], [], claimed=True)),
        *epoch(
            2,
            manifest(2, claims="/old"),
            removes=Remove(2, [0], [], claimed=True),
            cleaned=Cleaned(claimed=True),
        ),
        *epoch(3, removes=Remove(3, [1], [])),
    ],
    "what was claimed stays while a savepoint is being copied": [
        *resumed(manifest(0, claims="/old")),
        (Pinned(frozenset()), []),
        *epoch(1, manifest(1, claims="/old")),
        (Unpinned(frozenset()), []),
        *epoch(2, manifest(2, claims="/old"), removes=Remove(2, [0], [], claimed=True)),
    ],
    # Compaction.
    "segments that have become many are compacted once, and meanwhile there are more": [
        (Resume(None), []),
        *epoch(0, manifest(0, stores=sums(A)), reports=wrote(A)),
        *epoch(1, manifest(1, stores=sums(A, B)), reports=wrote(B)),
        *epoch(
            2,
            manifest(2, stores=sums(A, B, C)),
            reports=wrote(C),
            removes=Remove(2, [0], []),
            compactions=(Compact("sum/0", (A, B, C)),),
        ),
        *epoch(
            3,
            manifest(3, stores=sums(A, B, C, D)),
            reports=wrote(D),
            removes=Remove(3, [1], []),
        ),
    ],
    "the compacted file takes the place of those it covers with the store's next report": [
        *resumed(manifest(0, stores=sums(A, B))),
        *epoch(
            1,
            manifest(1, stores=sums(A, B, C)),
            reports=wrote(C),
            compactions=(Compact("sum/0", (A, B, C)),),
        ),
        *epoch(
            2,
            manifest(2, stores=sums(A, B, C, D)),
            reports=wrote(D),
            removes=Remove(2, [0], []),
        ),
        (Compacted("sum/0", full("abc", covers="c")), []),
        *epoch(
            3,
            manifest(3, stores=sums(full("abc", covers="c"), D)),
            reports=wrote(None),
            removes=Remove(3, [1], []),
        ),
        *epoch(
            4,
            manifest(4, stores=sums(full("abc", covers="c"), D)),
            removes=Remove(4, [2], ["a", "b", "c"]),
        ),
    ],
    "while the store does not report the compacted file waits, and nobody removes it": [
        {"sweep_every": 3},
        *resumed(manifest(0, stores=sums(A, B))),
        *epoch(
            1,
            manifest(1, stores=sums(A, B, C)),
            reports=wrote(C),
            compactions=(Compact("sum/0", (A, B, C)),),
        ),
        (Compacted("sum/0", full("abc", covers="c")), []),
        *epoch(
            2,
            manifest(2, stores=sums(A, B, C)),
            removes=Remove(2, [0], [], keep=frozenset({"a", "b", "c", "abc"})),
        ),
        *epoch(
            3,
            manifest(3, stores=sums(full("abc", covers="c"), D)),
            reports=wrote(D),
            removes=Remove(3, [1], []),
        ),
    ],
    "a compacted file whose segments are gone means nothing": [
        *resumed(manifest(0, stores=sums(A, B))),
        *epoch(
            1,
            manifest(1, stores=sums(A, B, C)),
            reports=wrote(C),
            compactions=(Compact("sum/0", (A, B, C)),),
        ),
        *epoch(
            2,
            manifest(2, stores=sums(full("x"))),
            reports=wrote(full("x")),
            removes=Remove(2, [0], []),
        ),
        (Compacted("sum/0", full("abc", covers="c")), []),
        *epoch(
            3,
            manifest(3, stores=sums(full("x"), D)),
            reports=wrote(D),
            # The segments that were compacted are held no longer.
            removes=Remove(3, [1], ["a", "b", "c"]),
        ),
    ],
    "segments that could not be compacted stay as they are, and are compacted another time": [
        *resumed(manifest(0, stores=sums(A, B))),
        *epoch(
            1,
            manifest(1, stores=sums(A, B, C)),
            reports=wrote(C),
            compactions=(Compact("sum/0", (A, B, C)),),
        ),
        (CompactionFailed("sum/0"), []),
        *epoch(
            2,
            manifest(2, stores=sums(A, B, C, D)),
            reports=wrote(D),
            removes=Remove(2, [0], []),
            compactions=(Compact("sum/0", (A, B, C, D)),),
        ),
    ],
    "the segments of stores that are being compacted stay until the last of them is done": [
        *resumed(manifest(0, stores={"sum/0": store(A, B, C), "sum/1": store(D, D, D, subtask=1)})),
        *epoch(
            1,
            manifest(1, stores={"sum/0": store(A, B, C), "sum/1": store(D, D, D, subtask=1)}),
            compactions=(Compact("sum/0", (A, B, C)), Compact("sum/1", (D, D, D))),
        ),
        (CompactionFailed("sum/1"), []),
        *epoch(
            2,
            manifest(2, stores={"sum/0": store(full("x")), "sum/1": store(full("y"), subtask=1)}),
            reports=wrote(full("x"), full("y")),
            removes=Remove(2, [0], []),
        ),
        *epoch(
            3,
            manifest(3, stores={"sum/0": store(full("x")), "sum/1": store(full("y"), subtask=1)}),
            removes=Remove(3, [1], []),
        ),
    ],
    "a store that still needs what another layout has written is not compacted": [
        *resumed(manifest(0, stores=sums(A, B, C, parents=[IN_OWN_FOLDER]))),
        *epoch(1, manifest(1, stores=sums(A, B, C, parents=[IN_OWN_FOLDER]))),
    ],
    # Jobs of which little is kept.
    "a job without state and without sinks has manifests too, which say how far it has read": [
        {"stores": {}, "tasks": [1]},
        (Resume(None), []),
        *epoch(0, manifest(0, offsets=OFFSETS), planned=Planned(OFFSETS), reports=(report(0),)),
        *epoch(1, manifest(1, offsets=MORE_OFFSETS), planned=Planned(MORE_OFFSETS), reports=()),
    ],
}


def coordinator(
    *, stores: Any = LAYOUT.stores, tasks: Any = LAYOUT.tasks, operators: Any = None, **options: Any
) -> Coordinator:
    layout = Layout("job", "word count", tasks, stores, operators or {})
    return Coordinator(layout, extend=extend_segments, must_compact=three_long, **options)


def lines(case: list[Any]) -> tuple[dict[str, Any], list[Any]]:
    return (case[0], case[1:]) if isinstance(case[0], dict) else ({}, case)


@pytest.mark.parametrize("title", CASES)
def test_events_in_commands_out(title):
    options, script = lines(CASES[title])
    told = coordinator(**options)
    assert any(line is not DRIVER_STARTS for line in script)
    for number, line in enumerate(script):
        if line is DRIVER_STARTS:
            told = coordinator(**options)
            continue
        event, expected = line
        if isinstance(expected, Fails):
            with pytest.raises(expected.error) as failure:
                told.handle(event)
            assert all(words in str(failure.value) for words in expected.words)
        else:
            assert told.handle(event) == expected, f"line {number}: {event}"


def test_the_table_has_every_event_and_every_command():
    steps = [
        line for case in CASES.values() for line in lines(case)[1] if line is not DRIVER_STARTS
    ]
    assert {type(event) for event, _ in steps} == set(get_args(Event))
    said = {type(c) for _, commands in steps if isinstance(commands, list) for c in commands}
    assert said == set(get_args(Command))


def test_the_latest_complete_checkpoint_is_the_one_that_was_published_last():
    told = coordinator()
    told.handle(Resume(None))
    assert told.manifest is None
    for event in (Next(), Planned({}), Ran(ALL)):
        told.handle(event)
        assert told.manifest is None
    told.handle(Published())
    assert told.manifest == manifest(0)


def test_nobody_unpins_what_was_not_pinned():
    told = coordinator()
    told.handle(Pinned(frozenset({"x"})))
    with pytest.raises(ValueError, match="not in list"):
        told.handle(Unpinned(frozenset({"y"})))


def test_what_is_no_event_is_refused():
    with pytest.raises(AssertionError):
        coordinator().handle("next")
