"""The examples of docs/testing.md and of the pages on connectors are true."""

import doctest
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.filterwarnings("ignore::UserWarning:pyiceberg.*")
@pytest.mark.parametrize(
    ("page", "at_least"),
    [
        ("testing.md", 16),
        ("connectors/files.md", 13),
        ("connectors/formats.md", 16),
        ("connectors/delta.md", 12),
        ("connectors/iceberg.md", 14),
        ("connectors/kafka.md", 6),
        ("connectors/postgres.md", 5),
    ],
)
def test_examples(page, at_least):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, attempted = doctest.testfile(str(DOCS / page), module_relative=False, optionflags=flags)
    assert attempted >= at_least
    assert failed == 0


def test_the_page_of_spark_frames_shows_the_example():
    _, program, _ = re.split(
        r"^```$", (DOCS / "connectors/spark_frames.md").read_text(), flags=re.MULTILINE
    )
    example = (DOCS.parent / "examples/spark_frames.py").read_text()
    assert example.endswith(program)
