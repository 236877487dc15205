"""`CheckpointConfig`: a view of the `execution.checkpointing.*` options of a configuration."""

from __future__ import annotations

from typing import Any

from millstream.common import options
from millstream.common.configuration import Configuration
from millstream.common.time import parse_duration
from millstream.datastream.checkpointing_mode import CheckpointingMode
from millstream.datastream.externalized_checkpoint_retention import (
    ExternalizedCheckpointRetention,
)
from millstream.errors import InvalidArgument

__all__ = ["CheckpointConfig"]


class CheckpointConfig:
    """Reads and writes the environment's configuration; keeps nothing itself.

    >>> config = CheckpointConfig(Configuration())
    >>> config.is_checkpointing_enabled()
    False
    >>> config.set_checkpoint_interval("10 s").get_checkpoint_interval()
    10000
    """

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def is_checkpointing_enabled(self) -> bool:
        """True if an interval is set."""
        return self.get_checkpoint_interval() > 0

    def get_checkpoint_interval(self) -> int:
        """Milliseconds between checkpoints, -1 if there are none."""
        value: int | None = options.get(self._configuration, options.CHECKPOINTING_INTERVAL)
        return -1 if value is None else value

    def set_checkpoint_interval(self, checkpoint_interval: Any) -> CheckpointConfig:
        """The time between checkpoints, which is also the length of an epoch."""
        interval = parse_duration(checkpoint_interval)
        if interval <= 0:
            raise InvalidArgument("a checkpoint interval must be positive", got=checkpoint_interval)
        return self._set(options.CHECKPOINTING_INTERVAL.key, f"{interval} ms")

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The guarantee."""
        return CheckpointingMode(options.get(self._configuration, options.CHECKPOINTING_MODE))

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Choose the guarantee."""
        return self._set(options.CHECKPOINTING_MODE.key, checkpointing_mode.value)

    def get_checkpoint_timeout(self) -> int:
        """Milliseconds after which a checkpoint counts as failed."""
        return int(options.get(self._configuration, options.CHECKPOINTING_TIMEOUT))

    def set_checkpoint_timeout(self, checkpoint_timeout: Any) -> CheckpointConfig:
        """Set that time."""
        return self._set(
            options.CHECKPOINTING_TIMEOUT.key, f"{parse_duration(checkpoint_timeout)} ms"
        )

    def get_min_pause_between_checkpoints(self) -> int:
        """Milliseconds between the end of a checkpoint and the start of the next."""
        return int(options.get(self._configuration, options.CHECKPOINTING_MIN_PAUSE))

    def set_min_pause_between_checkpoints(self, min_pause: Any) -> CheckpointConfig:
        """Set that pause."""
        return self._set(options.CHECKPOINTING_MIN_PAUSE.key, f"{parse_duration(min_pause)} ms")

    def get_max_concurrent_checkpoints(self) -> int:
        """Always 1 here: an epoch begins when the last one is complete."""
        return int(options.get(self._configuration, options.CHECKPOINTING_MAX_CONCURRENT))

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Accepted for compatibility; more than one has no effect."""
        return self._set(options.CHECKPOINTING_MAX_CONCURRENT.key, str(max_concurrent_checkpoints))

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """How many failed checkpoints in a row do not fail the job."""
        return int(options.get(self._configuration, options.CHECKPOINTING_TOLERABLE_FAILURES))

    def set_tolerable_checkpoint_failure_number(self, number: int) -> CheckpointConfig:
        """Set that number."""
        return self._set(options.CHECKPOINTING_TOLERABLE_FAILURES.key, str(number))

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """What becomes of the checkpoints when the job is cancelled."""
        return ExternalizedCheckpointRetention(
            options.get(self._configuration, options.CHECKPOINTING_RETENTION)
        )

    def set_externalized_checkpoint_retention(
        self, retention: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Choose it."""
        return self._set(options.CHECKPOINTING_RETENTION.key, retention.value)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Stored only: an epoch's border is aligned by construction."""
        return bool(options.get(self._configuration, options.CHECKPOINTING_UNALIGNED))

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Accepted for compatibility; has no effect."""
        return self._set(options.CHECKPOINTING_UNALIGNED.key, str(enabled).lower())

    def _set(self, key: str, value: str) -> CheckpointConfig:
        self._configuration.set_string(key, value)
        return self
