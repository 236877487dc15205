import dataclasses
import pickle
from datetime import timedelta

import pytest

from millstream.common.time import Duration
from millstream.common.watermark_strategy import (
    TimestampAssigner,
    WatermarkAlignment,
    WatermarkGenerator,
    WatermarkStrategy,
)
from millstream.errors import InvalidArgument


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]

    def __eq__(self, other):
        return isinstance(other, Second)

    __hash__ = None


ASSIGNER = Second()


def test_kinds():
    assert WatermarkStrategy.for_monotonous_timestamps().kind == "monotonous"
    assert WatermarkStrategy.no_watermarks().kind == "none"
    for delay in (Duration.of_seconds(5), timedelta(seconds=5), "5 s", 5000):
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(delay)
        assert (strategy.kind, strategy.delay_ms) == ("bounded", 5000)
    own = WatermarkStrategy.for_generator(WatermarkGenerator)
    assert own.kind == "generator"
    assert isinstance(own.generator_supplier(), WatermarkGenerator)  # type: ignore[misc]


def steps():
    return [
        lambda s: s.with_timestamp_assigner(ASSIGNER),
        lambda s: s.with_idleness(Duration.of_minutes(1)),
        lambda s: s.with_watermark_alignment("g", "20 s", "2 s"),
    ]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)])
def test_every_step_keeps_the_rest(order):
    strategy = WatermarkStrategy.for_bounded_out_of_orderness("5 s")
    for step in order:
        strategy = steps()[step](strategy)
    assert strategy == WatermarkStrategy(
        "bounded", 5000, ASSIGNER, 60_000, WatermarkAlignment("g", 20_000, 2_000)
    )


def test_a_strategy_never_changes():
    first = WatermarkStrategy.for_monotonous_timestamps()
    second = first.with_timestamp_assigner(ASSIGNER)
    assert first.timestamp_assigner is None
    assert second.timestamp_assigner is ASSIGNER
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.kind = "none"  # type: ignore[misc]


def test_the_update_interval_has_a_default():
    strategy = WatermarkStrategy.no_watermarks().with_watermark_alignment("g", 5)
    assert strategy.alignment == WatermarkAlignment("g", 5, 1000)


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.for_bounded_out_of_orderness(-1),
        lambda s: s.for_bounded_out_of_orderness("soon"),
        lambda s: s.for_generator(None),
        lambda s: s.with_idleness(0),
        lambda s: s.with_timestamp_assigner(lambda value, ts: 1),
        lambda s: s.with_watermark_alignment("g", 0),
        lambda s: s.with_watermark_alignment("g", 1, -1),
    ],
)
def test_wrong_arguments(build):
    with pytest.raises(InvalidArgument):
        build(WatermarkStrategy.no_watermarks())


def test_pickle():
    strategy = WatermarkStrategy.for_generator(WatermarkGenerator).with_idleness("1 s")
    assert pickle.loads(pickle.dumps(strategy)) == strategy


def test_an_assigner_needs_its_method():
    class Empty(TimestampAssigner):
        pass

    with pytest.raises(TypeError):
        Empty()


def test_a_generator_may_leave_both_methods_out():
    generator = WatermarkGenerator()
    assert generator.on_event("a", 1, None) is None
    assert generator.on_periodic_emit(None) is None
