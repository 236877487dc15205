"""Java's standard error is handed on, without the line that concerns nobody."""

from __future__ import annotations

import os
import threading

import pytest

pytest.importorskip("pyspark")

from millstream.spark import java


def handed_on(monkeypatch: pytest.MonkeyPatch, *parts: bytes, started: bool) -> list[bytes]:
    ours, theirs = os.pipe()
    event, written = threading.Event(), []
    monkeypatch.setattr(java, "_write", lambda text: written.append(text) if text else None)
    if started:
        event.set()
    for part in parts:
        os.write(theirs, part)
    os.close(theirs)
    java._hand_on(ours, event)
    return written


def test_the_warning_of_incubator_modules_is_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = b"WARNING: Using incubator modules: jdk.incubator.vector\nError: no memory\nand a res"
    assert handed_on(monkeypatch, lines, b"t", started=False) == [
        b"Error: no memory\n",
        b"and a rest",
    ]


def test_once_java_runs_nothing_waits_for_the_end_of_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert handed_on(monkeypatch, b"one\n[Stage 0:>", started=True) == [b"one\n[Stage 0:>"]
