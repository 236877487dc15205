"""Starts the Java that Spark runs in, and keeps back the one line of its standard error that concerns nobody.

Spark asks Java for a module that is still an incubator's, and Java warns of it each time; no option turns that off. So
Java writes into a pipe, and a thread of ours hands on what comes: at first line by line, without that line, and once
Java has started as it is.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pyspark import SparkConf, SparkContext, java_gateway

__all__ = ["start_java"]

T = TypeVar("T")
"""What is made once Java runs."""

_NO_NEWS = b"WARNING: Using incubator modules: "
_AT_ONCE = 1 << 16
_STDERR = 2


def start_java(settings: Mapping[str, str], then: Callable[[], T]) -> T:
    """Start Java with Spark's settings, if this process has none and nobody has started it for us; then what needs
    it."""
    context: Any = SparkContext
    if context._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        _start(context, settings)
    return then()


def _start(context: Any, settings: Mapping[str, str]) -> None:
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    ours, theirs = os.pipe()
    started = threading.Event()
    threading.Thread(
        target=_hand_on, args=(ours, started), name="millstream-java", daemon=True
    ).start()
    try:
        gateways: Any = java_gateway
        context._ensure_initialized(gateway=gateways.launch_gateway(conf, {"stderr": theirs}))
    finally:
        started.set()
        os.close(theirs)


def _hand_on(pipe: int, started: threading.Event) -> None:
    rest = b""
    with contextlib.suppress(OSError):
        while data := os.read(pipe, _AT_ONCE):
            *lines, rest = (rest + data).split(b"\n")
            text = b"".join(line + b"\n" for line in lines if not line.startswith(_NO_NEWS))
            if started.is_set():
                # It may be a line that never ends, such as Spark's own progress bar.
                text, rest = text + rest, b""
            _write(text)
    _write(rest)
    os.close(pipe)


def _write(text: bytes) -> None:
    with contextlib.suppress(OSError):
        while text:
            text = text[os.write(_STDERR, text) :]
