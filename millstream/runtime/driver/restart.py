"""Whether, and after what pause, a failed job is started again (Flink's `RestartBackoffTimeStrategy`)."""

from __future__ import annotations

import random
import re
import time
from collections import deque
from collections.abc import Callable

from millstream.common.restart_strategy import (
    ExponentialDelayRestartStrategyConfiguration,
    FailureRateRestartStrategyConfiguration,
    FallbackRestartStrategyConfiguration,
    FixedDelayRestartStrategyConfiguration,
    RestartStrategyConfiguration,
)
from millstream.errors import (
    CheckpointFailed,
    ConfigurationError,
    ExecutorUnusable,
    JobError,
    JobLocked,
    KeySelectorError,
    MillstreamError,
    ProgramError,
    RecordNotSerializable,
    RuntimeUnusable,
    SinkError,
    SourceError,
    StateDamaged,
    StateMismatch,
    StateNotFound,
    StateNotSigned,
    StateNotTrusted,
    TypeMismatchError,
    UserFunctionError,
)

__all__ = ["Restarts"]

# Another try cannot help.
_FINAL = (
    *(ProgramError, ConfigurationError, JobLocked, RuntimeUnusable),
    *(StateDamaged, StateMismatch, StateNotFound, StateNotSigned, StateNotTrusted),
)
# Another try may help, but three failures at the same place are a bug.
_USERS = (UserFunctionError, KeySelectorError, TypeMismatchError, RecordNotSerializable)
_SAME = 3
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def _is_deterministic(error: Exception) -> bool:
    """True for the program's own failures, and for those that name the record they failed on."""
    if isinstance(error, _USERS) or type(error) is JobError:
        return True
    return isinstance(error, SinkError | SourceError) and "record" in error.evidence


def _kind(error: Exception) -> tuple[str, ...]:
    """What makes two failures the same. Not their text: a live source gives it other positions every time, and objects
    are shown with other addresses."""
    if not isinstance(error, MillstreamError):
        return type(error).__name__, _ADDRESS.sub("", str(error))
    facts = [str(error.evidence.get(name, "")) for name in ("operator", "line", "record")]
    if not any(facts):
        facts = [error.what]
    return error.code, *(_ADDRESS.sub("", fact) for fact in facts)


class Restarts:
    """Decides after each failure. Without a strategy of the user's, a job with checkpoints is restarted with growing
    pauses, and given up when its own code fails three times in the same epoch; a job without is not restarted."""

    def __init__(
        self,
        strategy: RestartStrategyConfiguration | None,
        *,
        checkpointing: bool,
        tolerable: int = 0,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._tolerable = tolerable
        self._failed_checkpoints = 0
        self._failed_after: int | None = None
        self._clock = clock
        self._jitter = jitter
        if strategy is None or isinstance(strategy, FallbackRestartStrategyConfiguration):
            self._strategy: RestartStrategyConfiguration | None = (
                ExponentialDelayRestartStrategyConfiguration() if checkpointing else None
            )
            self._chosen = False
        else:
            self._strategy = strategy
            self._chosen = True
        self._failures: deque[float] = deque()
        self._delay = 0.0
        self._last_failure: float | None = None
        self._same = 0
        self._seen: tuple[int, tuple[str, ...]] | None = None
        self.count = 0

    def pause(self, error: BaseException, epoch: int) -> float | None:
        """Seconds until the next start; None if there is none."""
        # A host that comes to a running job and does not fit costs a restart, not the job.
        late = isinstance(error, ExecutorUnusable) and epoch >= 0
        if (isinstance(error, _FINAL) and not late) or not isinstance(error, Exception):
            return None
        if isinstance(error, CheckpointFailed) and self._tolerates(epoch):
            return 0.0
        if not self._chosen and _is_deterministic(error):
            failure = (epoch, _kind(error))
            self._same = self._same + 1 if failure == self._seen else 1
            self._seen = failure
            if self._same >= _SAME:
                return None
        delay = self._next()
        if delay is not None:
            self.count += 1
        return delay

    def _tolerates(self, epoch: int) -> bool:
        """True for so many checkpoints in a row that fail; `epoch` is the last one that did not."""
        if epoch != self._failed_after:
            self._failed_after, self._failed_checkpoints = epoch, 0
        self._failed_checkpoints += 1
        return self._failed_checkpoints <= self._tolerable

    def _next(self) -> float | None:
        match self._strategy:
            case FixedDelayRestartStrategyConfiguration(restart_attempts=attempts, delay_ms=delay):
                return delay / 1000 if self.count < attempts else None
            case FailureRateRestartStrategyConfiguration(
                max_failure_rate=rate, interval_ms=interval, delay_ms=delay
            ):
                now = self._clock()
                self._failures.append(now)
                while self._failures[0] < now - interval / 1000:
                    self._failures.popleft()
                return delay / 1000 if len(self._failures) <= rate else None
            case ExponentialDelayRestartStrategyConfiguration() as config:
                return self._exponential(config)
        return None

    def _exponential(self, config: ExponentialDelayRestartStrategyConfiguration) -> float | None:
        now = self._clock()
        quiet = self._last_failure is not None and (
            now - self._last_failure >= config.reset_backoff_ms / 1000 + self._delay
        )
        if self._last_failure is None or quiet:
            self._delay = config.initial_backoff_ms / 1000
            self._failures.clear()
        else:
            self._delay = min(self._delay * config.backoff_multiplier, config.max_backoff_ms / 1000)
        self._last_failure = now
        self._failures.append(now)
        if config.attempts is not None and len(self._failures) > config.attempts:
            return None
        spread = config.jitter_factor * self._delay
        return self._delay + (self._jitter() * 2 - 1) * spread
