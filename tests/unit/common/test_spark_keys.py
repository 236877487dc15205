"""Misspelt keys of Spark's are noticed, and nobody else's are."""

from __future__ import annotations

import doctest

import pytest

from millstream.common import guesses, spark_keys
from millstream.common.configuration import Configuration
from millstream.common.options import check_known
from millstream.common.spark_keys import meant_of_spark


@pytest.mark.parametrize("module", [spark_keys, guesses])
def test_the_examples_in_docstrings(module) -> None:
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("spark.exector.memory", "spark.executor.memory"),
        ("spark.executor.core", "spark.executor.cores"),
        ("spark.ui.enable", "spark.ui.enabled"),
        ("spark.sql.shuffle.partition", "spark.sql.shuffle.partitions"),
        ("spark.dynamicallocation.enabled", "spark.dynamicAllocation.enabled"),
        ("spark.driver.max-result-size", "spark.driver.maxResultSize"),
        ("spark.mastre", "spark.master"),
    ],
)
def test_a_slip(key: str, meant: str) -> None:
    assert meant_of_spark(key) == meant


@pytest.mark.parametrize(
    "key",
    [
        "spark.master",
        "spark.app.name",
        "spark.log.level",
        "spark.kubernetes.container.image",
        "spark.yarn.queue",
        # Names that are anybody's.
        "spark.hadoop.fs.s3a.acces.key",
        "spark.executorEnv.PATHH",
        "spark.yarn.appMasterEnv.HOME",
        "spark.sql.catalog.local.tpye",
        "spark.kubernetes.driver.label.app",
        "spark.executor.resource.gpu.amount",
        # Of programs and libraries.
        "spark.orders.region",
        "spark.openlineage.transport.type",
        "spark.databricks.delta.retentionDurationCheck.enabled",
    ],
)
def test_no_false_alarm(key: str) -> None:
    assert meant_of_spark(key) is None
    assert check_known(Configuration().set_string(key, "x")) == []


def test_it_is_said_with_the_other_unknown_keys() -> None:
    settings = Configuration().set_string("spark.executor.memroy", "2g")
    assert check_known(settings) == [
        "Spark has no configuration key 'spark.executor.memroy'; did you mean 'spark.executor.memory'?"
    ]
