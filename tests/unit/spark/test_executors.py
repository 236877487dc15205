"""What is said while a job waits for executors."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.spark import executors
from tests.waiting import until


class Session:
    """A session without executors, whose settings are its own."""

    def __init__(self, **settings: str) -> None:
        conf = SimpleNamespace(get=lambda key, default=None: settings.get(key, default))
        scala = SimpleNamespace(isStopped=lambda: False)
        self.sparkContext = SimpleNamespace(
            master="spark://a:7077",
            getConf=lambda: conf,
            _jsc=SimpleNamespace(sc=lambda: scala),
        )


def test_what_is_asked_for_and_what_there_is() -> None:
    session: Any = Session(**{"spark.executor.memory": "64g", "spark.cores.max": "8"})
    text = executors.waiting_text(session, 5.2, lambda master, port: "2 workers, 0 of 4 cores free")
    assert text.startswith(
        "no executor has come for 5 s, and the job waits: spark://a:7077 was asked for "
        "spark.executor.memory=64g, spark.cores.max=8; it has 2 workers, 0 of 4 cores free. What to do:"
    )
    unknown = executors.waiting_text(session, 5.2, lambda master, port: None)
    assert "its page could not be read" in unknown


def test_it_is_said_while_an_epoch_waits_and_taken_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hosts: list[str] = []
    monkeypatch.setattr(executors, "executor_hosts", lambda session: list(hosts))
    monkeypatch.setattr(executors, "master_has", lambda master, port: "0 workers")
    monkeypatch.setattr(executors, "_LOOK", 0.001)
    monkeypatch.setattr(executors, "_SILENT", 0.01)
    caplog.set_level(logging.WARNING, "millstream.job")
    ended, session = threading.Event(), Session()
    watching = threading.Thread(target=executors._watch, args=(session, ended))
    watching.start()
    try:
        with executors.needed():
            until(lambda: "no executor has come" in caplog.text)
            hosts.append("a")
            until(lambda: "executors have come: a" in caplog.text)
    finally:
        ended.set()
        watching.join()
    assert len(caplog.records) == 2


def test_an_idle_job_needs_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[object] = []

    def nobody(session: object) -> list[str]:
        looks.append(session)
        return []

    monkeypatch.setattr(executors, "executor_hosts", nobody)
    monkeypatch.setattr(executors, "_LOOK", 0.001)
    monkeypatch.setattr(executors, "_SILENT", 0.0)
    ended = threading.Event()
    watching = threading.Thread(target=executors._watch, args=(Session(), ended))
    watching.start()
    until(lambda: len(looks) > 5)
    ended.set()
    watching.join()
    assert caplog.records == []
