"""Which partitions there are and how far each can be read (Flink's `KafkaSourceEnumerator`).

The planner asks again and again. Answers come from what is known; the cluster is asked beside it, at most every 50 ms,
so that a broker that is away holds nobody up: while it is, there is nothing new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from millstream.api.source import SplitEnumerator
from millstream.connectors.kafka.cluster import Cluster, describe, missing_topic, offset_of
from millstream.connectors.kafka.offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from millstream.connectors.kafka.settings import flag, log, milliseconds
from millstream.connectors.kafka.subscription import KafkaSplit, Subscription
from millstream.errors import SourceError, SourceNotFound

__all__ = ["KafkaSplits"]

Part = KafkaTopicPartition
_EARLIEST = KafkaOffsetsInitializer.earliest()
_AGE = 0.05
_AGE_OF_FLOW = 0.005
_AWAY_AGE = 0.5
_SAY_AGAIN = 10.0
_MAYBE_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._NOENT)
# For so long a topic may be unknown while brokers tell each other.
_GONE = 10.0
_NO_ANSWER = 15.0


class KafkaSplits(SplitEnumerator):
    """The driver's half of a `KafkaSource`."""

    def __init__(
        self,
        properties: Mapping[str, str],
        subscription: Subscription,
        starting: KafkaOffsetsInitializer,
        stopping: KafkaOffsetsInitializer | None,
        *,
        bounded: bool,
        cluster: Any = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster: Cluster = cluster or Cluster(properties)
        self._subscription = subscription
        self._starting = starting
        self._stopping = stopping
        self._bounded = bounded
        self._clock = clock
        interval = milliseconds(properties, "partition.discovery.interval.ms")
        # What stops at offsets that were found out at the start has no place for partitions that come later.
        self._age = _AGE
        self._interval = interval if interval > 0 and stopping is None else None
        self._commits = "group.id" in properties and flag(
            properties, "commit.offsets.on.checkpoint"
        )
        self._group = properties.get("group.id")
        self._splits: dict[str, KafkaSplit] = {}
        # Of splits that are new since this driver began: for all its attempts, so that "latest" stays what it was.
        self._starts: dict[str, int] = {}
        self._ends: dict[Part, int] = {}
        self._asked: dict[Part, Future[Any]] = {}
        self._asked_at = -1e9
        self._next_look: float | None = -1e9
        self._first = True
        self._away_since: float | None = None
        self._said = -1e9
        self._gone: dict[Part, float] = {}
        self._behind: dict[str, float] = {}
        self._left_out: set[str] = set()

    # -- splits ---------------------------------------------------------------------------------------------

    def restored(self, positions: dict[str, int]) -> None:
        """Know the partitions again that were found before."""
        for name, position in positions.items():
            split = KafkaSplit.parse(name)
            self._splits[name] = split
            if not self._subscription.means(split.part):
                self._left_out.add(name)
                if position >= 0:
                    log.warning(
                        "%s was read up to offset %d and is not read any more: the program does not name it",
                        split.part,
                        position,
                    )
            elif position < 0 and self._stopping is None:
                log.warning(
                    "%s has ended at offset %d in the checkpoint, and is not read any more: a new uid for the source "
                    "reads it again",
                    split.part,
                    ~position,
                )
            elif (split.stop is None) != (self._stopping is None):
                log.warning(
                    "%s ends %s, as in the checkpoint, whatever the program says now",
                    split.part,
                    "nowhere" if split.stop is None else f"at offset {split.stop}",
                )
        self._first = not positions

    def discover(self) -> Sequence[str]:
        """All partitions found so far; looks for more if it is time to."""
        if self._next_look is not None and self._clock() >= self._next_look:
            self._look()
        return list(self._splits)

    def _look(self) -> None:
        first, known = self._first, {split.part for split in self._splits.values()}
        try:
            there = self._cluster.topics()
        except SourceError as error:
            if not self._splits:
                raise
            # The job has enough to go on with, or waits for it.
            self._say_away(error.what)
            self._next_look = self._clock() + min(self._interval or 1.0, 1.0)
            return
        # What was read before and is away now may come back, or is found to be gone after a while.
        names = {name for part in known for name in (part.topic, str(part))}
        missing = [name for name in self._subscription.missing(there) if name not in names]
        if missing:
            raise SourceNotFound(
                f"there is no such topic or partition: {', '.join(missing)}",
                servers=self._cluster.servers,
                hint="create it, or correct the name in set_topics(...) or set_partitions(...)",
            )
        found = self._subscription.partitions(there)
        if not found and self._interval is None and not self._splits:
            raise SourceNotFound(
                f"no topic matches the pattern {self._subscription.pattern!r}",
                servers=self._cluster.servers,
                hint="correct set_topic_pattern(...), which must match the whole name",
            )
        new = [part for part in found if part not in known]
        if new:
            # Partitions that appear later are read from their beginning, whatever the others began with.
            self._add(new, self._starting if first else _EARLIEST)
            if not first:
                log.info("new partitions: %s", ", ".join(map(str, new)))
        self._first = False
        self._next_look = None if self._interval is None else self._clock() + self._interval

    def _add(self, parts: Sequence[Part], starting: KafkaOffsetsInitializer) -> None:
        starts = self._resolve(starting, parts)
        stops = {} if self._stopping is None else self._resolve(self._stopping, parts)
        for part in parts:
            split = KafkaSplit(part, stops.get(part))
            self._splits[str(split)] = split
            self._starts[str(split)] = starts[part]

    def _resolve(self, of: KafkaOffsetsInitializer, parts: Sequence[Part]) -> dict[Part, int]:
        """Offsets, of what an initializer says."""
        match of.kind:
            case "earliest":
                return self._cluster.begins(parts)
            case "latest":
                return self._cluster.ends(parts)
            case "timestamp":
                return self._cluster.at_time(parts, of.time)
            case "offsets":
                found = {part: of.given[part] for part in parts if part in of.given}
            case _:
                committed = self._cluster.committed(parts)
                found = {part: at for part, at in committed.items() if at is not None}
        missing = [part for part in parts if part not in found]
        if not missing:
            return found
        if of.reset is KafkaOffsetResetStrategy.EARLIEST:
            return found | self._cluster.begins(missing)
        if of.reset is KafkaOffsetResetStrategy.LATEST:
            return found | self._cluster.ends(missing)
        whose = (
            f"the group '{self._group}' has committed"
            if of.kind == "committed_offsets"
            else "there is"
        )
        raise SourceError(
            f"{whose} no offset for {', '.join(map(str, missing[:5]))}",
            servers=self._cluster.servers,
            hint="say what is to stand in for it: KafkaOffsetResetStrategy.EARLIEST or LATEST",
        )

    def start(self, split: str) -> int:
        """Where a new partition begins."""
        return self._starts[split]

    # -- how far --------------------------------------------------------------------------------------------

    def available(self, split: str, position: int) -> int:
        """The partition's end as it was a moment ago."""
        known = self._splits[split]
        if split in self._left_out:
            return position
        self._refresh()
        end = self._ends.get(known.part, position)
        if known.stop is not None:
            end = min(known.stop, end)
        if end >= position:
            self._behind.pop(split, None)
            return end
        given = (self._starts.get(split), self._starting.given.get(known.part))
        if position in given or known.stop is not None:
            # Offsets that were given may lie ahead of what there is.
            return position
        # A broker that has just been started may not know yet how far it was.
        since = self._behind.setdefault(split, self._clock())
        return end if self._clock() - since > _GONE else position

    def finished(self, split: str, position: int) -> bool:
        """True where reading was to stop."""
        if split in self._left_out:
            return True
        stop = self._splits[split].stop
        return stop is not None and position >= stop

    def flows(self) -> None:
        """Ask more often."""
        self._age = _AGE_OF_FLOW

    def exhausted(self) -> bool:
        """True unless more partitions may appear."""
        return self._interval is None and not self._first

    def _refresh(self) -> None:
        if self._asked and all(future.done() for future in self._asked.values()):
            self._take(self._asked)
            self._asked = {}
        if self._clock() - self._asked_at > _NO_ANSWER:
            # The client that was asked may be gone by now, with its answers.
            self._asked = {}
        live = [s.part for name, s in self._splits.items() if name not in self._left_out]
        age = self._age if self._away_since is None else _AWAY_AGE
        if not self._asked and self._clock() - self._asked_at >= age:
            self._asked_at = self._clock()
            self._asked = self._cluster.ask_ends(live)
        if not all(part in self._ends for part in live):
            # Nothing is known of these: the first time it is waited for.
            self._ends |= self._cluster.ends([part for part in live if part not in self._ends])

    def _take(self, asked: Mapping[Part, Future[Any]]) -> None:
        away = None
        for part, future in asked.items():
            try:
                self._ends[part] = offset_of(future)
                self._gone.pop(part, None)
            except KafkaException as error:
                found: KafkaError = error.args[0]
                if found.code() in _MAYBE_GONE and self._cluster.lacks(part):
                    self._is_gone(part)
                away = found
        if away is None:
            if self._away_since is not None:
                log.warning("the cluster is back")
            self._away_since = None
            return
        self._cluster.listen()
        self._cluster.renew(away)
        if self._cluster.troubles.final is not None:
            self._cluster.fail("the offsets of the topics cannot be read", away)
        self._say_away(describe(away) or "")

    def _is_gone(self, part: Part) -> None:
        since = self._gone.setdefault(part, self._clock())
        if self._clock() - since > _GONE:
            raise missing_topic(part, self._cluster.servers)

    def _say_away(self, why: str) -> None:
        now = self._clock()
        self._away_since = self._away_since or now
        if now - self._said > _SAY_AGAIN:
            self._said = now
            log.warning(
                "the cluster at %s does not answer (%s): nothing new is read until it does",
                self._cluster.servers,
                why,
            )

    # -- the group ------------------------------------------------------------------------------------------

    def commit(self, split: str, position: int) -> None:
        """As `commit_all`, for one split."""
        self.commit_all({split: position})

    def commit_all(self, positions: dict[str, int]) -> None:
        """Tell the group how far the job is, for those who watch it. The job's own truth are its checkpoints."""
        if self._commits and positions:
            self._cluster.commit(_by_part(self._splits, positions))

    def close(self) -> None:
        """Let go of the connections."""
        self._cluster.close()


def _by_part(splits: Mapping[str, KafkaSplit], positions: Mapping[str, int]) -> dict[Part, int]:
    found: Iterable[tuple[str, int]] = positions.items()
    return {splits[name].part: ~at if at < 0 else at for name, at in found if name in splits}
