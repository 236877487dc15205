import pickle
from datetime import timedelta

import pytest

from millstream.common.time import Duration, Instant, Time, parse_duration
from millstream.errors import InvalidArgument


@pytest.mark.parametrize(
    ("value", "millis"),
    [
        ("10 s", 10_000),
        ("100ms", 100),
        ("1 min", 60_000),
        ("2m", 120_000),
        ("1 h", 3_600_000),
        ("2 Days", 172_800_000),
        ("15", 15),
        ("  5   sec ", 5_000),
        ("1.5 s", 1_500),
        ("-8 h", -28_800_000),
        ("1500 us", 1),
        ("2000 µs", 2),
        ("999999 ns", 0),
        ("3000000 nanos", 3),
        (7, 7),
        (-1, -1),
        (timedelta(seconds=1.5), 1_500),
        (timedelta(microseconds=1999), 1),
        (Duration.of_minutes(1), 60_000),
        (Duration.of_nanos(1), 0),
        (Time.days(1), 86_400_000),
    ],
    ids=repr,
)
def test_parse_duration(value, millis):
    parsed = parse_duration(value)
    assert parsed == millis
    assert type(parsed) is int


@pytest.mark.parametrize("value", ["", "s", "10 parsecs", "10 s 5", None, 1.5, True, [], b"1 s"])
def test_not_a_duration(value):
    with pytest.raises(InvalidArgument, match="not a duration"):
        parse_duration(value)


def test_time():
    assert [
        t.to_milliseconds()
        for t in (Time.milliseconds(1), Time.seconds(1), Time.minutes(1), Time.hours(1))
    ] == [1, 1_000, 60_000, 3_600_000]
    assert Time.seconds(60) == Time.minutes(1)
    assert Time.seconds(1) != Duration.of_seconds(1)
    assert len({Time.seconds(60), Time.minutes(1)}) == 1
    assert repr(Time.seconds(1)) == "Time(1000 ms)"


def test_duration():
    assert Duration.of_hours(24) == Duration.of_days(1)
    assert Duration.of_seconds(1) == Duration.of_millis(1000) == Duration.of_nanos(10**9)
    assert len({Duration.of_seconds(60), Duration.of_minutes(1)}) == 1
    assert repr(Duration.of_millis(5)) == "Duration(5 ms)"
    assert repr(Duration.of_nanos(5)) == "Duration(5 ns)"


@pytest.mark.parametrize("millis", [0, 1, 999, 1000, 1_700_000_000_123, -1, -1000, -1001])
def test_instant_comes_back(millis):
    instant = Instant.of_epoch_milli(millis)
    assert instant.to_epoch_milli() == millis
    assert 0 <= instant.nanos < 10**9


@pytest.mark.parametrize("value", [Time.seconds(1), Duration.of_nanos(3), Instant(1, 2)])
def test_pickle(value):
    again = pickle.loads(pickle.dumps(value))
    assert again == value
    assert hash(again) == hash(value)
