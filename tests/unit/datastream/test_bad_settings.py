"""Settings that cannot work are refused with a code where they are made: by calls, and by configuration."""

from __future__ import annotations

import warnings

import pytest

from millstream.api.async_functions import AsyncFunction, AsyncRetryStrategy
from millstream.api.error_policy import ErrorPolicy
from millstream.api.state_ttl import StateTtlConfig
from millstream.common import Configuration, options
from millstream.common.restart_strategy import RestartStrategies, strategy_of
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.datagen import DataGeneratorSource
from millstream.connectors.file.rolling_policy import RollingPolicy
from millstream.connectors.file.source import FileSource, StreamFormat
from millstream.connectors.socket import SocketTextSource
from millstream.datastream import AsyncDataStream, StreamExecutionEnvironment
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.errors import ConfigurationError, InvalidArgument, MillstreamError


class Ask(AsyncFunction):
    async def async_invoke(self, value):
        return [value]


def env():
    return StreamExecutionEnvironment.get_execution_environment("in-process")


def stream():
    return env().from_collection([1]).map(lambda n: n)


def keyed():
    return stream().key_by(lambda n: n)


def checkpoints():
    return env().get_checkpoint_config()


NOT_POSITIVE = [0, -5]
NEGATIVE = [-5]
PARALLELISM = [0, -5, 1.5, "2", None, True, 40_000]
MAX_PARALLELISM = [0, -5, 40_000, 1.5, "2", None, True]

