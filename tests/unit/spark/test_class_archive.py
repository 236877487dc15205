"""The archive of Spark's classes: who writes it, who uses it, and when neither is done."""

from __future__ import annotations

import os
import time

import pytest

from millstream.common.configuration import Configuration
from millstream.datastream.settings import job_settings
from millstream.spark.class_archive import SETTING, archive_options, cache_folder

MAGIC = (0xF00BABA8).to_bytes(4, "little")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(0o755)
    monkeypatch.setenv("PATH", str(java.parent))
    return tmp_path / "millstream"


def new_of(options):
    return options.split("-XX:ArchiveClassesAtExit=")[1]


def write(path, content=MAGIC + b"classes"):
    with open(path, "wb") as file:
        file.write(content)


def test_the_first_start_writes_and_the_next_one_uses(folder):
    write(new_of(archive_options({})))
    used = archive_options({})
    archive = used.split("-XX:SharedArchiveFile=")[1]
    assert archive.startswith(str(folder))
    assert archive.endswith(".jsa")
    assert [path.name for path in folder.iterdir()] == [os.path.basename(archive)]
    assert archive_options({}) == used


def test_one_writer_is_enough(folder):
    assert "ArchiveClassesAtExit" in archive_options({})
    assert archive_options({}) == ""


def test_a_writer_that_was_killed_is_followed_by_another(folder):
    write(new_of(archive_options({})), b"\0\0\0\0 half of it")
    assert archive_options({}) == ""
    old = time.time() - 3600
    for path in folder.iterdir():
        os.utime(path, (old, old))
    assert "ArchiveClassesAtExit" in archive_options({})
    assert [path.suffix for path in folder.iterdir()] == [".writer"]


def test_other_settings_have_another_archive(folder):
    write(new_of(archive_options({})))
    assert "SharedArchiveFile" in archive_options({})
    assert "AtExit" in archive_options({"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"})


def test_old_archives_go(folder):
    for number in range(6):
        settings = {"spark.driver.extraClassPath": f"{number}.jar"}
        write(new_of(archive_options(settings)))
        archive_options(settings)
    assert len(list(folder.glob("*.jsa"))) == 3


@pytest.mark.parametrize(
    "settings",
    [
        {SETTING: "false"},
        {"spark.driver.extraJavaOptions": "-XX:SharedArchiveFile=mine.jsa"},
        {"spark.driver.extraJavaOptions": "-XX:ArchiveClassesAtExit=mine.jsa"},
        {"spark.driver.extraJavaOptions": "-Xshare:off"},
    ],
)
def test_who_wants_none_gets_none(folder, settings):
    assert archive_options(settings) == ""
    assert not list(folder.glob("*"))


def test_the_option_turns_it_off(folder):
    off = Configuration.from_dict({"millstream.java.class-archive": "false"})
    assert archive_options(job_settings(off, None).spark) == ""
    assert archive_options(job_settings(Configuration(), None).spark) != ""


def test_nothing_is_used_that_others_could_have_written(folder):
    folder.mkdir(mode=0o700)
    folder.chmod(0o777)
    assert cache_folder() is None
    assert archive_options({}) == ""


def test_a_folder_that_cannot_be_made_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert archive_options({}) == ""


def test_without_java_there_is_none(folder, monkeypatch):
    monkeypatch.setenv("PATH", str(folder))
    assert archive_options({}) == ""
