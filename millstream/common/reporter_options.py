"""What metrics reporters are told: keys `metrics.reporter.<name>.<key>`, where the name is one of `metrics.reporters`.

`docs/options.md` shows them, with those of `millstream.common.options`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from millstream.common.config_options import ConfigOption, ConfigOptions
from millstream.common.configuration import to_text

__all__ = [
    "EXCLUDES",
    "FACTORY",
    "FILTER_VALUES",
    "HOST",
    "INTERVAL",
    "MAX_SIZE",
    "OF_REPORTERS",
    "PATH",
    "PORT",
    "PREFIX",
    "of_reporter",
    "option_of",
    "parse_ports",
]

T = TypeVar("T")

PREFIX = "metrics.reporter."

OF_REPORTERS: dict[str, ConfigOption[Any]] = {}
"""By what stands behind the reporter's name."""


def parse_ports(value: Any) -> tuple[int, ...]:
    """The ports that a text stands for, as Flink reads it; `ValueError` if it stands for none.

    >>> parse_ports("9249"), parse_ports("9250-9252,9260")
    ((9249,), (9250, 9251, 9252, 9260))
    """
    ports: list[int] = []
    for part in to_text(value).split(","):
        first, _, last = part.strip().partition("-")
        low, high = int(first), int(last or first)
        if not 0 <= low <= high <= 65535:
            raise ValueError(part)
        ports.extend(range(low, high + 1))
    return tuple(ports)


def _known(option: ConfigOption[T], description: str) -> ConfigOption[T]:
    option = option.with_description(description)
    OF_REPORTERS[option.key] = option
    return option


_key = ConfigOptions.key

FACTORY = _known(
    _key("factory.class").string_type().no_default_value(),
    "What kind of reporter it is: `prom` (Flink's org.apache.flink.metrics.prometheus.PrometheusReporterFactory) or "
    "`json`; not needed for reporters of these names.",
)
PORT = _known(
    ConfigOption("port", "string", "a port, or several as in 9250-9260", parse_ports, "9249"),
    "prom: the port of its page; of several the first that is free.",
)
HOST = _known(
    _key("host").string_type().default_value("127.0.0.1"),
    "prom: the address its page is bound to. Anybody who reaches it can read the metrics of all jobs of the process.",
)
EXCLUDES = _known(
    _key("scope.variables.excludes").string_type().no_default_value(),
    "prom: labels that are left out, separated by semicolons.",
)
FILTER_VALUES = _known(
    _key("filterLabelValueCharacters").boolean_type().default_value(False),
    "prom: put an underscore for every character in values of labels that is no letter, digit, colon or underscore, as "
    "Flink does unless it is told otherwise.",
)
PATH = _known(
    _key("path").string_type().no_default_value(),
    "json: the file that lines are added to.",
)
INTERVAL = _known(
    _key("interval").duration_type().at_least(1, "ms").default_value("10 s"),
    "json: how often a line is written.",
)
MAX_SIZE = _known(
    _key("max-size").memory_type().at_least(1, "byte").default_value("64 mb"),
    "json: how large the file may become; then it gets the ending .1, in the place of the one before.",
)


def option_of(name: str, option: ConfigOption[T]) -> ConfigOption[T]:
    """An option of the reporter of that name.

    >>> option_of("prom", PORT).key
    'metrics.reporter.prom.port'
    """
    return replace(option, key=f"{PREFIX}{name}.{option.key}")


def of_reporter(key: str) -> ConfigOption[Any] | None:
    """The option that a whole key stands for, if a reporter has it.

    >>> of_reporter("metrics.reporter.prom.port").default
    '9249'
    """
    name, _, ending = key.removeprefix(PREFIX).partition(".")
    option = OF_REPORTERS.get(ending) if key.startswith(PREFIX) else None
    return None if option is None else option_of(name, option)
