"""The examples of docs/testing.md are true."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"


def test_examples():
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, attempted = doctest.testfile(str(PAGE), module_relative=False, optionflags=flags)
    assert attempted > 15
    assert failed == 0
