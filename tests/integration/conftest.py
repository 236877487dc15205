"""Environments on Spark for the tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from tests.integration.kafka import broker, kafka  # noqa: F401

# Workers import test modules by the names that pytest gives them.
ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.append(ROOT)

MakeEnv = Callable[..., StreamExecutionEnvironment]


@pytest.fixture
def make_env(spark: object) -> MakeEnv:
    """Makes environments; keyword arguments are configuration with _ for the dots."""

    def make(
        target: str = "spark", parallelism: int = 2, options: dict[str, str] | None = None
    ) -> StreamExecutionEnvironment:
        config = Configuration.from_dict({"execution.target": target, **(options or {})})
        return StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(
            parallelism
        )

    return make
