"""Rescales at chosen epochs: a job that begins its n-th epoch is asked for another parallelism first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from millstream.common.completable_future import CompletableFuture
from millstream.common.rescale_result import RescaleResult
from millstream.runtime.driver.epochs import EpochDriver

__all__ = ["rescaling_at"]


@contextmanager
def rescaling_at(
    places: Mapping[int, int],
) -> Iterator[list[CompletableFuture[RescaleResult]]]:
    """Ask whatever runs for a parallelism before the epochs of these numbers, counted from 1 and through all attempts;
    what comes of it."""
    asked: list[CompletableFuture[RescaleResult]] = []
    left = dict(places)
    begun = 0
    epoch = EpochDriver.epoch

    def counting(driver: EpochDriver, *given: Any) -> Any:
        nonlocal begun
        begun += 1
        wanted = left.pop(begun, None)
        if wanted is not None:
            asked.append(driver.rescales.ask(wanted))
        return epoch(driver, *given)

    with patch.object(EpochDriver, "epoch", counting):
        yield asked