# What is called with a bad value, and the bad values.
CALLS = {
    "env.set_parallelism": (lambda v: env().set_parallelism(v), PARALLELISM),
    "stream.set_parallelism": (lambda v: stream().set_parallelism(v), [*PARALLELISM, -1]),
    "sink.set_parallelism": (lambda v: stream().print().set_parallelism(v), [*PARALLELISM, -1]),
    "env.set_max_parallelism": (lambda v: env().set_max_parallelism(v), [*MAX_PARALLELISM, -1]),
    "stream.set_max_parallelism": (
        lambda v: stream().set_max_parallelism(v),
        [*MAX_PARALLELISM, -1],
    ),
    "config.set_parallelism": (lambda v: env().get_config().set_parallelism(v), PARALLELISM),
    "config.set_max_parallelism": (
        lambda v: env().get_config().set_max_parallelism(v),
        [*MAX_PARALLELISM, -1],
    ),
    # -1 is Flink's word for "only when it is full".
    "env.set_buffer_timeout": (lambda v: env().set_buffer_timeout(v), [-5, "-1 s", "soon", None]),
    "stream.set_buffer_timeout": (lambda v: stream().set_buffer_timeout(v), [-5, "-1 s", None]),
    "auto watermark interval": (
        lambda v: env().get_config().set_auto_watermark_interval(v),
        [*NEGATIVE, "x"],
    ),
    "latency interval": (lambda v: env().get_config().set_latency_tracking_interval(v), NEGATIVE),
    "cancellation interval": (
        lambda v: env().get_config().set_task_cancellation_interval(v),
        NEGATIVE,
    ),
    "cancellation timeout": (
        lambda v: env().get_config().set_task_cancellation_timeout(v),
        NEGATIVE,
    ),
    "enable_checkpointing": (lambda v: env().enable_checkpointing(v), [*NOT_POSITIVE, "x", None]),
    "checkpoint interval": (lambda v: checkpoints().set_checkpoint_interval(v), NOT_POSITIVE),
    "checkpoint timeout": (lambda v: checkpoints().set_checkpoint_timeout(v), NOT_POSITIVE),
    "min pause": (lambda v: checkpoints().set_min_pause_between_checkpoints(v), NEGATIVE),
    "concurrent checkpoints": (
        lambda v: checkpoints().set_max_concurrent_checkpoints(v),
        [*NOT_POSITIVE, 1.5, "x"],
    ),
    "tolerable failures": (
        lambda v: checkpoints().set_tolerable_checkpoint_failure_number(v),
        [*NEGATIVE, "x"],
    ),
    "aligned timeout": (lambda v: checkpoints().set_aligned_checkpoint_timeout(v), NEGATIVE),
    "fixed delay attempts": (lambda v: RestartStrategies.fixed_delay_restart(v, 1), [-1, 1.5, "2"]),
    "fixed delay": (lambda v: RestartStrategies.fixed_delay_restart(1, v), NEGATIVE),
    "failure rate": (lambda v: RestartStrategies.failure_rate_restart(v, 1, 1), [0, -1, 1.5]),
    "failure interval": (lambda v: RestartStrategies.failure_rate_restart(1, v, 1), NOT_POSITIVE),
    "failure delay": (lambda v: RestartStrategies.failure_rate_restart(1, 1, v), NEGATIVE),
    "initial backoff": (lambda v: RestartStrategies.exponential_delay_restart(v), NOT_POSITIVE),
    "max backoff": (
        lambda v: RestartStrategies.exponential_delay_restart("1 s", v),
        [*NOT_POSITIVE, "10 ms"],
    ),
    "multiplier": (
        lambda v: RestartStrategies.exponential_delay_restart(backoff_multiplier=v),
        [0.5, -1, float("nan"), "x"],
    ),
    "reset": (
        lambda v: RestartStrategies.exponential_delay_restart(reset_backoff_threshold=v),
        NOT_POSITIVE,
    ),
    "jitter": (
        lambda v: RestartStrategies.exponential_delay_restart(jitter_factor=v),
        [-0.1, 1.5, float("nan")],
    ),
    "attempts": (lambda v: RestartStrategies.exponential_delay_restart(attempts=v), [0, -1, 1.5]),
    "out of orderness": (WatermarkStrategy.for_bounded_out_of_orderness, NEGATIVE),
    "idleness": (lambda v: WatermarkStrategy.no_watermarks().with_idleness(v), NOT_POSITIVE),
    "drift": (
        lambda v: WatermarkStrategy.no_watermarks().with_watermark_alignment("g", v),
        NOT_POSITIVE,
    ),
    "alignment interval": (
        lambda v: WatermarkStrategy.no_watermarks().with_watermark_alignment("g", 5, v),
        NOT_POSITIVE,
    ),
    "tumbling size": (TumblingEventTimeWindows.of, NOT_POSITIVE),
    "tumbling offset": (lambda v: TumblingEventTimeWindows.of(10, v), [10, -10]),
    "tumbling clock size": (TumblingProcessingTimeWindows.of, NOT_POSITIVE),
    "sliding size": (lambda v: SlidingEventTimeWindows.of(v, 5), NOT_POSITIVE),
    "sliding slide": (lambda v: SlidingEventTimeWindows.of(5, v), NOT_POSITIVE),
    "sliding offset": (lambda v: SlidingEventTimeWindows.of(10, 5, v), [5, -5]),
    "sliding clock slide": (lambda v: SlidingProcessingTimeWindows.of(5, v), NOT_POSITIVE),
    "session gap": (EventTimeSessionWindows.with_gap, NOT_POSITIVE),
    "session clock gap": (ProcessingTimeSessionWindows.with_gap, NOT_POSITIVE),
    "count window": (lambda v: keyed().count_window(v), [*NOT_POSITIVE, 1.5]),
    "count slide": (lambda v: keyed().count_window(5, v), [*NEGATIVE, 1.5]),
    "count window all": (lambda v: stream().count_window_all(v), NOT_POSITIVE),
    "count tumbling": (CountTumblingWindowAssigner.of, NOT_POSITIVE),
    "count sliding": (lambda v: CountSlidingWindowAssigner.of(5, v), NOT_POSITIVE),
    "count trigger": (CountTrigger.of, [*NOT_POSITIVE, 1.5]),
    "count evictor": (CountEvictor.of, NEGATIVE),
    "time evictor": (TimeEvictor.of, NEGATIVE),
    "continuous trigger": (ContinuousEventTimeTrigger.of, NOT_POSITIVE),
    "continuous clock trigger": (ContinuousProcessingTimeTrigger.of, NOT_POSITIVE),
    "lateness": (
        lambda v: keyed().window(TumblingEventTimeWindows.of(5)).allowed_lateness(v),
        NEGATIVE,
    ),
    "async timeout": (lambda v: AsyncDataStream.unordered_wait(stream(), Ask(), v), NOT_POSITIVE),
    "async capacity": (
        lambda v: AsyncDataStream.unordered_wait(stream(), Ask(), 5, v),
        [*NOT_POSITIVE, 1.5],
    ),
    "retry attempts": (
        lambda v: AsyncRetryStrategy.fixed_delay(v, 5, None, None),
        [*NOT_POSITIVE, 1.5],
    ),
    "retry delay": (lambda v: AsyncRetryStrategy.fixed_delay(1, v, None, None), NEGATIVE),
    "time to live": (StateTtlConfig.new_builder, NOT_POSITIVE),
    "generator count": (lambda v: DataGeneratorSource(str, v), NEGATIVE),
    "generator rate": (lambda v: DataGeneratorSource(str, 5, v), [*NOT_POSITIVE, float("nan")]),
    "generator splits": (lambda v: DataGeneratorSource(str, 5, None, v), NOT_POSITIVE),
    "socket port": (lambda v: SocketTextSource("h", v), [0, -5, 70_000, "x"]),
    "part size": (lambda v: RollingPolicy.default_rolling_policy(v), NOT_POSITIVE),
    "rollover": (lambda v: RollingPolicy.default_rolling_policy(1, v), NOT_POSITIVE),
    "discovery": (
        lambda v: FileSource.for_record_stream_format(
            StreamFormat.text_line_format(), "/tmp"
        ).monitor_continuously(v),
        NOT_POSITIVE,
    ),
    "share": (ErrorPolicy.skip, [-0.1, 1.5, float("nan")]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, (_, bad) in CALLS.items() for value in bad]
)
def test_a_call_refuses_what_cannot_work(name, value):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(MillstreamError) as error:
            CALLS[name][0](value)
    assert isinstance(error.value, InvalidArgument | ConfigurationError)


