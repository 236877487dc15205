"""`ExecutionConfig`: parallelism, watermark interval and job parameters of a program.

A view of a `Configuration`: what is set here is set there, so that a program, a file and the
command line cannot contradict each other. Answers to Flink's `ExecutionConfig`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from millstream.common import options
from millstream.common.compat import no_effect
from millstream.common.configuration import Configuration, to_text
from millstream.common.guesses import Guesses
from millstream.common.time import DurationLike, parse_duration
from millstream.errors import ConfigurationError, InvalidArgument

__all__ = ["ExecutionConfig", "checked_max_parallelism", "checked_parallelism"]

# Why a setting is only kept.
_CANCELLED_BY_SPARK = "Spark ends the tasks of a cancelled job"
_CLOSURES = "Python closures need no cleaning"
_COMPRESSED = "state files have one format"


class ExecutionConfig(Guesses):
    """Settings of one program.

    >>> config = ExecutionConfig().set_parallelism(4).set_auto_watermark_interval(50)
    >>> config.get_parallelism(), config.get_auto_watermark_interval()
    (4, 50)
    """

    PARALLELISM_DEFAULT = -1
    """Use the default of the environment."""

    PARALLELISM_UNKNOWN = -2
    """Leave the parallelism as it is."""

    def __init__(self, configuration: Configuration | None = None) -> None:
        self._configuration = Configuration() if configuration is None else configuration

    def get_parallelism(self) -> int:
        """How many subtasks an operator has; `PARALLELISM_DEFAULT` if nothing was set.

        >>> ExecutionConfig().get_parallelism()
        -1
        """
        if not self._configuration.contains_key(options.PARALLELISM.key):
            return self.PARALLELISM_DEFAULT
        return options.get(self._configuration, options.PARALLELISM)

    def set_parallelism(self, parallelism: int) -> ExecutionConfig:
        """Set how many subtasks an operator has.

        >>> ExecutionConfig().set_parallelism(2).get_parallelism()
        2
        """
        if parallelism == self.PARALLELISM_UNKNOWN:
            return self
        if parallelism == self.PARALLELISM_DEFAULT:
            self._configuration.remove_config(options.PARALLELISM.key)
            return self
        checked_parallelism(parallelism, "ExecutionConfig.PARALLELISM_DEFAULT is the default")
        self._configuration.set_integer(options.PARALLELISM.key, parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """How many key groups there are; -1 if nothing was set.

        >>> ExecutionConfig().get_max_parallelism()
        -1
        """
        return options.get(self._configuration, options.MAX_PARALLELISM)

    def set_max_parallelism(self, max_parallelism: int) -> ExecutionConfig:
        """Set how many key groups there are.

        >>> ExecutionConfig().set_max_parallelism(128).get_max_parallelism()
        128
        """
        checked_max_parallelism(max_parallelism)
        self._configuration.set_integer(options.MAX_PARALLELISM.key, max_parallelism)
        return self

    def get_auto_watermark_interval(self) -> int:
        """How often periodic watermark generators are asked, in milliseconds.

        >>> ExecutionConfig().get_auto_watermark_interval()
        200
        """
        return options.get(self._configuration, options.AUTO_WATERMARK_INTERVAL)

    def set_auto_watermark_interval(self, interval: DurationLike) -> ExecutionConfig:
        """Set how often periodic watermark generators are asked; 0 means never.

        >>> ExecutionConfig().set_auto_watermark_interval("1 s").get_auto_watermark_interval()
        1000
        """
        return self._set_duration(options.AUTO_WATERMARK_INTERVAL.key, interval)

    def get_latency_tracking_interval(self) -> int:
        """How often latency is measured, in milliseconds.

        Markers cost next to nothing here, so that they are made where Flink makes none unless told.

        >>> ExecutionConfig().get_latency_tracking_interval()
        1000
        """
        return options.get(self._configuration, options.LATENCY_INTERVAL)

    def set_latency_tracking_interval(self, interval: DurationLike) -> ExecutionConfig:
        """Set how often latency is measured; 0 means never."""
        return self._set_duration(options.LATENCY_INTERVAL.key, interval)

    @no_effect(_CANCELLED_BY_SPARK)
    def get_task_cancellation_interval(self) -> int:
        """How long to wait before a task is told again to end, in milliseconds.

        >>> ExecutionConfig().get_task_cancellation_interval()
        30000
        """
        return options.get(self._configuration, options.TASK_CANCELLATION_INTERVAL)

    @no_effect(_CANCELLED_BY_SPARK)
    def set_task_cancellation_interval(self, interval: DurationLike) -> ExecutionConfig:
        """Set how long to wait before a task is told again to end."""
        return self._set_duration(options.TASK_CANCELLATION_INTERVAL.key, interval)

    @no_effect(_CANCELLED_BY_SPARK)
    def get_task_cancellation_timeout(self) -> int:
        """How long a task may take to end, in milliseconds.

        >>> ExecutionConfig().get_task_cancellation_timeout()
        180000
        """
        return options.get(self._configuration, options.TASK_CANCELLATION_TIMEOUT)

    @no_effect(_CANCELLED_BY_SPARK)
    def set_task_cancellation_timeout(self, timeout: DurationLike) -> ExecutionConfig:
        """Set how long a task may take to end; 0 waits for ever."""
        return self._set_duration(options.TASK_CANCELLATION_TIMEOUT.key, timeout)

    def get_global_job_parameters(self) -> dict[str, str]:
        """The parameters that every function can read.

        >>> ExecutionConfig().set_global_job_parameters({"limit": 5}).get_global_job_parameters()
        {'limit': '5'}
        """
        text = options.get(self._configuration, options.GLOBAL_JOB_PARAMETERS)
        return _parse_map(text) if text else {}

    def set_global_job_parameters(
        self, global_job_parameters_dict: Mapping[str, Any]
    ) -> ExecutionConfig:
        """Set the parameters that every function can read; values become text."""
        text = ",".join(
            f"{_quote(key)}:{_quote(to_text(value))}"
            for key, value in global_job_parameters_dict.items()
        )
        self._configuration.set_string(options.GLOBAL_JOB_PARAMETERS.key, text)
        return self

    @no_effect(_CLOSURES)
    def enable_closure_cleaner(self) -> ExecutionConfig:
        """Accepted; Python closures need no cleaning."""
        self._configuration.set_string(options.CLOSURE_CLEANER.key, "RECURSIVE")
        return self

    @no_effect(_CLOSURES)
    def disable_closure_cleaner(self) -> ExecutionConfig:
        """Accepted; Python closures need no cleaning."""
        self._configuration.set_string(options.CLOSURE_CLEANER.key, "NONE")
        return self

    @no_effect(_CLOSURES)
    def is_closure_cleaner_enabled(self) -> bool:
        """Whether the closure cleaner was left on.

        >>> ExecutionConfig().is_closure_cleaner_enabled()
        True
        """
        return options.get(self._configuration, options.CLOSURE_CLEANER) != "NONE"

    def enable_auto_generated_uids(self) -> ExecutionConfig:
        """Give operators a uid that have none."""
        return self._set_boolean(options.AUTO_GENERATE_UIDS.key, True)

    def disable_auto_generated_uids(self) -> ExecutionConfig:
        """Refuse a program in which an operator has no uid."""
        return self._set_boolean(options.AUTO_GENERATE_UIDS.key, False)

    def has_auto_generated_uids_enabled(self) -> bool:
        """Whether operators without a uid get one.

        >>> ExecutionConfig().disable_auto_generated_uids().has_auto_generated_uids_enabled()
        False
        """
        return options.get(self._configuration, options.AUTO_GENERATE_UIDS)

    def enable_object_reuse(self) -> ExecutionConfig:
        """Hand records on without a copy, also those that can be changed.

        Without it a record is what it was when it was emitted: lists, Rows, dictionaries and objects that a function
        may have kept, or that several operators of a chain take, are copied. Programs whose functions change nothing
        that they have taken or emitted can save that.

        >>> ExecutionConfig().enable_object_reuse().is_object_reuse_enabled()
        True
        """
        return self._set_boolean(options.OBJECT_REUSE.key, True)

    def disable_object_reuse(self) -> ExecutionConfig:
        """Copy records that can be changed where somebody else might change them; the default.

        >>> ExecutionConfig().disable_object_reuse().is_object_reuse_enabled()
        False
        """
        return self._set_boolean(options.OBJECT_REUSE.key, False)

    def is_object_reuse_enabled(self) -> bool:
        """Whether object reuse was switched on.

        >>> ExecutionConfig().is_object_reuse_enabled()
        False
        """
        return options.get(self._configuration, options.OBJECT_REUSE)

    @no_effect(_COMPRESSED)
    def is_use_snapshot_compression(self) -> bool:
        """Whether snapshots of keyed state are compressed.

        >>> ExecutionConfig().set_use_snapshot_compression(True).is_use_snapshot_compression()
        True
        """
        return options.get(self._configuration, options.SNAPSHOT_COMPRESSION)

    @no_effect(_COMPRESSED)
    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> ExecutionConfig:
        """Set whether snapshots of keyed state are compressed."""
        return self._set_boolean(options.SNAPSHOT_COMPRESSION.key, use_snapshot_compression)

    def _set_boolean(self, key: str, value: bool) -> ExecutionConfig:
        self._configuration.set_boolean(key, value)
        return self

    def _set_duration(self, key: str, value: DurationLike) -> ExecutionConfig:
        options.put(self._configuration, options.ALL[key], f"{parse_duration(value)} ms")
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionConfig) and self._configuration == other._configuration

    def __hash__(self) -> int:
        return hash(self._configuration)

    def __repr__(self) -> str:
        return f"ExecutionConfig({self._configuration})"


def checked_parallelism(value: Any, hint: str | None = None) -> int:
    """A number of subtasks; an error if it cannot be one.

    >>> checked_parallelism(4)
    4
    """
    return _in_range("the parallelism", value, hint)


def checked_max_parallelism(value: Any) -> int:
    """A number of key groups; an error if it cannot be one.

    >>> checked_max_parallelism(128)
    128
    """
    return _in_range("the max parallelism", value)


def _in_range(subject: str, value: Any, hint: str | None = None) -> int:
    most = options.MOST_PARALLELISM
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most:
        return value
    raise InvalidArgument(f"{subject} must be from 1 to {most}", got=repr(value)[:200], hint=hint)


# Flink writes a map as name:value,name:value with '...' around a part that has one of , : '
_TOKEN = r"'(?:[^']|'')*'"
_PAIR = re.compile(rf"\s*({_TOKEN}|[^:,']*):({_TOKEN}|[^,]*)(?:,|$)")


def _quote(text: str) -> str:
    if any(mark in text for mark in ",:'"):
        return "'" + text.replace("'", "''") + "'"
    return text


def _unquote(token: str) -> str:
    token = token.strip()
    return token[1:-1].replace("''", "'") if token[:1] == "'" else token


def _parse_map(text: str) -> dict[str, str]:
    pairs = {}
    position = 0
    while position < len(text):
        match = _PAIR.match(text, position)
        if match is None:
            key = options.GLOBAL_JOB_PARAMETERS.key
            raise ConfigurationError(
                f"the configuration value of {key!r} cannot be read",
                key=key,
                value=text,
                wanted="name:value,name:value",
            )
        pairs[_unquote(match.group(1))] = _unquote(match.group(2))
        position = match.end()
    return pairs
