"""A source that does what a script says: records, watermarks, pauses and crashes, each at its exact place.

For tests of whole programs, in-process or on Spark. What a split's script says is the same in every run, and after
every failure: an entry's position is its place in the script.

>>> from millstream.common.watermark_strategy import WatermarkStrategy
>>> from millstream.datastream import StreamExecutionEnvironment
>>> from millstream.datastream.window import TumblingEventTimeWindows
>>> from millstream.testing.results import collect
>>> source = ScriptedSource(
...     {"a": [record(1, at=1000), record(2, at=1900), watermark(2000), record(4, at=1950)]}
... )
>>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
>>> numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "script")
>>> windows = numbers.window_all(TumblingEventTimeWindows.of("1 s"))
>>> collect(windows.reduce(lambda a, b: a + b))  # the 4 comes too late
[3]
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from millstream.api.source import (
    Boundedness,
    Source,
    SourceReader,
    SplitEnumerator,
    Timestamped,
    Watermark,
)
from millstream.common.constants import NO_TIME
from millstream.common.time import DurationLike, parse_duration
from millstream.errors import InvalidArgument
from millstream.runtime.time.timers import checked_time
from millstream.testing.snapshots import folder_owned_by

__all__ = ["ScriptedCrash", "ScriptedSource", "crash", "pause", "record", "watermark"]


class ScriptedCrash(RuntimeError):
    """What a `crash` of a script raises."""


class _Pause(NamedTuple):
    milliseconds: int


class _Crash(NamedTuple):
    why: str
    marker: str | None


Entry = Timestamped | Watermark | _Pause | _Crash


def record(value: Any, at: int | None = None) -> Entry:
    """A record, with its timestamp or without.

    >>> record("x", at=1000)
    Timestamped(value='x', timestamp=1000)
    """
    return Timestamped(value, NO_TIME if at is None else checked_time(at, "record"))


def watermark(timestamp: int) -> Entry:
    """A watermark of the split.

    >>> watermark(2000)
    Watermark(timestamp=2000)
    """
    return Watermark(checked_time(timestamp, "watermark"))


def pause(duration: DurationLike) -> Entry:
    """Nothing is available until so much time has passed since everything before was read; a job that is restarted
    by the same driver does not wait again. With `with_idleness` the split becomes idle.

    >>> pause("1 s")
    _Pause(milliseconds=1000)
    """
    milliseconds = parse_duration(duration)
    if milliseconds < 0:
        raise InvalidArgument("a pause must not be negative", got=repr(duration))
    return _Pause(milliseconds)


def crash(why: str = "the script says so", marker_path: str | None = None) -> Entry:
    """Reading fails once, with `ScriptedCrash(why)`, and what comes after it is read at the next try.

    That it has happened is remembered by a file. The source makes one in a temporary folder that goes with it; if the
    program is started anew, or runs on several machines, give a path that all of it can see.
    """
    return _Crash(why, None if marker_path is None else os.path.abspath(marker_path))


class ScriptedSource(Source):
    """Splits by name, each with its script; `bounded=False` has it wait for ever after the last entry.

    >>> ScriptedSource({"a": [record(1), pause("10 ms"), record(2)]}).paced()
    True
    """

    def __init__(self, scripts: Mapping[str, Iterable[Entry]], *, bounded: bool = True) -> None:
        self._bounded = bounded
        self._folder: str | None = None
        self._scripts = {
            split: tuple(self._checked(split, place, entry) for place, entry in enumerate(script))
            for split, script in scripts.items()
        }
        if not self._scripts:
            raise InvalidArgument("a scripted source needs at least one split")

    def _checked(self, split: str, place: int, entry: Any) -> Entry:
        if not isinstance(entry, Entry):
            msg = f"entry {place} of the script '{split}' is not one"
            hint = "write record(value, at=..), watermark(..), pause(..) or crash(..)"
            raise InvalidArgument(msg, got=repr(entry)[:200], hint=hint)
        if isinstance(entry, _Crash) and entry.marker is None:
            if self._folder is None:
                self._folder = folder_owned_by(self, "script")
            number = len(os.listdir(self._folder))
            os.mkdir(os.path.join(self._folder, str(number)))
            return _Crash(entry.why, os.path.join(self._folder, str(number), "crashed"))
        return entry

    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED if self._bounded else Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        return _Splits(self._scripts, self._bounded)

    def create_reader(self) -> SourceReader:
        return _Reader(self._scripts)

    def paced(self) -> bool:
        return any(
            isinstance(entry, _Pause) for script in self._scripts.values() for entry in script
        )

    def stamped(self) -> bool:
        return True


class _Splits(SplitEnumerator):
    def __init__(self, scripts: Mapping[str, Sequence[Entry]], bounded: bool) -> None:
        self._bounded = bounded
        self._lengths = {split: len(script) for split, script in scripts.items()}
        self._pauses = {
            split: [place for place, entry in enumerate(script) if isinstance(entry, _Pause)]
            for split, script in scripts.items()
        }
        self._scripts = scripts
        # By split and place, when a pause that was reached is over.
        self._until: dict[tuple[str, int], float] = {}

    def discover(self) -> Sequence[str]:
        return list(self._lengths)

    def available(self, split: str, position: int) -> int:
        pauses = self._pauses[split]
        for place in pauses[bisect_left(pauses, position) :]:
            if not self._is_over(split, place, reached=place == position):
                return place
        return self._lengths[split]

    def _is_over(self, split: str, place: int, *, reached: bool) -> bool:
        until = self._until.get((split, place))
        now = time.monotonic()
        if until is None and reached:
            entry = self._scripts[split][place]
            assert isinstance(entry, _Pause)
            until = self._until[split, place] = now + entry.milliseconds / 1000
        return until is not None and now >= until

    def finished(self, split: str, position: int) -> bool:
        return self._bounded and position == self._lengths[split]


class _Reader(SourceReader):
    def __init__(self, scripts: Mapping[str, Sequence[Entry]]) -> None:
        self._scripts = scripts

    def read(self, split: str, start: int, end: int) -> Iterable[Any]:
        for entry in self._scripts[split][start:end]:
            if isinstance(entry, _Crash):
                _crash_once(entry)
            elif not isinstance(entry, _Pause):
                yield entry


def _crash_once(entry: _Crash) -> None:
    assert entry.marker is not None
    try:
        os.makedirs(os.path.dirname(entry.marker), exist_ok=True)
        # Of several attempts at the same time, one is first.
        os.close(os.open(entry.marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return
    raise ScriptedCrash(entry.why)
