"""Every public method of the stream classes shows how it is called. The examples themselves run as doctests."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from millstream.datastream import (
    AllWindowedStream,
    BroadcastConnectedStream,
    ConnectedStreams,
    DataStream,
    DataStreamSink,
    KeyedStream,
    WindowedStream,
)

CLASSES: list[type[Any]] = [
    AllWindowedStream,
    BroadcastConnectedStream,
    ConnectedStreams,
    DataStream,
    DataStreamSink,
    KeyedStream,
    WindowedStream,
]
# It only says that it is not there yet.
NOT_YET = {"cache"}


@pytest.mark.parametrize("kind", CLASSES)
def test_public_methods_have_an_example(kind: type[Any]) -> None:
    without = {
        name
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and ">>>" not in (method.__doc__ or "")
    }
    assert without <= NOT_YET
