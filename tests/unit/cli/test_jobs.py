"""Where `millstream stop -p` and `savepoint trigger` have a savepoint written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from millstream.cli import main


@pytest.mark.parametrize(
    "words", [["stop", "live", "-p", "PATH"], ["savepoint", "trigger", "live", "PATH"]]
)
@pytest.mark.parametrize(
    ("typed", "wanted"),
    [("saved", "HERE/saved"), ("/saved", "/saved"), ("s3://bucket/saved", "s3://bucket/saved")],
)
def test_a_relative_path_is_that_of_who_types_it(
    words: list[str],
    typed: str,
    wanted: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver may work in another folder."""
    asked: list[str] = []

    def ask(job: Any, action: str, *, path: str, **_: Any) -> str:
        asked.append(path)
        return path

    monkeypatch.setattr("millstream.cli.jobs.find_job", lambda directory, job: job)
    monkeypatch.setattr("millstream.cli.jobs.ask", ask)
    monkeypatch.chdir(tmp_path)
    typed_words = [typed if word == "PATH" else word for word in words]
    done = CliRunner().invoke(main, [*typed_words, "--dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert asked == [wanted.replace("HERE", str(tmp_path))]
