"""A client that does not come back is not waited for."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from millstream.connectors.kafka import waiting
from millstream.connectors.kafka.waiting import let_go, within


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An event that nobody sets before the test is over."""
    monkeypatch.setattr(waiting, "_GRACE", 0.0)
    monkeypatch.setattr(waiting, "_END", 0.01)
    event = threading.Event()
    yield event
    event.set()


def test_a_call_that_does_not_come_back_is_an_error_that_is_tried_again(stuck: Any) -> None:
    with pytest.raises(KafkaException) as failure:
        within(0.01, stuck.wait)
    assert failure.value.args[0].code() == KafkaError._TIMED_OUT


def test_what_a_call_raises_is_raised() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        within(1.0, fail)


def test_none_is_an_answer() -> None:
    assert within(1.0, lambda: None) is None


class Client:
    """Notes what is called."""

    def __init__(self, wait: Any = None) -> None:
        self.called: list[str] = []
        self._wait = wait

    def purge(self) -> None:
        self.called.append("purge")
        raise SystemError("of a client that was shut out")

    def close(self) -> None:
        self.called.append("close")
        if self._wait is not None:
            self._wait.wait()


def test_clients_are_closed_whatever_they_say() -> None:
    clients = [Client(), Client()]
    kept = list(clients)
    let_go(clients)
    assert [client.called for client in kept] == [["purge", "close"]] * 2
    assert clients == []


def test_a_client_that_does_not_end_is_left_behind(stuck: Any) -> None:
    client = Client(stuck)
    clients = [client]
    let_go(clients)
    assert client.called == ["purge", "close"]
    assert clients == [client]
