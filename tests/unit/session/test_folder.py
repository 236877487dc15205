"""The folder of a session: names, modes, who holds it."""

from __future__ import annotations

import os
import stat

import pytest

from millstream.errors import ConfigurationError, SessionError
from millstream.session.folder import SessionFacts, SessionFolder, sessions


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a b", "ä", "x" * 65, "-d", "a\n"])
def test_names_that_are_no_file_names_are_refused(name, tmp_path):
    with pytest.raises(ConfigurationError):
        SessionFolder(name, tmp_path)


def test_it_is_for_its_owner_alone(tmp_path):
    folder = SessionFolder("a", tmp_path)
    folder.path.mkdir(mode=0o755)
    folder.make()
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.logs.stat().st_mode) == 0o700


def test_one_session_holds_it(tmp_path):
    first, second = SessionFolder("a", tmp_path), SessionFolder("a", tmp_path)
    first.make()
    assert not second.alive
    assert first.take()
    assert second.alive
    assert not second.take()
    first.let_go()
    assert not second.alive
    assert second.take()
    second.let_go()


def test_what_died_is_told_from_what_ended(tmp_path):
    folder = SessionFolder("a", tmp_path)
    folder.make()
    folder.take()
    folder.write_facts(SessionFacts(name="a", pid=7, started_at=1.0, version="1"))
    again = SessionFolder("a", tmp_path)
    found = again.facts()
    assert found is not None
    assert found.pid == 7
    folder.let_go()
    assert again.facts() is None


def test_what_was_temporary_goes_with_it_or_with_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed = SessionFolder("a", tmp_path)
    killed.make()
    left = killed.make_temporary()
    (left / "x").write_text("")
    following = SessionFolder("a", tmp_path)
    made = following.make_temporary()
    assert not left.exists()
    assert made.is_dir()
    following.let_go()
    assert not made.exists()


def test_a_path_that_no_socket_can_have(tmp_path):
    deep = tmp_path / ("x" * 100)
    with pytest.raises(SessionError, match="MILLSTREAM_SESSIONS_DIR"):
        SessionFolder("a", deep).make()


def test_sessions_are_found(tmp_path):
    assert sessions(tmp_path / "none") == []
    for name in ("b", "a"):
        SessionFolder(name, tmp_path).make()
    os.mkdir(tmp_path / ".other")
    assert [folder.name for folder in sessions(tmp_path)] == ["a", "b"]
