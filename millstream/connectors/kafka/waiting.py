"""Calls of a client that may never come back, and a way not to wait for them.

A client whose connection was lost at the wrong moment waits for the answer of a coordinator that will not come,
whatever timeout it was given, and so may its end. A new client does not: the old one is left behind with a thread of
its own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

__all__ = ["let_go", "within"]

T = TypeVar("T")
_GRACE = 5.0
_END = 2.0


def within(seconds: float, call: Callable[[], T]) -> T:
    """What a client answers. It is not waited for much longer than it was told to take.

    >>> within(1.0, lambda: 7)
    7
    """
    answers: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="millstream-kafka-call", daemon=True)
    thread.start()
    thread.join(seconds + _GRACE)
    if failures:
        raise failures[0]
    if not answers:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the client does not answer"))
    return answers[0]


def let_go(clients: list[Any]) -> None:
    """Close clients, and empty the list: what ends them is that nobody has them any more. Goes on without those that
    do not end."""

    def end() -> None:
        for client in clients:
            for name in ("purge", "close"):
                if hasattr(client, name):
                    # One that was shut out for good raises a SystemError around its own.
                    with contextlib.suppress(Exception):
                        getattr(client, name)()
        client = None
        clients.clear()

    thread = threading.Thread(target=end, name="millstream-kafka-close", daemon=True)
    thread.start()
    thread.join(_END)
