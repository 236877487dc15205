"""The examples in the docstrings of `millstream.common` are true."""

import doctest
import importlib

import pytest

MODULES = [
    "completable_future",
    "config_options",
    "configuration",
    "execution_config",
    "execution_mode",
    "job_execution_result",
    "job_id",
    "job_status",
    "options",
    "reporter_options",
    "restart_strategy",
    "serialization",
    "time",
    "typeinfo",
    "typeinfo_basic",
    "typeinfo_composite",
    "typeinfo_convert",
    "types",
    "watermark_strategy",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(f"millstream.common.{name}")
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, attempted = doctest.testmod(module, optionflags=flags)
    assert attempted > 0
    assert failed == 0
