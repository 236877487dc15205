"""What a session keeps in files: submitted programs, the history, logs."""

from __future__ import annotations

import os
import threading

from millstream.session.history import JobHistory, JobRecord
from millstream.session.logs import LogPump, follow, last_lines, older
from millstream.session.programs import SubmittedProgram
from millstream.session.registry import Registry, Submission
from millstream.storage.open import open_storage
from tests.waiting import until


def record(number, **more):
    return JobRecord(
        id=f"{number:032x}",
        name=f"job {number}",
        status="FINISHED",
        program="job.py",
        submission=f"s{number}",
        started_at=float(number),
        ended_at=float(number),
        **more,
    )


def test_the_oldest_are_forgotten(tmp_path):
    history = JobHistory(open_storage(str(tmp_path)), kept=3)
    history.archive(record(0).id, {"/jobs/0": {"a": 1}})
    forgotten = [old for number in range(5) for old in history.add(record(number))]
    assert [old.name for old in forgotten] == ["job 0", "job 1"]
    assert [kept.name for kept in history.all()] == ["job 2", "job 3", "job 4"]
    assert history.document(record(0).id, "/jobs/0") is None
    assert len(list((tmp_path / "history").iterdir())) == 3


def test_what_rest_answered_is_kept_by_path(tmp_path):
    history = JobHistory(open_storage(str(tmp_path)))
    history.archive("a", {"/jobs/a": {"name": "é"}, "/jobs/a/plan": []})
    assert bytes(history.document("a", "/jobs/a/plan")) == b"[]"
    assert history.document("a", "/jobs/a/other") is None
    assert history.document("b", "/jobs/b") is None


def test_damaged_records_do_not_hide_the_others(tmp_path):
    history = JobHistory(open_storage(str(tmp_path)))
    history.add(record(1))
    (tmp_path / "history" / "x.json").write_text("{")
    assert [kept.name for kept in history.all()] == ["job 1"]


def test_submitted_programs_come_back_as_they_were(tmp_path):
    registry = Registry(open_storage(str(tmp_path)))
    program = SubmittedProgram(name="job.py", script="program/job.py", arguments=("ä", "x" * 9999))
    late = Submission(id="b", program=program, package="p", submitted_at=2.0)
    early = Submission(id="a", program=program, package="p", submitted_at=1.0, checkpointed=True)
    registry.add(late, b"zip")
    registry.add(early, b"zip")
    assert Registry(open_storage(str(tmp_path))).all() == [early, late]
    assert registry.package("p") == b"zip"
    registry.remove("a")
    registry.remove_package("p")
    assert registry.all() == [late]
    assert registry.packages() == []


def test_a_log_has_an_end(tmp_path):
    path = tmp_path / "a.log"
    reading, writing = os.pipe()
    pump = LogPump(reading, path, most=5000)
    for number in range(3000):
        os.write(writing, b"%06d\n" % number)
    os.close(writing)
    pump.stop()
    assert path.stat().st_size <= 5000
    assert older(path).stat().st_size <= 5000
    lines = last_lines(path, 10_000)
    assert lines[-1] == "002999"
    # The first may be cut.
    assert lines[1:] == [f"{n:06d}" for n in range(3001 - len(lines), 3000)]
    assert last_lines(path, 2) == ["002998", "002999"]


def test_a_pipe_that_somebody_else_holds_does_not_hold_the_log(tmp_path):
    reading, writing = os.pipe()
    pump = LogPump(reading, tmp_path / "a.log", most=5000)
    os.write(writing, b"last words\n")
    pump.stop()
    os.close(writing)
    assert (tmp_path / "a.log").read_text() == "last words\n"


def test_the_last_lines_of_a_log_are_followed(tmp_path):
    path = tmp_path / "log"
    older(path).write_text("one\ntw")
    path.write_text("o\nthree\nfo")
    assert "".join(follow(path, lambda: True, lines=3)) == "two\nthree\nfo"
    assert "".join(follow(path, lambda: True)) == "one\ntwo\nthree\nfo"
    looks = iter([False, True])

    def over():
        if ended := next(looks, True):
            path.write_text("o\nthree\nfour\n")
        return ended

    assert "".join(follow(path, over, sleep=lambda seconds: None, lines=1)) == "four\n"


def test_a_log_is_followed_also_when_it_begins_anew(tmp_path):
    path = tmp_path / "a.log"
    over = threading.Event()
    seen = []
    path.write_text("one\n")

    def read():
        seen.extend(follow(path, over.is_set, sleep=lambda seconds: None))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    until(lambda: "one" in "".join(seen))
    os.replace(path, older(path))
    path.write_text("two\n")
    until(lambda: "two" in "".join(seen))
    over.set()
    thread.join(30)
    assert "".join(seen) == "one\ntwo\n"
