"""One source after the other, as one stream: history first, then what is live (Flink's `HybridSource`).

The splits of the first source are read to their end, then those of the next are looked for, and so on. A split's name
carries the number of its source, so that a position says all there is to know: a job that goes on from a checkpoint
goes on in the source it was in. Each split has a watermark generator of its own as ever, and time never goes back, so
windows that began in one source are completed by the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator, SplitPosition
from millstream.errors import InvalidArgument

__all__ = ["HybridSource", "HybridSourceBuilder"]


class HybridSource(Source):
    """Reads several sources, each when the one before it has ended. Only the last may be without an end.

    >>> from millstream.connectors.number_seq import NumberSequenceSource
    >>> from millstream.common.watermark_strategy import WatermarkStrategy
    >>> from millstream.datastream import StreamExecutionEnvironment
    >>> history, live = NumberSequenceSource(1, 3), NumberSequenceSource(7, 8)
    >>> source = HybridSource.builder(history).add_source(live).build()
    >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
    >>> numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    >>> list(numbers.execute_and_collect())
    [1, 2, 3, 7, 8]
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = tuple(sources)

    @staticmethod
    def builder(first_source: Source) -> HybridSourceBuilder:
        """Begin with a source."""
        return HybridSourceBuilder(first_source)

    def validate(self) -> None:
        """What the sources can say now of what would be wrong when they are read."""
        for source in self._sources:
            validate = getattr(source, "validate", None)
            if validate is not None:
                validate()

    def boundedness(self) -> Boundedness:
        """Whether the last of the sources ends by itself."""
        return self._sources[-1].boundedness()

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        """The driver's half, which knows whose turn it is."""
        return _HybridSplits(self._sources, parallelism)

    def create_reader(self) -> SourceReader:
        """The worker's half: a reader of each source, once it is needed."""
        return _HybridReader(self._sources)

    def keeps_records(self) -> bool:
        """True if any of the sources does."""
        return any(source.keeps_records() for source in self._sources)

    def reads_again(self) -> bool:
        """True if all of the sources do."""
        return all(source.reads_again() for source in self._sources)

    def paced(self) -> bool:
        """True if there is more than one source: what follows comes when what was before it is done."""
        return len(self._sources) > 1 or self._sources[0].paced()

    def stamped(self) -> bool:
        """True if any of the sources gives timestamps."""
        return any(source.stamped() for source in self._sources)

    def max_parallelism(self) -> int | None:
        """The most that any of the sources can use."""
        most = [source.max_parallelism() for source in self._sources]
        return None if None in most else max(limit for limit in most if limit is not None)


class HybridSourceBuilder:
    """Builds a `HybridSource`.

    >>> from millstream.connectors.number_seq import NumberSequenceSource
    >>> builder = HybridSource.builder(NumberSequenceSource(1, 3))
    >>> builder.add_source(NumberSequenceSource(4, 6)).build().boundedness().name
    'BOUNDED'
    """

    def __init__(self, first_source: Source) -> None:
        self._sources = [_checked(first_source)]

    def add_source(self, source: Source) -> HybridSourceBuilder:
        """Read another source after those before."""
        last = self._sources[-1]
        if last.boundedness() is not Boundedness.BOUNDED:
            raise InvalidArgument(
                "nothing can follow a source that has no end",
                source=type(last).__name__,
                number=len(self._sources),
                hint="bound it, or make it the last one",
            )
        self._sources.append(_checked(source))
        return self

    def build(self) -> HybridSource:
        """The source that was built."""
        return HybridSource(self._sources)


def _checked(source: Any) -> Source:
    if not isinstance(source, Source):
        raise InvalidArgument(
            "a hybrid source is made of sources",
            got=type(source).__name__,
            hint="give it what you would give env.from_source, built",
        )
    return source


