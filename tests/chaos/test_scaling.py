"""A job rescaled and upgraded on Spark while drivers are killed; the whole round, and what every change runs of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.scaling import World, play

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, seed=7, rate=500)
    try:
        yield world
    finally:
        world.close()


@pytest.mark.nightly
def test_a_driver_killed_in_a_rescale_and_an_upgrade(world: World) -> None:
    world.rescale_and_kill(4)
    world.upgrade("2")
    assert world.finish() > 0
    assert world.killed.total() == 1


@pytest.mark.nightly
def test_a_whole_round(world: World) -> None:
    play(world, rounds=1)
    assert world.finish() > 0
    assert world.killed.total() == 3