# Options whose bad values are other than those of their kind.
MAY_BE = {
    "pipeline.max-parallelism": {"-1"},
    "execution.buffer-timeout.interval": {"0 ms", "-1 ms"},
}
ZERO_WORKS = {
    "pipeline.auto-watermark-interval",
    "execution.buffer-timeout.interval",
    "execution.checkpointing.min-pause",
    "execution.checkpointing.tolerable-failed-checkpoints",
    "execution.checkpointing.aligned-checkpoint-timeout",
    "restart-strategy.fixed-delay.attempts",
    "restart-strategy.fixed-delay.delay",
    "restart-strategy.failure-rate.delay",
    "restart-strategy.exponential-delay.jitter-factor",
    "task.cancellation.interval",
    "task.cancellation.timeout",
    "metrics.latency.interval",
    "rest.port",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout",
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout",
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling",
    "millstream.session.history-size",
}
KINDS = {
    "int": ["-5", "0", "-1", "99999999999", "x", "1.5"],
    "long": ["-5", "0", "-1", "x"],
    "float": ["-5", "0", "-1", "nan", "x"],
    "double": ["-5", "0", "-1", "nan", "x"],
    "duration": ["-5 ms", "0 ms", "-1 ms", "x"],
    "memory": ["-5", "0", "x"],
    "enum": ["x"],
    "boolean": ["x"],
}


def bad_values(option):
    good = MAY_BE.get(option.key, set())
    for value in KINDS.get(option.type_name, []):
        zero = value.split()[0] == "0" and option.key in ZERO_WORKS
        if value not in good and not zero:
            yield value
    most = {"pipeline.max-parallelism": "40000", "parallelism.default": "40000"}
    if option.key in most:
        yield most[option.key]
    if option.key == "rest.port":
        yield "70000"


@pytest.mark.parametrize(
    ("key", "value"), [(o.key, v) for o in options.ALL.values() for v in bad_values(o)]
)
def test_a_configuration_refuses_what_cannot_work(key, value):
    config = Configuration().set_string(key, value)
    with pytest.raises(ConfigurationError) as error:
        StreamExecutionEnvironment.get_execution_environment(config)
    assert error.value.evidence["key"] == key
    with pytest.raises(ConfigurationError):
        env().configure(config)


def test_a_configuration_that_was_changed_later_is_looked_at_before_the_job_starts():
    here = env()
    here.from_collection([1]).print()
    here.get_configuration().set_string("execution.checkpointing.min-pause", "-5 ms")
    with pytest.raises(ConfigurationError, match="min-pause"):
        here.execute()


def test_what_is_set_by_configuration_for_restarts_fits_together():
    config = Configuration()
    config.set_string("restart-strategy.type", "exponential-delay")
    config.set_string("restart-strategy.exponential-delay.max-backoff", "10 ms")
    with pytest.raises(MillstreamError, match="max_backoff"):
        strategy_of(config)


def test_a_buffer_may_wait_until_it_is_full():
    assert env().set_buffer_timeout(-1).get_buffer_timeout() == -1
    stream().set_buffer_timeout(-1)