class _HybridSplits(SplitEnumerator):
    def __init__(self, sources: Sequence[Source], parallelism: int) -> None:
        self._sources = sources
        self._parallelism = parallelism
        # Of the sources up to the one whose turn it is.
        self._inner: list[SplitEnumerator] = []
        # The splits that are at their end, as far as is known.
        self._done: set[str] = set()
        # The first source with splits that have not ended, as far as was asked since splits were last looked for.
        self._reading = len(sources)
        self._flows = self._at_once = False

    def flows(self) -> None:
        self._flows = True

    def at_once(self) -> None:
        self._at_once = True

    def restored(self, positions: dict[str, int]) -> None:
        by_source = _by_source(positions)
        self._done.update(
            name for name, number in positions.items() if SplitPosition.of(number).ended
        )
        for number in range(max(by_source, default=0) + 1):
            self._begin(by_source.get(number, {}))

    def rewound(self, positions: dict[str, int]) -> None:
        by_source = _by_source(positions)
        for number, inner in enumerate(self._inner):
            inner.rewound(by_source.get(number, {}))

    def _begin(self, positions: dict[str, int]) -> None:
        source = self._sources[len(self._inner)]
        enumerator = source.create_enumerator(self._parallelism)
        if self._flows:
            enumerator.flows()
        if self._at_once:
            enumerator.at_once()
        enumerator.restored(positions)
        self._inner.append(enumerator)

    def discover(self) -> Sequence[str]:
        if not self._inner:
            self._begin({})
        self._reading = len(self._sources)
        names: list[str] = []
        number = 0
        while number < len(self._inner):
            inner = self._inner[number]
            splits = [_name(number, split) for split in inner.discover()]
            names += splits
            number += 1
            follows = number == len(self._inner) < len(self._sources)
            if follows and inner.exhausted() and self._done.issuperset(splits):
                self._begin({})
        return names

    def available(self, split: str, position: int) -> int:
        number, inner = _parse(split)
        if self._inner[number].finished(inner, position):
            return position
        # Also after a restart, when a later source is known already: those before it come first. Splits that have ended
        # are not asked for.
        self._reading = min(self._reading, number)
        return (
            position if number > self._reading else self._inner[number].available(inner, position)
        )

    def start(self, split: str) -> int:
        number, inner = _parse(split)
        return self._inner[number].start(inner)

    def finished(self, split: str, position: int) -> bool:
        number, inner = _parse(split)
        if number > self._reading or not self._inner[number].finished(inner, position):
            self._done.discard(split)
            return False
        self._done.add(split)
        # The last split of a source ends when the next source begins: without any split this one would be idle, and
        # streams beside it would overtake what is to come.
        return len(self._inner) > number + 1 or not self._is_last(number)

    def _is_last(self, number: int) -> bool:
        """True if all splits of a source have ended, and another source follows."""
        splits = (_name(number, split) for split in self._inner[number].discover())
        return number + 1 < len(self._sources) and self._done.issuperset(splits)

    def exhausted(self) -> bool:
        return len(self._inner) == len(self._sources) and self._inner[-1].exhausted()

    def fetch(self, split: str, start: int, end: int) -> list[Any] | None:
        number, inner = _parse(split)
        return self._inner[number].fetch(inner, start, end)

    def commit(self, split: str, position: int) -> None:
        number, inner = _parse(split)
        self._inner[number].commit(inner, position)

    def waits_for_commit(self, split: str, position: int) -> bool:
        number, inner = _parse(split)
        return self._inner[number].waits_for_commit(inner, position)

    def close(self) -> None:
        for inner in self._inner:
            inner.close()


class _HybridReader(SourceReader):
    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._readers: dict[int, SourceReader] = {}

    def read(self, split: str, start: int, end: int) -> Iterable[Any]:
        number, inner = _parse(split)
        reader = self._readers.get(number)
        if reader is None:
            reader = self._sources[number].create_reader()
            reader.open()
            self._readers[number] = reader
        return reader.read(inner, start, end)

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


def _by_source(positions: dict[str, int]) -> dict[int, dict[str, int]]:
    by_source: dict[int, dict[str, int]] = {}
    for name, position in positions.items():
        number, split = _parse(name)
        by_source.setdefault(number, {})[split] = position
    return by_source


def _name(number: int, split: str) -> str:
    return f"{number}:{split}"


def _parse(name: str) -> tuple[int, str]:
    number, _, split = name.partition(":")
    return int(number), split
