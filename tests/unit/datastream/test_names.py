"""Names that are not there, what streams say of themselves, and functions that do not take their arguments."""

from __future__ import annotations

import copy
import functools
import operator
import pickle
from typing import Any

import pytest

from millstream.common import Configuration
from millstream.datastream import (
    DataStream,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from millstream.errors import InvalidArgument, NameNotFound


def stream() -> DataStream:
    return StreamExecutionEnvironment.get_execution_environment("in-process").from_collection([1])


def test_who_asks_whether_a_name_is_there_is_told_no() -> None:
    assert not hasattr(stream(), "keyBy")
    assert getattr(stream(), "sum", None) is None
    with pytest.raises(AttributeError):
        _ = stream().keyBy
    with pytest.raises(AttributeError, match="object has no attribute '_private'"):
        _ = stream()._private


def test_objects_are_copied_and_pickled_as_before() -> None:
    configuration = Configuration().set_string("a", "b")
    assert copy.deepcopy(configuration).get_string("a", "") == "b"
    assert pickle.loads(pickle.dumps(configuration)).get_string("a", "") == "b"


def test_nothing_is_guessed_where_nothing_is_near() -> None:
    with pytest.raises(NameNotFound) as caught:
        stream().zzz()
    assert str(caught.value) == "[NAME_NOT_FOUND] DataStream has no 'zzz'"


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda s: s, "<DataStream 'Source: Collection Source'>"),
        (lambda s: s.map(str).name("as text"), "<DataStream 'as text'>"),
        (lambda s: s.rebalance(), "<DataStream of 'Source: Collection Source', REBALANCE>"),
        (
            lambda s: s.key_by("word"),
            "<KeyedStream of 'Source: Collection Source', by field 'word'>",
        ),
        (lambda s: s.key_by(abs), "<KeyedStream of 'Source: Collection Source', by abs>"),
        (lambda s: s.union(s), "<DataStream of 2 streams>"),
        (
            lambda s: s.map(str).get_side_output(OutputTag("late")),
            "<DataStream 'late' of 'Map'>",
        ),
        (
            lambda s: s.key_by(0).count_window(2),
            "<WindowedStream CountTumblingWindowAssigner(2), of 'Source: Collection Source', by field 0>",
        ),
        (
            lambda s: s.connect(s.map(str)),
            "<ConnectedStreams 'Source: Collection Source' and 'Map'>",
        ),
        (lambda s: s.print(), "<DataStreamSink 'Sink: Print to Std. Out'>"),
    ],
)
def test_what_a_stream_says_of_itself(make: Any, shown: str) -> None:
    assert repr(make(stream())) == shown


def test_what_an_environment_says_of_itself() -> None:
    env = StreamExecutionEnvironment.get_execution_environment("in-process")
    env.from_collection([1]).print()
    assert repr(env) == "<StreamExecutionEnvironment with 1 sink to execute>"


class Any2(ProcessFunction):
    def process_element(self, *arguments):
        yield arguments


class Timer(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value

    def on_timer(self, timestamp):
        yield timestamp


class Opens(MapFunction):
    def open(self):
        pass

    def map(self, value):
        return value


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.map(str.upper),
        lambda s: s.map(int),
        lambda s: s.map(operator.itemgetter(0)),
        lambda s: s.map(functools.partial(max, 1)),
        lambda s: s.map(lambda value, more=1: value),
        lambda s: s.key_by(0).reduce(max),
        lambda s: s.process(Any2()),
    ],
)
def test_what_can_be_called_is_taken(call: Any) -> None:
    assert isinstance(call(stream()), DataStream)


@pytest.mark.parametrize(
    ("call", "subject"),
    [
        (lambda s: s.map(lambda: 1), r"the function of map is called with \(value\)"),
        (lambda s: s.map(lambda value, *, more: 1), r"the function of map is called with"),
        (lambda s: s.filter(lambda a, b: 1), "the function of filter"),
        (lambda s: s.key_by(lambda a, b: 1), "the function of key_by"),
        (
            lambda s: s.key_by(0).process(Timer()),
            r"on_timer of Timer is called with \(timestamp, ctx",
        ),
        (lambda s: s.map(Opens()), r"open of Opens is called with \(runtime_context\)"),
    ],
)
def test_what_cannot_be_called_so_is_refused(call: Any, subject: str) -> None:
    with pytest.raises(InvalidArgument, match=subject):
        call(stream())
