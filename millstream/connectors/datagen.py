"""Records made by a function of the event's number (Flink's `DataGeneratorSource`).

Event n goes to split n mod k. So the splits advance side by side, the output is nearly in the order
of event numbers, and a position alone says where a split goes on.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator, SplitPosition
from millstream.errors import InvalidArgument, SourceError
from millstream.runtime.base.recognize import keeps_nothing

__all__ = ["DataGeneratorSource", "GeneratorSplits", "seeded"]

# How far ahead an unlimited source says it can be read: more than any epoch will take.
_PLENTY = 1 << 40


class DataGeneratorSource(Source):
    """Calls `generator_function` with 0, 1, 2, ... and emits what it returns.

    The function runs in the workers and must give the same record for the same number each time;
    wrap it in `seeded` if it needs chance. Without a `count` the source never ends; with a
    `rate_per_second`, records of all subtasks together become available at that rate. As in Flink a rate has no
    memory: it counts from when the job reads, so neither the start of the engine and of its workers nor the time that a
    job was down is made up for.

    >>> source = DataGeneratorSource(lambda n: f"event {n}", count=5)
    >>> source.create_enumerator(parallelism=2).discover()
    ['0/2', '1/2']
    >>> list(source.create_reader().read("1/2", 0, 2))
    ['event 1', 'event 3']
    """

    def __init__(
        self,
        generator_function: Callable[[int], Any],
        count: int | None = None,
        rate_per_second: float | None = None,
        splits: int | None = None,
    ) -> None:
        if not callable(generator_function):
            raise InvalidArgument(
                "the generator must be a function of the event's number",
                got=type(generator_function).__name__,
            )
        if count is not None and count < 0:
            raise InvalidArgument("count must be 0 or more, or None for no end", got=count)
        if rate_per_second is not None and not rate_per_second > 0:
            raise InvalidArgument(
                "rate_per_second must be more than 0, or None for no limit", got=rate_per_second
            )
        if splits is not None and splits < 1:
            raise InvalidArgument("splits must be 1 or more", got=splits)
        self._function = generator_function
        self._count = count
        self._rate = rate_per_second
        self._splits = splits

    def boundedness(self) -> Boundedness:
        """Bounded if there is a count."""
        if self._count is None:
            return Boundedness.CONTINUOUS_UNBOUNDED
        return Boundedness.BOUNDED

    def keeps_records(self) -> bool:
        """False if the function is seen to keep nothing."""
        return not keeps_nothing(self._function)

    def paced(self) -> bool:
        """True if there is a rate."""
        return self._rate is not None

    def max_parallelism(self) -> int | None:
        """The number of splits, if it was given."""
        return self._splits

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        """A split per subtask, unless another number was asked for."""
        return GeneratorSplits(self._splits or parallelism, self._count, self._rate)

    def create_reader(self) -> SourceReader:
        """A reader that maps the function over event numbers."""
        return _GeneratorReader(self._function)


class GeneratorSplits(SplitEnumerator):
    """The splits `i/k`, and how far the rate lets each of them go.

    >>> now = 0.0
    >>> splits = GeneratorSplits(2, None, 10.0, clock=lambda: now)
    >>> splits.restored({})
    >>> splits.available("0/2", 0), splits.available("1/2", 0)
    (0, 0)
    >>> now = 0.5
    >>> splits.available("0/2", 0), splits.available("1/2", 0)
    (3, 2)
    """

    def __init__(
        self,
        splits: int,
        count: int | None,
        rate: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        useful = splits if count is None else max(1, min(splits, count))
        self._splits = [f"{index}/{useful}" for index in range(useful)]
        self._count = count
        self._rate = rate
        self._clock = clock
        # When the rate began to count, how many events there were then, and how many there are now.
        self._since: float | None = None
        self._before = 0
        self._made = 0
        self._warm = False

    def restored(self, positions: dict[str, int]) -> None:
        """Go on with the splits there were; the rate counts from when they are first asked for."""
        if positions:
            self._splits = list(positions)
        self._before = sum(SplitPosition.of(number).at for number in positions.values())
        self._since = None
        self._warm = False

    def rewound(self, positions: dict[str, int]) -> None:
        """The time that the job was down is not made up for."""
        self.restored(positions)

    def discover(self) -> Sequence[str]:
        """All splits; there will be no others."""
        return self._splits

    def available(self, split: str, position: int) -> int:
        """How many of the split's events exist by now."""
        index, step = _residue(split)
        length = _PLENTY + position if self._count is None else _share(self._count, index, step)
        if position > length:
            raise SourceError(
                "the generator has fewer events than were read from it before",
                count=self._count,
                position=position,
                hint="a job goes on from its state with the same count; or start it anew",
            )
        if self._rate is None:
            return length
        now = self._clock()
        if self._since is None:
            self._since = now
        self._made = self._before + int((now - self._since) * self._rate)
        return max(position, min(length, _share(self._made, index, step)))

    def commit(self, split: str, position: int) -> None:
        """In the first epoch workers start and code is compiled: the rate counts from its end."""
        if self._rate is not None and not self._warm and self._made > self._before:
            self._warm = True
            self._before, self._since = self._made, self._clock()

    def finished(self, split: str, position: int) -> bool:
        """True behind the last event of the split."""
        return self._count is not None and position == _share(self._count, *_residue(split))


class _GeneratorReader(SourceReader):
    def __init__(self, function: Callable[[int], Any]) -> None:
        self._function = function

    def read(self, split: str, start: int, end: int) -> Iterable[Any]:
        index, step = _residue(split)
        return map(self._function, range(index + start * step, index + end * step, step))


def _residue(split: str) -> tuple[int, int]:
    index, _, step = split.partition("/")
    return int(index), int(step)


def _share(count: int, index: int, step: int) -> int:
    """How many of the numbers 0 to count - 1 leave the rest `index` when divided by `step`."""
    return max(0, (count - index + step - 1) // step)


def seeded(
    function: Callable[[int, random.Random], Any], seed: int | str = 0
) -> Callable[[int], Any]:
    """Make a function that needs chance into one that gives the same record for a number each time.

    >>> dice = seeded(lambda n, chance: (n, chance.randint(1, 6)), seed=7)
    >>> dice(3) == dice(3)
    True
    >>> len({dice(n)[1] for n in range(100)})
    6
    """
    return _Seeded(function, seed)


class _Seeded:
    __slots__ = ("_function", "_seed")

    def __init__(self, function: Callable[[int, random.Random], Any], seed: int | str) -> None:
        self._function = function
        self._seed = seed

    def __call__(self, number: int) -> Any:
        # Seeding with a text goes through SHA-512: neighbouring numbers get unrelated sequences.
        return self._function(number, random.Random(f"{self._seed}/{number}"))
