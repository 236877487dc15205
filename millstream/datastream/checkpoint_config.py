"""`CheckpointConfig`: a view of the `execution.checkpointing.*` options of a configuration."""

from __future__ import annotations

from typing import Any

from millstream.common import options
from millstream.common.compat import no_effect
from millstream.common.config_options import ConfigOption
from millstream.common.configuration import Configuration
from millstream.common.guesses import Guesses
from millstream.common.time import Duration, parse_duration
from millstream.datastream.checkpointing_mode import CheckpointingMode
from millstream.datastream.externalized_checkpoint_retention import (
    ExternalizedCheckpointRetention,
)

__all__ = ["CheckpointConfig"]

_ALIGNED = "an epoch's border is aligned by construction"


class CheckpointConfig(Guesses):
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
        return self._set(options.CHECKPOINTING_INTERVAL, f"{interval} ms")

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The guarantee that checkpoints give."""
        return CheckpointingMode(options.get(self._configuration, options.CHECKPOINTING_MODE))

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """Choose the guarantee."""
        return self._set(options.CHECKPOINTING_MODE, checkpointing_mode.value)

    def get_checkpoint_timeout(self) -> int:
        """Milliseconds after which a checkpoint counts as failed."""
        return int(options.get(self._configuration, options.CHECKPOINTING_TIMEOUT))

    def set_checkpoint_timeout(self, checkpoint_timeout: Any) -> CheckpointConfig:
        """Set the time after which a checkpoint is given up."""
        return self._set(options.CHECKPOINTING_TIMEOUT, f"{parse_duration(checkpoint_timeout)} ms")

    def get_min_pause_between_checkpoints(self) -> int:
        """Milliseconds between the end of a checkpoint and the start of the next."""
        return int(options.get(self._configuration, options.CHECKPOINTING_MIN_PAUSE))

    def set_min_pause_between_checkpoints(
        self, min_pause_between_checkpoints: Any
    ) -> CheckpointConfig:
        """Set the shortest pause between two checkpoints."""
        pause = parse_duration(min_pause_between_checkpoints)
        return self._set(options.CHECKPOINTING_MIN_PAUSE, f"{pause} ms")

    def get_max_concurrent_checkpoints(self) -> int:
        """Always 1 here: an epoch begins when the last one is complete."""
        return int(options.get(self._configuration, options.CHECKPOINTING_MAX_CONCURRENT))

    @no_effect("an epoch begins when the last one is complete")
    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """Accepted for compatibility; more than one has no effect."""
        return self._set(options.CHECKPOINTING_MAX_CONCURRENT, str(max_concurrent_checkpoints))

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """How many failed checkpoints in a row do not fail the job."""
        return int(options.get(self._configuration, options.CHECKPOINTING_TOLERABLE_FAILURES))

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        """Set how many failed checkpoints in a row are tolerated."""
        return self._set(
            options.CHECKPOINTING_TOLERABLE_FAILURES, str(tolerable_checkpoint_failure_number)
        )

    def is_fail_on_checkpointing_errors(self) -> bool:
        """True unless some failures are tolerated."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(
        self, fail_on_checkpointing_errors: bool
    ) -> CheckpointConfig:
        """Tolerate no failure, or all."""
        most = 0 if fail_on_checkpointing_errors else 2**31 - 1
        return self.set_tolerable_checkpoint_failure_number(most)

    def is_externalized_checkpoints_enabled(self) -> bool:
        """True if checkpoints outlive a cancelled job."""
        none = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return self.get_externalized_checkpoint_retention() is not none

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """What becomes of the checkpoints when the job is cancelled."""
        return ExternalizedCheckpointRetention(
            options.get(self._configuration, options.CHECKPOINTING_RETENTION)
        )

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Choose what becomes of checkpoints when the job is cancelled."""
        return self._set(options.CHECKPOINTING_RETENTION, retention_mode.value)

    @no_effect(_ALIGNED)
    def is_unaligned_checkpoints_enabled(self) -> bool:
        """What was set, and as in Flink only under exactly-once. An epoch's border is aligned by construction."""
        if self.get_checkpointing_mode() is not CheckpointingMode.EXACTLY_ONCE:
            return False
        return bool(options.get(self._configuration, options.CHECKPOINTING_UNALIGNED))

    @no_effect(_ALIGNED)
    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Accepted for compatibility; has no effect."""
        return self._set(options.CHECKPOINTING_UNALIGNED, str(enabled).lower())

    @no_effect(_ALIGNED)
    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        """Accepted for compatibility; has no effect."""
        return self.enable_unaligned_checkpoints(False)

    @no_effect(_ALIGNED)
    def set_aligned_checkpoint_timeout(self, alignment_timeout: Any) -> CheckpointConfig:
        """Accepted for compatibility; has no effect."""
        return self._set(
            options.CHECKPOINTING_ALIGNED_TIMEOUT, f"{parse_duration(alignment_timeout)} ms"
        )

    @no_effect(_ALIGNED)
    def get_aligned_checkpoint_timeout(self) -> Duration:
        """How long an aligned checkpoint may take before it would become an unaligned one."""
        timeout = int(options.get(self._configuration, options.CHECKPOINTING_ALIGNED_TIMEOUT))
        return Duration.of_millis(timeout)

    @no_effect(_ALIGNED)
    def set_alignment_timeout(self, alignment_timeout: Any) -> CheckpointConfig:
        """The older name of `set_aligned_checkpoint_timeout`."""
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    @no_effect(_ALIGNED)
    def get_alignment_timeout(self) -> Duration:
        """The older name of `get_aligned_checkpoint_timeout`."""
        return self.get_aligned_checkpoint_timeout()

    @no_effect(_ALIGNED)
    def set_force_unaligned_checkpoints(
        self, force_unaligned_checkpoints: bool = True
    ) -> CheckpointConfig:
        """Accepted for compatibility; has no effect."""
        key = options.CHECKPOINTING_UNALIGNED_FORCED.key
        self._configuration.set_boolean(key, force_unaligned_checkpoints)
        return self

    @no_effect(_ALIGNED)
    def is_force_unaligned_checkpoints(self) -> bool:
        """Whether unaligned checkpoints were forced."""
        return bool(options.get(self._configuration, options.CHECKPOINTING_UNALIGNED_FORCED))

    def _set(self, option: ConfigOption[Any], value: str) -> CheckpointConfig:
        options.put(self._configuration, option, value)
        return self
