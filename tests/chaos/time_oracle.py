"""Every line that the time checker must have written: one event after the other, in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.chaos import time_input
from tests.chaos.oracle import Verdict, compare, visible_lines
from tests.properties.time_reference import MAX, MIN, Event, Mark, Rec, Timings, Windows, key_of

__all__ = ["judge"]


def judge(folder: Path) -> Verdict:
    """Compare what a run has written with what it must have written."""
    count = int((folder / "end-0").read_text())
    verdict = Verdict(records=count)
    events = list(_events(count))
    results, late = _expected(events)
    found = list(visible_lines(folder / "out"))
    confirmed = [one for one in found if one.startswith("confirmed ")]
    compare(verdict, "out", results, (one for one in found if not one.startswith("confirmed ")))
    compare(verdict, "late", late, visible_lines(folder / "late"))
    _check_confirmed(verdict, events, confirmed)
    verdict.facts["results"] += len(found)
    verdict.facts["late"] += len(late)
    verdict.facts["fired again"] += sum(_again(one) for one in results)
    return verdict


def _events(count: int) -> Iterator[Event]:
    largest, watermark = -1, MIN
    for number in range(count):
        value = time_input.event_of(number)
        yield Rec(value, value[2])
        largest = max(largest, value[2])
        if time_input.marked(number) and largest - time_input.BOUND > watermark:
            watermark = largest - time_input.BOUND
            yield Mark(watermark)
    yield Mark(MAX)


def _expected(events: list[Event]) -> tuple[list[str], list[str]]:
    results: list[str] = []
    late: list[str] = []

    def through(name: str, operator: Windows, fed: Iterable[Event]) -> list[Event]:
        given = [out for event in fed for out in operator.feed(event)]
        results.extend(_lines(name, given))
        late.extend(_lines(name, operator.late))
        return given

    for name, spec in time_input.WINDOWS.items():
        given = through(name, Windows(spec), events)
        if name == "session":
            regrouped = [
                Rec(time_input.regrouped(one.value), one.timestamp) if isinstance(one, Rec) else one
                for one in given
            ]
            through("second", Windows(time_input.SECOND), regrouped)
    results.extend(_lines("timers", _timers(events)))
    return results, late


def _lines(name: str, events: Iterable[Event]) -> Iterator[str]:
    for event in events:
        if isinstance(event, Rec):
            yield time_input.line(name, event.value, event.timestamp)


def _timers(events: list[Event]) -> Iterator[Rec]:
    timers = Timings()
    fired: Counter[str] = Counter()
    for event in events:
        if isinstance(event, Rec):
            key = key_of(event.value)
            timers.add(event.timestamp + time_input.TIMER_AHEAD, key)
            if event.value[1] % 3 == 0:
                timers.discard(event.timestamp + time_input.TIMER_DELETED, key)
            continue
        for time, key in timers.advance(event.time):
            again = time_input.timer_again(time)
            if again is not None:
                timers.add(again, key)
            fired[key] += 1
            yield Rec((key, time, fired[key], event.time), time)


def _check_confirmed(verdict: Verdict, events: list[Event], lines: list[str]) -> None:
    """Each id once, in the order of its key. By the end of the input only the newest: the clock's timers of the others
    were due long before."""
    counts: Counter[str] = Counter()
    wanted = []
    for event in events:
        if isinstance(event, Rec):
            key, number, *_ = event.value
            counts[key] += 1
            wanted.append(f"confirmed {key} {number} {counts[key]}")
    split = [one.rpartition(" ") for one in lines]
    compare(verdict, "out", wanted, (text for text, _, _ in split))
    newest = verdict.records - 4 * time_input.PER_EPOCH
    for text, _, by in split:
        verdict.facts["by the clock"] += by == "clock"
        if by == "end" and int(text.split()[2]) < newest:
            verdict.add("wrong", f"the clock's timer has not fired: {text}")


def _again(text: str) -> bool:
    """True for a second firing of a window that counts them."""
    return text.startswith("firings ") and int(text.split()[-2].rstrip(")")) > 1
