"""What must be in the checker job's files, and what is: pure arithmetic over the lines that a reader can see."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.chaos import checker

__all__ = ["MOST_SUBTASKS", "Verdict", "compare", "judge", "visible_lines"]

MOST_SUBTASKS = 3
"""The largest parallelism that the job is ever given."""


class Line(NamedTuple):
    id: int
    key: int
    counter: str
    stamp: int
    sequence: int
    last: tuple[int, ...]
    splits: tuple[int, ...]
    largest: int
    group_count: int
    group_sum: int

    @staticmethod
    def parse(text: str) -> Line:
        number, key, counter, stamp, sequence, last, splits, *rest = text.split()
        return Line(
            int(number),
            int(key),
            counter,
            int(stamp),
            int(sequence),
            tuple(map(int, last.split(","))),
            tuple(map(int, splits.split(","))),
            *map(int, rest),
        )


@dataclass
class Verdict:
    """All zero, or something is broken. `examples` says where to look."""

    records: int = 0
    lost: int = 0
    duplicated: int = 0
    disordered: int = 0
    wrong: int = 0
    examples: list[str] = field(default_factory=list)
    # What there was to be judged: a job that makes nothing of a kind does not test it.
    facts: Counter[str] = field(default_factory=Counter)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated or self.disordered or self.wrong)

    def add(self, kind: str, text: str, count: int = 1) -> None:
        setattr(self, kind, getattr(self, kind) + count)
        if len(self.examples) < 20:
            self.examples.append(f"{kind}: {text}")

    def __iadd__(self, other: Verdict) -> Verdict:
        self.records += other.records
        for kind in ("lost", "duplicated", "disordered", "wrong"):
            setattr(self, kind, getattr(self, kind) + getattr(other, kind))
        self.examples += other.examples
        self.facts += other.facts
        return self


def visible_lines(folder: Path) -> list[str]:
    """What a reader sees that skips hidden files, as every reader must."""
    return [
        line
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.startswith(".")
        for line in file.read_text().splitlines()
    ]


def judge(folder: Path) -> Verdict:
    """The verdict on a run that has ended."""
    verdict = Verdict()
    ids = [
        int(split) * checker.PER_SPLIT + position
        for split in checker.SPLITS
        for position in range(int((folder / f"end-{split}").read_text()))
    ]
    lines = [Line.parse(text) for text in visible_lines(folder / "out")]
    verdict.records = len(ids)
    compare(verdict, "out", ids, (line.id for line in lines))
    _check_keys(verdict, lines)
    _check_groups(verdict, lines)
    _check_counters(verdict, lines)
    _check_side(verdict, folder, ids, lines)
    return verdict


def compare(
    verdict: Verdict, where: str, wanted: Iterable[object], found: Iterable[object]
) -> None:
    """The same ones, each as often as it should be, in any order."""
    expected, seen = Counter(wanted), Counter(found)
    for one in expected - seen:
        verdict.add("lost", f"{one} is not in {where}")
    for one, count in (seen - expected).items():
        kind = "duplicated" if one in expected else "wrong"
        verdict.add(kind, f"{one} is {count} times too often in {where}", count)


def _check_keys(verdict: Verdict, lines: list[Line]) -> None:
    by_key: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        by_key[line.key].append(line)
        if line.key != checker.key_of(line.id):
            verdict.add("wrong", f"{line.id} has the key {line.key}")
    for key, of_key in by_key.items():
        of_key.sort(key=lambda line: line.sequence)
        if [line.sequence for line in of_key] != list(range(1, len(of_key) + 1)):
            verdict.add("disordered", f"key {key} does not count 1 to {len(of_key)}")
            continue
        newest = dict.fromkeys(checker.SPLITS, -1)
        counts = dict.fromkeys(checker.SPLITS, 0)
        last: tuple[int, ...] = ()
        largest = -1
        for line in of_key:
            split = str(line.id // checker.PER_SPLIT)
            if line.id <= newest[split]:
                verdict.add("disordered", f"key {key}: {line.id} comes after {newest[split]}")
            newest[split] = line.id
            counts[split] += 1
            last = (*last, line.id)[-checker.KEPT :]
            largest = max(largest, line.id)
            if (line.last, line.splits, line.largest) != (last, tuple(counts.values()), largest):
                wanted = f"{last} {tuple(counts.values())} {largest}"
                verdict.add("wrong", f"key {key}: the state is not {wanted}: {line}")


def _check_groups(verdict: Verdict, lines: list[Line]) -> None:
    by_group: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        by_group[checker.group_of(line.key)].append(line)
    for group, of_group in by_group.items():
        of_group.sort(key=lambda line: line.group_count)
        total = 0
        for count, line in enumerate(of_group, 1):
            total += line.id
            if (line.group_count, line.group_sum) != (count, total):
                verdict.add("wrong", f"group {group}: not {count} ids with sum {total}: {line}")


def _check_counters(verdict: Verdict, lines: list[Line]) -> None:
    by_counter: dict[str, list[int]] = defaultdict(list)
    for line in lines:
        by_counter[line.counter].append(line.stamp)
    # A subtask begins one only if it has been given none, and what there is is dealt out evenly.
    if len(by_counter) > MOST_SUBTASKS:
        verdict.add("wrong", f"{len(by_counter)} counters for at most {MOST_SUBTASKS} subtasks")
    for counter, stamps in by_counter.items():
        if sorted(stamps) != list(range(1, len(stamps) + 1)):
            verdict.add("wrong", f"counter {counter} has not counted 1 to {len(stamps)}")


def _check_side(verdict: Verdict, folder: Path, ids: list[int], lines: list[Line]) -> None:
    sequences = {line.id: line.sequence for line in lines}
    wanted = [
        f"{one} {checker.key_of(one)} {sequences.get(one)}"
        for one in ids
        if one % checker.SIDE_EVERY == 0
    ]
    compare(verdict, "side", wanted, visible_lines(folder / "side"))
