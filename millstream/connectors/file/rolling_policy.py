"""Names of a sink's files, and when one ends (Flink's `OutputFileConfig`, `RollingPolicy`)."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.common.time import DurationLike, parse_duration
from millstream.errors import InvalidArgument

__all__ = [
    "DefaultRollingPolicy",
    "OnCheckpointRollingPolicy",
    "OutputFileConfig",
    "RollingPolicy",
]

_PART_SIZE = 128 << 20
_ROLLOVER_MS = 15 * 60_000
_INACTIVITY_MS = 60_000


@dataclass(frozen=True)
class OutputFileConfig:
    """What file names begin and end with.

    >>> config = OutputFileConfig.builder().with_part_prefix("log").with_part_suffix(".txt").build()
    >>> config.get_part_prefix(), config.get_part_suffix()
    ('log', '.txt')
    """

    part_prefix: str = "part"
    part_suffix: str = ""

    def __post_init__(self) -> None:
        for text in (self.part_prefix, self.part_suffix):
            if not isinstance(text, str):
                raise InvalidArgument("a prefix or suffix must be a text", got=repr(text))
            if "/" in text or "\0" in text:
                raise InvalidArgument("a prefix or suffix must not contain '/'", got=repr(text))
        if not self.part_prefix or self.part_prefix.startswith((".", "_")):
            raise InvalidArgument(
                "a prefix must not be empty and not begin with '.' or '_', which hide a file",
                got=repr(self.part_prefix),
            )

    @staticmethod
    def builder() -> OutputFileConfigBuilder:
        """A builder of the configuration.

        >>> OutputFileConfig.builder().build().get_part_prefix()
        'part'
        """
        return OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """What names begin with.

        >>> OutputFileConfig().get_part_prefix()
        'part'
        """
        return self.part_prefix

    def get_part_suffix(self) -> str:
        """What names end with.

        >>> OutputFileConfig().get_part_suffix()
        ''
        """
        return self.part_suffix


class OutputFileConfigBuilder:
    """Builds an `OutputFileConfig`.

    >>> OutputFileConfigBuilder().with_part_suffix(".csv").build()
    OutputFileConfig(part_prefix='part', part_suffix='.csv')
    """

    def __init__(self) -> None:
        self._prefix = "part"
        self._suffix = ""

    def with_part_prefix(self, prefix: str) -> OutputFileConfigBuilder:
        """Begin the names of files with a prefix."""
        self._prefix = prefix
        return self

    def with_part_suffix(self, suffix: str) -> OutputFileConfigBuilder:
        """End the names of files with a suffix."""
        self._suffix = suffix
        return self

    def build(self) -> OutputFileConfig:
        """The configuration that was built."""
        return OutputFileConfig(self._prefix, self._suffix)


@dataclass(frozen=True)
class RollingPolicy:
    """When a file ends: always with its epoch; earlier if it has grown to a size.

    >>> RollingPolicy.default_rolling_policy(part_size=1024).part_size
    1024
    """

    part_size: int | None = None

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """A file ends with its epoch only.

        >>> RollingPolicy.on_checkpoint_rolling_policy().part_size is None
        True
        """
        return OnCheckpointRollingPolicy()

    @staticmethod
    def default_rolling_policy(
        part_size: int = _PART_SIZE,
        rollover_interval: DurationLike = _ROLLOVER_MS,
        inactivity_interval: DurationLike = _INACTIVITY_MS,
    ) -> DefaultRollingPolicy:
        """A file also ends when it has this many bytes.

        The intervals are checked and then left aside: no file is open for longer than an epoch.

        >>> RollingPolicy.default_rolling_policy(rollover_interval="10 min").part_size
        134217728
        """
        if not isinstance(part_size, int) or part_size < 1:
            raise InvalidArgument(
                "a part must hold 1 byte or more", got=repr(part_size), hint="a number of bytes"
            )
        for interval in (rollover_interval, inactivity_interval):
            if parse_duration(interval) <= 0:
                raise InvalidArgument("an interval must be longer than nothing", got=interval)
        return DefaultRollingPolicy(part_size)


class DefaultRollingPolicy(RollingPolicy):
    """What `RollingPolicy.default_rolling_policy` gives.

    >>> isinstance(RollingPolicy.default_rolling_policy(), DefaultRollingPolicy)
    True
    """


class OnCheckpointRollingPolicy(RollingPolicy):
    """What `RollingPolicy.on_checkpoint_rolling_policy` gives.

    >>> isinstance(RollingPolicy.on_checkpoint_rolling_policy(), OnCheckpointRollingPolicy)
    True
    """
