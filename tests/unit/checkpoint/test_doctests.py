"""The examples in the docstrings of `millstream.storage` are true."""

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["storage", "remote", "open"])
def test_examples(name):
    module = importlib.import_module(f"millstream.storage.{name}")
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, attempted = doctest.testmod(module, optionflags=flags)
    assert attempted > 0
    assert failed == 0
