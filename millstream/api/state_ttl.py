"""`StateTtlConfig`: how long state lives after it was last touched.

Time to live is measured on the wall clock, in whole milliseconds, and counts for each element of a
list and each entry of a map by itself. It only describes; the state of the runtime goes by it.
Answers to Flink's `StateTtlConfig`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from millstream.common.time import Duration, DurationLike, Time, parse_duration
from millstream.errors import InvalidArgument

__all__ = ["StateTtlConfig"]

E = TypeVar("E", bound=Enum)


class _ByValue:
    """Equal if of the same class with the same contents."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        parts = (f"{name.lstrip('_')}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__qualname__}({', '.join(parts)})"


class StateTtlConfig(_ByValue):
    """When state expires, what prolongs its life, and who may still see it.

    >>> config = StateTtlConfig.new_builder("1 h").update_ttl_on_read_and_write().build()
    >>> config.ttl_ms, config.get_update_type().name, config.get_state_visibility().name
    (3600000, 'OnReadAndWrite', 'NeverReturnExpired')
    """

    class UpdateType(Enum):
        """What starts the time to live anew.

        >>> [kind.name for kind in StateTtlConfig.UpdateType]
        ['Disabled', 'OnCreateAndWrite', 'OnReadAndWrite']
        """

        Disabled = 0
        """Nothing does: no entry expires."""

        OnCreateAndWrite = 1
        """Every write of an entry."""

        OnReadAndWrite = 2
        """Every write and every read."""

    class StateVisibility(Enum):
        """Whether a read may give what has expired.

        >>> [kind.name for kind in StateTtlConfig.StateVisibility]
        ['ReturnExpiredIfNotCleanedUp', 'NeverReturnExpired']
        """

        ReturnExpiredIfNotCleanedUp = 0
        """Yes, as long as it has not been removed."""

        NeverReturnExpired = 1
        """No, from the moment it expires."""

    class TtlTimeCharacteristic(Enum):
        """Which clock counts; there is only one.

        >>> StateTtlConfig.TtlTimeCharacteristic.ProcessingTime.value
        0
        """

        ProcessingTime = 0
        """The wall clock."""

    def __init__(
        self,
        update_type: StateTtlConfig.UpdateType,
        state_visibility: StateTtlConfig.StateVisibility,
        ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic,
        ttl: DurationLike,
        cleanup_strategies: StateTtlConfig.CleanupStrategies,
    ) -> None:
        self._update_type = update_type
        self._state_visibility = state_visibility
        self._ttl_time_characteristic = ttl_time_characteristic
        self._ttl = _positive_time(ttl)
        self._cleanup_strategies = cleanup_strategies

    @staticmethod
    def new_builder(ttl: DurationLike) -> StateTtlConfig.Builder:
        """A builder; the time may be a `Time`, a `Duration`, a `timedelta` or a text like "10 s".

        >>> StateTtlConfig.new_builder(Time.seconds(1)).build().ttl_ms
        1000
        """
        return StateTtlConfig.Builder(ttl)

    @property
    def ttl_ms(self) -> int:
        """The time to live in milliseconds."""
        return self._ttl.to_milliseconds()

    @property
    def cleanup_size(self) -> int:
        """How many keys to look at in each step of the cleanup in the background; 0 for none.

        >>> StateTtlConfig.new_builder("1 h").build().cleanup_size
        5
        >>> StateTtlConfig.new_builder("1 h").disable_cleanup_in_background().build().cleanup_size
        0
        """
        strategy = self._cleanup_strategies.get_incremental_cleanup_strategy()
        return 0 if strategy is None else strategy.get_cleanup_size()

    def get_ttl(self) -> Time:
        """The time to live."""
        return self._ttl

    def get_update_type(self) -> StateTtlConfig.UpdateType:
        """What starts the time to live anew."""
        return self._update_type

    def get_state_visibility(self) -> StateTtlConfig.StateVisibility:
        """Whether a read may give what has expired."""
        return self._state_visibility

    def get_ttl_time_characteristic(self) -> StateTtlConfig.TtlTimeCharacteristic:
        """Which clock counts."""
        return self._ttl_time_characteristic

    def is_enabled(self) -> bool:
        """Whether anything expires at all."""
        return self._update_type is not StateTtlConfig.UpdateType.Disabled

    def get_cleanup_strategies(self) -> StateTtlConfig.CleanupStrategies:
        """How what has expired is removed."""
        return self._cleanup_strategies

    class Builder:
        """Collects the settings; every setter gives the builder itself.

        >>> builder = StateTtlConfig.Builder("1 s").return_expired_if_not_cleaned_up()
        >>> builder.build().get_state_visibility().name
        'ReturnExpiredIfNotCleanedUp'
        """

        def __init__(self, ttl: DurationLike) -> None:
            self._ttl = _positive_time(ttl)
            self._update_type = StateTtlConfig.UpdateType.OnCreateAndWrite
            self._state_visibility = StateTtlConfig.StateVisibility.NeverReturnExpired
            self._ttl_time_characteristic = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
            self._is_cleanup_in_background = True
            self._strategies: dict[
                StateTtlConfig.CleanupStrategies.Strategies,
                StateTtlConfig.CleanupStrategies.CleanupStrategy,
            ] = {}

        def set_ttl(self, ttl: DurationLike) -> StateTtlConfig.Builder:
            """Another time to live."""
            self._ttl = _positive_time(ttl)
            return self

        def set_update_type(self, update_type: StateTtlConfig.UpdateType) -> StateTtlConfig.Builder:
            """What starts the time to live anew; by default every write."""
            self._update_type = _one_of(StateTtlConfig.UpdateType, update_type)
            return self

        def update_ttl_on_create_and_write(self) -> StateTtlConfig.Builder:
            """Every write starts the time to live anew."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> StateTtlConfig.Builder:
            """Every read, too, starts the time to live anew."""
            return self.set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)

        def set_state_visibility(
            self, state_visibility: StateTtlConfig.StateVisibility
        ) -> StateTtlConfig.Builder:
            """Whether a read may give what has expired; by default it may not."""
            self._state_visibility = _one_of(StateTtlConfig.StateVisibility, state_visibility)
            return self

        def return_expired_if_not_cleaned_up(self) -> StateTtlConfig.Builder:
            """A read may give what has expired but is still there."""
            return self.set_state_visibility(
                StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp
            )

        def never_return_expired(self) -> StateTtlConfig.Builder:
            """A read never gives what has expired."""
            return self.set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: StateTtlConfig.TtlTimeCharacteristic
        ) -> StateTtlConfig.Builder:
            """Which clock counts; there is only the wall clock."""
            self._ttl_time_characteristic = _one_of(
                StateTtlConfig.TtlTimeCharacteristic, ttl_time_characteristic
            )
            return self

        def use_processing_time(self) -> StateTtlConfig.Builder:
            """The wall clock counts."""
            return self.set_ttl_time_characteristic(
                StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
            )

        def cleanup_full_snapshot(self) -> StateTtlConfig.Builder:
            """Leave out of a full snapshot what has expired."""
            known = StateTtlConfig.CleanupStrategies
            self._strategies[known.Strategies.FULL_STATE_SCAN_SNAPSHOT] = known.EMPTY_STRATEGY
            return self

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool = False
        ) -> StateTtlConfig.Builder:
            """Look at so many keys in each step and remove what has expired."""
            strategies = StateTtlConfig.CleanupStrategies
            self._strategies[strategies.Strategies.INCREMENTAL_CLEANUP] = (
                strategies.IncrementalCleanupStrategy(cleanup_size, run_cleanup_for_every_record)
            )
            return self

        def cleanup_in_rocksdb_compact_filter(
            self,
            query_time_after_num_entries: int = 1_000,
            periodic_compaction_time: Duration | None = None,
        ) -> StateTtlConfig.Builder:
            """Taken for PyFlink's sake: it is kept, and changes nothing without RocksDB."""
            strategies = StateTtlConfig.CleanupStrategies
            self._strategies[strategies.Strategies.ROCKSDB_COMPACTION_FILTER] = (
                strategies.RocksdbCompactFilterCleanupStrategy(
                    query_time_after_num_entries, periodic_compaction_time
                )
            )
            return self

        def disable_cleanup_in_background(self) -> StateTtlConfig.Builder:
            """Clean up only as asked for with `cleanup_..`; other expired state waits for a read."""
            self._is_cleanup_in_background = False
            return self

        def build(self) -> StateTtlConfig:
            """The finished settings; later changes to the builder leave them alone."""
            return StateTtlConfig(
                self._update_type,
                self._state_visibility,
                self._ttl_time_characteristic,
                self._ttl,
                StateTtlConfig.CleanupStrategies(self._strategies, self._is_cleanup_in_background),
            )

    class CleanupStrategies(_ByValue):
        """How what has expired is removed, beside the removal of what a read finds expired.

        >>> config = StateTtlConfig.new_builder("1 h").cleanup_incrementally(10, True).build()
        >>> config.get_cleanup_strategies().get_incremental_cleanup_strategy().get_cleanup_size()
        10
        """

        class Strategies(Enum):
            """The ways there are."""

            FULL_STATE_SCAN_SNAPSHOT = 0
            INCREMENTAL_CLEANUP = 1
            ROCKSDB_COMPACTION_FILTER = 2

        class CleanupStrategy(_ByValue):
            """The base of all strategies."""

        class EmptyCleanupStrategy(CleanupStrategy):
            """One with nothing to set."""

        class IncrementalCleanupStrategy(CleanupStrategy):
            """A few keys at a time."""

            def __init__(self, cleanup_size: int, run_cleanup_for_every_record: bool) -> None:
                self._cleanup_size = _positive("cleanup_size", cleanup_size)
                self._run_cleanup_for_every_record = bool(run_cleanup_for_every_record)

            def get_cleanup_size(self) -> int:
                """How many keys each step looks at."""
                return self._cleanup_size

            def run_cleanup_for_every_record(self) -> bool:
                """Whether every record makes a step, not only the use of this state."""
                return self._run_cleanup_for_every_record

        class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
            """During the compaction of RocksDB."""

            def __init__(
                self,
                query_time_after_num_entries: int,
                periodic_compaction_time: Duration | None = None,
            ) -> None:
                self._query_time_after_num_entries = query_time_after_num_entries
                self._periodic_compaction_time = periodic_compaction_time or Duration.of_days(30)

            def get_query_time_after_num_entries(self) -> int:
                """How many entries go by between two looks at the clock."""
                return self._query_time_after_num_entries

            def get_periodic_compaction_time(self) -> Duration:
                """How old a file may become before it is compacted again."""
                return self._periodic_compaction_time

        EMPTY_STRATEGY = EmptyCleanupStrategy()

        def __init__(
            self,
            strategies: Mapping[
                StateTtlConfig.CleanupStrategies.Strategies,
                StateTtlConfig.CleanupStrategies.CleanupStrategy,
            ],
            is_cleanup_in_background: bool,
        ) -> None:
            self._strategies = dict(sorted(strategies.items(), key=lambda item: item[0].value))
            self._is_cleanup_in_background = is_cleanup_in_background

        def is_cleanup_in_background(self) -> bool:
            """Whether expired state is removed without being asked for."""
            return self._is_cleanup_in_background

        def in_full_snapshot(self) -> bool:
            """Whether a full snapshot leaves out what has expired."""
            return self.Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

        def get_incremental_cleanup_strategy(
            self,
        ) -> StateTtlConfig.CleanupStrategies.IncrementalCleanupStrategy | None:
            """The one asked for; else five keys at a time if there is cleanup in the background."""
            strategy = self._strategies.get(self.Strategies.INCREMENTAL_CLEANUP)
            if isinstance(strategy, self.IncrementalCleanupStrategy):
                return strategy
            return (
                self.IncrementalCleanupStrategy(5, False)
                if self._is_cleanup_in_background
                else None
            )

        def get_rocksdb_compact_filter_cleanup_strategy(
            self,
        ) -> StateTtlConfig.CleanupStrategies.RocksdbCompactFilterCleanupStrategy | None:
            """The one asked for; else Flink's default if there is cleanup in the background."""
            strategy = self._strategies.get(self.Strategies.ROCKSDB_COMPACTION_FILTER)
            if isinstance(strategy, self.RocksdbCompactFilterCleanupStrategy):
                return strategy
            return (
                self.RocksdbCompactFilterCleanupStrategy(1_000)
                if self._is_cleanup_in_background
                else None
            )


def _positive_time(ttl: DurationLike) -> Time:
    return Time(_positive("the time to live in milliseconds", parse_duration(ttl), ttl))


def _positive(name: str, value: int, given: Any = None) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise InvalidArgument(
            f"{name} must be a whole number above 0",
            got=repr(value if given is None else given)[:200],
            hint='pass a length of time such as "10 s"' if given is not None else "pass 1 or more",
        )
    return value


def _one_of(choices: type[E], value: E) -> E:
    if not isinstance(value, choices):
        raise InvalidArgument(
            f"this is not a StateTtlConfig.{choices.__name__}",
            got=repr(value)[:200],
            hint="pass one of " + ", ".join(choice.name for choice in choices),
        )
    return value
