"""Restart strategies: how often, and after what pause, a failed job is started again.

They only describe; the coordinator decides by them. Answers to Flink's `RestartStrategies`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from millstream.common import options
from millstream.common.configuration import Configuration
from millstream.common.time import DurationLike, parse_duration
from millstream.errors import InvalidArgument

__all__ = ["RestartStrategies", "RestartStrategyConfiguration"]


class RestartStrategyConfiguration:
    """The base of all strategies."""

    def get_description(self) -> str:
        """One line for people.

        >>> RestartStrategies.no_restart().get_description()
        'no restart'
        """
        return ""

    def to_configuration(self) -> Configuration:
        """The strategy as configuration keys.

        >>> print(RestartStrategies.no_restart().to_configuration())
        {restart-strategy.type=none}
        """
        return Configuration()


@dataclass(frozen=True)
class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
    """A failure is the end."""

    def get_description(self) -> str:
        """One line for people."""
        return "no restart"

    def to_configuration(self) -> Configuration:
        """The strategy as configuration keys."""
        return Configuration().set_string(options.RESTART_STRATEGY.key, "none")


@dataclass(frozen=True)
class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
    """Whatever the configuration says."""

    def get_description(self) -> str:
        """One line for people."""
        return "the restart strategy of the configuration"


@dataclass(frozen=True)
class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
    """A fixed number of restarts with a pause before each."""

    restart_attempts: int
    delay_ms: int

    def get_restart_attempts(self) -> int:
        """How many restarts there are.

        >>> RestartStrategies.fixed_delay_restart(3, "1 s").get_restart_attempts()
        3
        """
        return self.restart_attempts

    def get_delay_between_attempts_interval(self) -> timedelta:
        """The pause.

        >>> RestartStrategies.fixed_delay_restart(3, 500).get_delay_between_attempts_interval()
        datetime.timedelta(microseconds=500000)
        """
        return timedelta(milliseconds=self.delay_ms)

    def get_description(self) -> str:
        """One line for people."""
        return f"at most {self.restart_attempts} restarts, {self.delay_ms} ms apart"

    def to_configuration(self) -> Configuration:
        """The strategy as configuration keys."""
        return (
            Configuration()
            .set_string(options.RESTART_STRATEGY.key, "fixed-delay")
            .set_integer(options.RESTART_FIXED_ATTEMPTS.key, self.restart_attempts)
            .set_string(options.RESTART_FIXED_DELAY.key, f"{self.delay_ms} ms")
        )


@dataclass(frozen=True)
class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
    """Restarts until there are too many failures within some time."""

    max_failure_rate: int
    interval_ms: int
    delay_ms: int

    def get_max_failure_rate(self) -> int:
        """How many failures within the interval are borne.

        >>> RestartStrategies.failure_rate_restart(3, "1 min", "1 s").get_max_failure_rate()
        3
        """
        return self.max_failure_rate

    def get_failure_interval(self) -> timedelta:
        """The interval in which failures are counted.

        >>> RestartStrategies.failure_rate_restart(3, "1 min", "1 s").get_failure_interval()
        datetime.timedelta(seconds=60)
        """
        return timedelta(milliseconds=self.interval_ms)

    def get_delay_between_attempts_interval(self) -> timedelta:
        """The pause before a restart."""
        return timedelta(milliseconds=self.delay_ms)

    def get_description(self) -> str:
        """One line for people."""
        return (
            f"restarts {self.delay_ms} ms apart, "
            f"until {self.max_failure_rate} failures within {self.interval_ms} ms are exceeded"
        )

    def to_configuration(self) -> Configuration:
        """The strategy as configuration keys."""
        return (
            Configuration()
            .set_string(options.RESTART_STRATEGY.key, "failure-rate")
            .set_integer(options.RESTART_RATE_FAILURES.key, self.max_failure_rate)
            .set_string(options.RESTART_RATE_INTERVAL.key, f"{self.interval_ms} ms")
            .set_string(options.RESTART_RATE_DELAY.key, f"{self.delay_ms} ms")
        )


class RestartStrategies:
    """The strategies to choose from.

    >>> RestartStrategies.fixed_delay_restart(3, timedelta(seconds=1)).get_description()
    'at most 3 restarts, 1000 ms apart'
    """

    NoRestartStrategyConfiguration: TypeAlias = NoRestartStrategyConfiguration
    FallbackRestartStrategyConfiguration: TypeAlias = FallbackRestartStrategyConfiguration
    FixedDelayRestartStrategyConfiguration: TypeAlias = FixedDelayRestartStrategyConfiguration
    FailureRateRestartStrategyConfiguration: TypeAlias = FailureRateRestartStrategyConfiguration

    @staticmethod
    def no_restart() -> NoRestartStrategyConfiguration:
        """A failure is the end.

        >>> RestartStrategies.no_restart() == RestartStrategies.no_restart()
        True
        """
        return NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> FallbackRestartStrategyConfiguration:
        """Whatever the configuration says.

        >>> RestartStrategies.fall_back_restart().get_description()
        'the restart strategy of the configuration'
        """
        return FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: DurationLike
    ) -> FixedDelayRestartStrategyConfiguration:
        """So many restarts, with this pause before each.

        >>> print(RestartStrategies.fixed_delay_restart(2, "1 s").to_configuration().to_dict())
        {'restart-strategy.type': 'fixed-delay',
         'restart-strategy.fixed-delay.attempts': '2',
         'restart-strategy.fixed-delay.delay': '1000 ms'}
        """
        return FixedDelayRestartStrategyConfiguration(
            _not_negative("restart_attempts", restart_attempts),
            _not_negative("delay_between_attempts", parse_duration(delay_between_attempts)),
        )

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: DurationLike, delay_interval: DurationLike
    ) -> FailureRateRestartStrategyConfiguration:
        """Restarts until there are more than `failure_rate` failures within `failure_interval`.

        >>> RestartStrategies.failure_rate_restart(3, "1 min", "1 s").get_description()
        'restarts 1000 ms apart, until 3 failures within 60000 ms are exceeded'
        """
        return FailureRateRestartStrategyConfiguration(
            _not_negative("failure_rate", failure_rate),
            _not_negative("failure_interval", parse_duration(failure_interval)),
            _not_negative("delay_interval", parse_duration(delay_interval)),
        )


def _not_negative(name: str, value: int) -> int:
    if value < 0:
        raise InvalidArgument(f"{name} must not be negative", got=value)
    return value
