"""Where `millstream stop -p`, `savepoint trigger` and `rescale` have a savepoint written, and which job is meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from millstream.cli import main
from millstream.cli import rescale as rescale_module
from millstream.cli.jobs import FoundJob, find_job
from millstream.errors import StateNotFound
from millstream.runtime.driver.requests import ControlAnswer
from millstream.storage.storage import LocalStorage


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


def test_a_relative_path_of_a_rescale_is_that_of_who_types_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ask(job: Any, action: str, *, path: str, **_: Any) -> ControlAnswer:
        asked.append(path)
        return ControlAnswer()

    monkeypatch.setattr(rescale_module, "find_job", lambda directory, job: job)
    monkeypatch.setattr(rescale_module, "driver_of", ask)
    monkeypatch.chdir(tmp_path)
    words = ["rescale", "live", "-p", "2", "--savepointPath", "saved", "--dir", str(tmp_path)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert asked == [str(tmp_path / "saved")]


def test_no_name_is_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`millstream cancel "$JOB"` with a variable that is not set."""
    job = FoundJob(LocalStorage(str(tmp_path)), "live", "4f2a91", 3, None)
    monkeypatch.setattr("millstream.cli.jobs.jobs_in", lambda directory: [job])
    assert find_job(str(tmp_path), "4f") is job
    with pytest.raises(StateNotFound):
        find_job(str(tmp_path), "")
