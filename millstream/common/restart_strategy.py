"""Restart strategies: how often, and after what pause, a failed job is started again.

They only describe; the coordinator decides by them. Answers to Flink's `RestartStrategies`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from millstream.common import options
from millstream.common.config_options import ConfigOption
from millstream.common.configuration import Configuration
from millstream.common.time import DurationLike
from millstream.errors import InvalidArgument

__all__ = ["RestartStrategies", "RestartStrategyConfiguration", "strategy_of"]


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
        """The pause between two attempts.

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


@dataclass(frozen=True)
class ExponentialDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
    """Restarts with pauses that grow while failures go on. `attempts` None restarts for ever."""

    initial_backoff_ms: int = 1_000
    max_backoff_ms: int = 60_000
    backoff_multiplier: float = 1.5
    reset_backoff_ms: int = 3_600_000
    jitter_factor: float = 0.1
    attempts: int | None = None

    def get_description(self) -> str:
        """One line for people."""
        return (
            f"restarts with pauses from {self.initial_backoff_ms} to {self.max_backoff_ms} ms, "
            f"times {self.backoff_multiplier} each"
        )

    def to_configuration(self) -> Configuration:
        """The strategy as configuration keys."""
        configuration = (
            Configuration()
            .set_string(options.RESTART_STRATEGY.key, "exponential-delay")
            .set_string(options.RESTART_EXPONENTIAL_INITIAL.key, f"{self.initial_backoff_ms} ms")
            .set_string(options.RESTART_EXPONENTIAL_MAX.key, f"{self.max_backoff_ms} ms")
            .set_float(options.RESTART_EXPONENTIAL_MULTIPLIER.key, self.backoff_multiplier)
            .set_string(options.RESTART_EXPONENTIAL_RESET.key, f"{self.reset_backoff_ms} ms")
            .set_float(options.RESTART_EXPONENTIAL_JITTER.key, self.jitter_factor)
        )
        if self.attempts is not None:
            configuration.set_integer(options.RESTART_EXPONENTIAL_ATTEMPTS.key, self.attempts)
        return configuration


def strategy_of(configuration: Configuration) -> RestartStrategyConfiguration | None:
    """The strategy that a configuration names, None if it names none.

    >>> print(strategy_of(Configuration()))
    None
    >>> strategy_of(Configuration().set_string("restart-strategy.type", "none")).get_description()
    'no restart'
    """

    def get(option: ConfigOption[Any]) -> Any:
        return options.get(configuration, option)

    match get(options.RESTART_STRATEGY):
        case None:
            return None
        case "fixed-delay":
            return RestartStrategies.fixed_delay_restart(
                get(options.RESTART_FIXED_ATTEMPTS), get(options.RESTART_FIXED_DELAY)
            )
        case "failure-rate":
            return RestartStrategies.failure_rate_restart(
                get(options.RESTART_RATE_FAILURES),
                get(options.RESTART_RATE_INTERVAL),
                get(options.RESTART_RATE_DELAY),
            )
        case "exponential-delay":
            return RestartStrategies.exponential_delay_restart(
                get(options.RESTART_EXPONENTIAL_INITIAL),
                get(options.RESTART_EXPONENTIAL_MAX),
                get(options.RESTART_EXPONENTIAL_MULTIPLIER),
                get(options.RESTART_EXPONENTIAL_RESET),
                get(options.RESTART_EXPONENTIAL_JITTER),
                get(options.RESTART_EXPONENTIAL_ATTEMPTS),
            )
        case _:
            return NoRestartStrategyConfiguration()


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
            _checked("restart_attempts", restart_attempts, options.RESTART_FIXED_ATTEMPTS),
            _checked("delay_between_attempts", delay_between_attempts, options.RESTART_FIXED_DELAY),
        )

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: DurationLike = "1 s",
        max_backoff: DurationLike = "1 min",
        backoff_multiplier: float = 1.5,
        reset_backoff_threshold: DurationLike = "1 h",
        jitter_factor: float = 0.1,
        attempts: int | None = None,
    ) -> ExponentialDelayRestartStrategyConfiguration:
        """Restarts with growing pauses; back to the first pause after a long time without a failure.

        >>> RestartStrategies.exponential_delay_restart("10 ms", "1 s", 2.0).get_description()
        'restarts with pauses from 10 to 1000 ms, times 2.0 each'
        """
        initial = _checked("initial_backoff", initial_backoff, options.RESTART_EXPONENTIAL_INITIAL)
        longest = _checked("max_backoff", max_backoff, options.RESTART_EXPONENTIAL_MAX)
        if longest < initial:
            msg = "max_backoff must not be less than initial_backoff"
            raise InvalidArgument(msg, initial_backoff=initial, max_backoff=longest)
        return ExponentialDelayRestartStrategyConfiguration(
            initial,
            longest,
            _checked(
                "backoff_multiplier", backoff_multiplier, options.RESTART_EXPONENTIAL_MULTIPLIER
            ),
            _checked(
                "reset_backoff_threshold",
                reset_backoff_threshold,
                options.RESTART_EXPONENTIAL_RESET,
            ),
            _checked("jitter_factor", jitter_factor, options.RESTART_EXPONENTIAL_JITTER),
            None
            if attempts is None
            else _checked("attempts", attempts, options.RESTART_EXPONENTIAL_ATTEMPTS),
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
            _checked("failure_rate", failure_rate, options.RESTART_RATE_FAILURES),
            _checked("failure_interval", failure_interval, options.RESTART_RATE_INTERVAL),
            _checked("delay_interval", delay_interval, options.RESTART_RATE_DELAY),
        )


def _checked(name: str, value: Any, option: ConfigOption[Any]) -> Any:
    """A parameter that means what an option means, and so can have the same values."""
    try:
        if isinstance(value, str) and option.type_name != "duration":
            raise TypeError(value)
        return option.parse(value)
    except (TypeError, ValueError):
        msg = f"{name} must be {option.wanted}"
        raise InvalidArgument(msg, got=repr(value)[:200]) from None
