"""Epochs in rounds, whatever the settings say of time. As a plugin for pytest, all of them that can have three:

```
python -m pytest -p tests.in_rounds tests/properties tests/conformance
```
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from millstream.runtime.driver import epochs
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.rounds import Rounds, can_have_rounds
from millstream.runtime.wire.ranges import SubtaskRanges

_begin, _init = Rounds.begin, epochs.EpochDriver.__init__


@contextmanager
def in_rounds(count: int) -> Iterator[None]:
    """Epochs of jobs that begin meanwhile have so many rounds, if there is so much to read."""

    def begin(
        self: Rounds, work: list[SubtaskRanges], *, last: bool, takes: float = 0.0
    ) -> list[SubtaskRanges]:
        if self._interval is not None:
            self._interval = 0.0 if self.number + 2 >= count else 1e9
        return _begin(self, work, last=last, takes=takes)

    def init(self: Any, *args: Any, **named: Any) -> None:
        _init(self, *args, **{**named, "in_rounds": True})

    if count == 1:
        yield
        return
    with (
        patch.object(epochs, "can_have_rounds", _can),
        patch.object(epochs.EpochDriver, "__init__", init),
        patch.object(Rounds, "begin", begin),
    ):
        yield


def _can(job: Job) -> bool:
    times = {"checkpoint_interval": 9.0, "epoch_interval": 9.0}
    settings = replace(job.settings, epoch_records=None, restart=None, **times)
    return can_have_rounds(replace(job, settings=settings))


_stack = ExitStack()


def pytest_configure() -> None:
    _stack.enter_context(in_rounds(3))


def pytest_unconfigure() -> None:
    _stack.close()
