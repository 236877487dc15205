"""Errors that cross from a Spark worker to the client as what they are."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from millstream.common import Types, WatermarkStrategy
from millstream.datastream.connectors.base import (
    Boundedness,
    Source,
    SourceReader,
    SplitEnumerator,
)
from millstream.errors import (
    KeySelectorError,
    RecordNotSerializable,
    SourceError,
    TypeMismatchError,
    UserFunctionError,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def broken(value: int) -> int:
    if value == 13:
        raise ValueError("unlucky")
    return value


@pytest.mark.parametrize(
    "options", [{}, {"millstream.epoch.records": "7"}], ids=["batch", "stream"]
)
def test_user_function(make_env: Any, options: dict[str, str]) -> None:
    env = make_env(options=options)
    env.from_collection(range(20)).rebalance().map(broken).name("careful").print()
    with pytest.raises(UserFunctionError) as caught:
        env.execute()
    text = str(caught.value)
    assert caught.value.code == "USER_FUNCTION_FAILED"
    assert "the function of 'careful' raised ValueError: unlucky" in text
    assert "record: 13" in text
    assert "test_failures.py:" in caught.value.evidence["line"]
    assert 'raise ValueError("unlucky")' in caught.value.evidence["line"]
    assert "channel 0" in caught.value.evidence["position"]


def test_key_selector(make_env: Any) -> None:
    env = make_env()
    env.from_collection([{"k": 1}, {}]).key_by(lambda d: d["k"]).reduce(lambda a, b: a).print()
    with pytest.raises(KeySelectorError, match="KeyError: 'k'") as caught:
        env.execute()
    assert caught.value.evidence["record"] == "{}"


def test_record_that_cannot_be_copied(make_env: Any) -> None:
    env = make_env()
    env.from_collection([1]).map(lambda n: threading.Lock()).name("locks").rebalance().print()
    with pytest.raises(RecordNotSerializable, match="cannot be copied") as caught:
        env.execute()
    assert caught.value.evidence["operator"] == "locks"


def test_record_that_cannot_be_sent(make_env: Any) -> None:
    env = make_env()
    env.get_config().enable_object_reuse()  # or its copy would fail first
    env.from_collection([1]).map(lambda n: threading.Lock()).name("locks").rebalance().print()
    with pytest.raises(RecordNotSerializable, match="a record of 'locks' cannot be serialized"):
        env.execute()


def test_declared_type(make_env: Any) -> None:
    env = make_env()
    env.from_collection(["a"]).map(lambda s: s, Types.INT()).name("number").print()
    with pytest.raises(TypeMismatchError, match="declared type") as caught:
        env.execute()
    assert caught.value.evidence["operator"] == "number"


class Dying(Source):
    def boundedness(self) -> Boundedness:
        return Boundedness.CONTINUOUS_UNBOUNDED

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        return _One()

    def create_reader(self) -> SourceReader:
        return _Breaks()


class _One(SplitEnumerator):
    def discover(self) -> list[str]:
        return ["disk"]

    def available(self, split: str, position: int) -> int:
        return position + 10


class _Breaks(SourceReader):
    def read(self, split: str, start: int, end: int) -> Any:
        for n in range(start, end):
            if n == 25:
                raise OSError("disk on fire")
            yield n


def test_source_that_dies(make_env: Any) -> None:
    env = make_env()
    env.from_source(Dying(), WatermarkStrategy.no_watermarks(), "disk").add_sink(lambda n: None)
    with pytest.raises(SourceError, match="disk on fire") as caught:
        env.execute()
    assert "split 'disk'" in caught.value.evidence["position"]


def test_the_session_survives_a_failed_job(make_env: Any) -> None:
    env = make_env()
    env.from_collection([13]).map(broken).print()
    with pytest.raises(UserFunctionError):
        env.execute()
    assert list(env.from_collection([1]).map(broken).execute_and_collect()) == [1]
