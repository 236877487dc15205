"""Programs are packed where the command is given and unpacked where they run."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from millstream.errors import DependencyError, SessionError
from millstream.session import programs
from millstream.session.programs import SubmittedProgram, pack, unpack


def names(package):
    return set(zipfile.ZipFile(io.BytesIO(package)).namelist())


@pytest.fixture
def place(tmp_path):
    place = tmp_path / "unpacked"
    place.mkdir()
    return place


def test_what_a_script_may_import_goes_along(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("job.py", "helpers.py", "data.csv", "lib/inner.py", "other/unused.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("import lib.inner\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("")
    (tmp_path / "package/words.txt").write_text("a b")
    (tmp_path / "package/__pycache__").mkdir()
    (tmp_path / "package/__pycache__/x.pyc").write_text("")
    packed = pack(script="job.py", module=None)
    assert names(packed.package) == {
        "program/job.py",
        "program/helpers.py",
        "program/lib/inner.py",
        "program/package/__init__.py",
        "program/package/words.txt",
    }


def test_the_copy_outlives_the_file(tmp_path, place, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text("first")
    packed = pack(script="job.py", module=None, arguments=("a", "b" * 100_000))
    (tmp_path / "job.py").unlink()
    program, name = unpack(packed.program, packed.package, place)
    assert (place / name / "program/job.py").read_text() == "first"
    assert program.script == str(place / name / "program/job.py")
    assert program.arguments == ("a", "b" * 100_000)
    assert program.folder == str(tmp_path)


def test_the_same_content_has_the_same_place(tmp_path, place, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text("same")
    first, second = pack(script="job.py", module=None), pack(script="job.py", module=None)
    (tmp_path / "job.py").write_text("other")
    third = pack(script="job.py", module=None)
    places = [unpack(made.program, made.package, place)[1] for made in (first, second, third)]
    assert places[0] == places[1] != places[2]
    assert len(list(place.iterdir())) == 2


def test_what_is_shipped_keeps_its_marks(tmp_path, place, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("job.py", "requirements.txt", "wheels/a.whl", "lib/x.py", "data.zip"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    packed = pack(
        script="job.py",
        module=None,
        paths=("lib",),
        overrides={
            "python.files": str(tmp_path / "lib"),
            "python.requirements": "requirements.txt#wheels",
            "python.archives": "data.zip#data,data.zip",
            "pipeline.name": "a#b,c",
        },
    )
    program, _ = unpack(packed.program, packed.package, place)
    wanted, _, packages = program.overrides["python.requirements"].partition("#")
    assert Path(wanted).read_text() == "requirements.txt"
    assert Path(f"{packages}/a.whl").read_text() == "wheels/a.whl"
    first, second = program.overrides["python.archives"].split(",")
    assert first.endswith("data.zip#data")
    assert Path(second).read_text() == "data.zip"
    assert program.paths == (program.overrides["python.files"],)
    assert Path(f"{program.paths[0]}/x.py").read_text() == "lib/x.py"
    assert program.overrides["pipeline.name"] == "a#b,c"


def test_a_module_of_the_working_folder(tmp_path, place, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/count.py").write_text("")
    packed = pack(script=None, module="jobs.count")
    assert names(packed.package) == {"program/jobs/count.py"}
    assert names(pack(script=None, module="json.tool").package) == set()


def test_what_is_not_there_is_said_at_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text("")
    with pytest.raises(DependencyError, match=r"nothing\.zip"):
        pack(script="job.py", module=None, overrides={"python.archives": "nothing.zip"})


def test_a_script_beside_a_whole_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "MOST_FILES", 3)
    for number in range(4):
        (tmp_path / f"m{number}.py").write_text("")
    with pytest.raises(DependencyError, match="folder of its own"):
        pack(script=str(tmp_path / "m0.py"), module=None)


@pytest.mark.parametrize("name", ["../x.py", "/x.py", "program/../../x.py", "a\\..\\x.py"])
def test_a_package_stays_inside_of_its_folder(name, place):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr(name, "x")
    with pytest.raises(SessionError):
        unpack(SubmittedProgram(name="x"), made.getvalue(), place)
    assert list(place.iterdir()) == []


def test_what_is_no_package(place):
    with pytest.raises(SessionError):
        unpack(SubmittedProgram(name="x"), b"nothing", place)
    assert list(place.iterdir()) == []
