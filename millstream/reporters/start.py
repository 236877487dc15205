"""Starts the reporters that a job's configuration names (Flink's `ReporterSetup`), and ends them with the job.

```
metrics.reporters: prom                            names, separated by commas
metrics.reporter.prom.factory.class: ...           what kind of reporter a name is; of `prom` and `json` it is known
metrics.reporter.prom.port: 9250-9260              what it is told
```

As in Flink, without `metrics.reporters` all are started that have a factory class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from millstream.common import options
from millstream.common import reporter_options as told
from millstream.common.config_options import ConfigOption
from millstream.errors import ConfigurationError
from millstream.redaction import get_logger
from millstream.runtime.driver.run import JobRun

__all__ = ["Reporter", "reporters_of", "start_reporters"]

_log = get_logger("millstream.metrics")

_KINDS = {
    "org.apache.flink.metrics.prometheus.PrometheusReporterFactory": "prom",
    "org.apache.flink.metrics.prometheus.PrometheusReporter": "prom",
    "prom": "prom",
    "json": "json",
}


class Reporter(Protocol):
    """Shows the figures of one job somewhere."""

    def start(self, run: JobRun) -> None:
        """The job is about to begin."""

    def close(self) -> None:
        """The job has ended; does not wait for anybody."""


def start_reporters(run: JobRun) -> None:
    """Start what the job's settings name; they end with the job."""
    for reporter in reporters_of(run.job.settings.reporters):
        reporter.start(run)
        run.on_done(_quietly(reporter.close))


def _quietly(close: Callable[[], None]) -> Callable[[], None]:
    """Nobody is to fail for want of a reporter that ends in order."""

    def call() -> None:
        try:
            close()
        except Exception:
            _log.warning("a metrics reporter could not be closed", exc_info=True)

    return call


def reporters_of(settings: Mapping[str, str]) -> list[Reporter]:
    """The reporters that settings name, not yet started; `ConfigurationError` for one that cannot be."""
    wanted = settings.get(options.METRICS_REPORTERS.key)
    ending = f".{told.FACTORY.key}"
    if wanted is None:
        names = [
            key.removeprefix(told.PREFIX).removesuffix(ending)
            for key in sorted(settings)
            if key.startswith(told.PREFIX) and key.endswith(ending)
        ]
    else:
        names = [name for part in wanted.strip("[]").split(",") if (name := part.strip())]
    made = [_reporter(name, settings) for name in dict.fromkeys(names)]
    return [reporter for reporter in made if reporter is not None]


def _reporter(name: str, settings: Mapping[str, str]) -> Reporter | None:
    def get(option: ConfigOption[Any]) -> Any:
        own = told.option_of(name, option)
        value = settings.get(own.key, own.default)
        return None if value is None else options.read(own, value)

    factory = get(told.FACTORY)
    kind = _KINDS.get(name if factory is None else factory)
    if kind is None and factory is not None:
        # A program of Flink's runs all the same.
        _log.warning("there is no metrics reporter %s (%s); prom and json are there", name, factory)
        return None
    if kind is None:
        raise ConfigurationError(
            f"nobody knows what the metrics reporter {name!r} is",
            key=options.METRICS_REPORTERS.key,
            there_are="prom, json",
            hint=f"name one of these, or set metrics.reporter.{name}.factory.class to one",
        )
    if kind == "prom":
        # Who has no use for Prometheus does not load its client.
        from millstream.reporters.prometheus import Address, PrometheusReporter

        address = Address(get(told.HOST), get(told.PORT))
        without = get(told.EXCLUDES) or ""
        return PrometheusReporter(
            address,
            filter(None, without.split(";")),
            plain_values=get(told.FILTER_VALUES),
        )
    from millstream.reporters.json_lines import JsonLinesReporter

    path = get(told.PATH)
    if path is None:
        key = told.option_of(name, told.PATH).key
        raise ConfigurationError(
            f"the metrics reporter {name!r} needs a file to write to",
            key=key,
            hint=f"set {key} to a path, as in metrics.jsonl",
        )
    interval = get(told.INTERVAL) / 1000
    return JsonLinesReporter(path, interval, get(told.MAX_SIZE))
