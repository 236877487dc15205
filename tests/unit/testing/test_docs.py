"""The examples of docs/testing.md and docs/connectors.md are true."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(("page", "at_least"), [("testing.md", 16), ("connectors.md", 13)])
def test_examples(page, at_least):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, attempted = doctest.testfile(str(DOCS / page), module_relative=False, optionflags=flags)
    assert attempted >= at_least
    assert failed == 0
