"""Terms end once, by whatever ends them first, and a paused leader knows by its own clock."""

from __future__ import annotations

import threading

import pytest

from millstream.checkpoint import lease as lease_module
from millstream.checkpoint.lease import LEASE_NAME, TERMS, Lease, latest_term, read_lease
from millstream.errors import ConfigurationError, JobLocked, LeadershipLost
from millstream.ha.election import Term
from millstream.ha.file import FileElection
from millstream.ha.records import JobRecords, JobResult, RunRecord
from millstream.ha.services import HighAvailability, check, join
from millstream.storage.storage import LocalStorage
from tests.waiting import until


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_term_ends_once():
    term, ends = Term(3), []
    term.on_end(lambda: ends.append("told"))
    term.check()
    term.end("first")
    term.end("second")
    assert (term.over, ends) == ("first", ["told"])
    term.on_end(lambda: ends.append("told at once"))
    assert ends == ["told", "told at once"]
    with pytest.raises(LeadershipLost, match="term 3 has ended: first") as caught:
        term.check()
    assert caught.value.code == "LEADERSHIP_LOST"


def test_a_term_that_is_not_confirmed_is_over():
    clock = Clock()
    ends = []
    term = Term(1, valid_for=4.0, clock=clock)
    term.on_end(lambda: ends.append(True))
    clock.now += 4.0
    term.check()
    term.confirm(102.0)
    # An answer that came late does not shorten it.
    term.confirm(101.0)
    clock.now = 106.0
    term.check()
    clock.now = 106.1
    with pytest.raises(LeadershipLost, match=r"not confirmed for 4\.1 s"):
        term.check()
    assert ends == [True]
    term.confirm(106.1)
    assert term.over is not None


def test_a_term_counts_from_the_time_before_it_was_asked_for():
    clock = Clock()
    term = Term(1, valid_for=4.0, since=97.0, clock=clock)
    term.check()
    clock.now = 101.5
    assert term.over


# -- in a folder ------------------------------------------------------------------------------------------------


@pytest.fixture
def storage(tmp_path):
    return LocalStorage(str(tmp_path / "job"))


def take(storage, term, by="election"):
    return Lease.take(storage, "count", term=term, elected_by=by, sleep=lambda seconds: None)


def test_who_is_elected_takes_the_lease_at_once(storage):
    first = take(storage, 4)
    second = take(storage, 5)
    assert (first.took_over, second.took_over) == (False, True)
    second.check()
    assert (latest_term(storage), storage.list(TERMS)) == (5, [f"{5:012d}"])
    with pytest.raises(JobLocked, match="leads it, in term 5"):
        first.check()
    with pytest.raises(JobLocked):
        first.renew()
    first.release()
    assert read_lease(storage).term == 5


def test_a_term_begins_once(storage):
    take(storage, 4)
    with pytest.raises(JobLocked, match="term 4 has begun elsewhere"):
        take(storage, 4)


def test_a_smaller_term_comes_too_late(storage):
    leader = take(storage, 6)
    with pytest.raises(JobLocked, match="in term 6"):
        take(storage, 5)
    leader.check()
    assert latest_term(storage) == 6


def test_a_late_renewal_takes_nothing_away(storage):
    """A leader was paused between the check and the write of its renewal."""
    first = take(storage, 4)
    second = take(storage, 5)
    late = lease_module.msgspec.json.encode(first.record)
    storage.write(LEASE_NAME, late)
    with pytest.raises(JobLocked):
        first.check()
    second.check()
    assert read_lease(storage).owner == second.record.owner
    storage.write(LEASE_NAME, late)
    second.renew()
    assert read_lease(storage) == second.record


def test_a_driver_that_nobody_has_elected_is_not_replaced(storage):
    alone = Lease.acquire(storage, "count")
    with pytest.raises(JobLocked, match="another driver runs the job"):
        Lease.take(storage, "count", term=7, elected_by="e", sleep=lambda seconds: alone.renew())
    alone.check()


def test_two_elections_do_not_take_the_lease_from_each_other(storage):
    first = take(storage, 4, by="one")
    with pytest.raises(JobLocked, match="another driver runs the job"):
        Lease.take(storage, "count", term=9, elected_by="two", sleep=lambda seconds: first.renew())
    first.check()


# -- by files --------------------------------------------------------------------------------------------------


def election(storage, ttl=0.2, **more):
    return FileElection(storage, "count", ttl=ttl, **more)


def test_terms_only_grow(storage):
    stopped = threading.Event()
    one = election(storage)
    first = one.lead(stopped)
    again = one.lead(stopped)
    assert (first.number, again.number) == (1, 2)
    assert first.over == "the driver stands for election again"
    one.close()
    assert again.over == "the driver has left the election"
    other = election(storage)
    assert other.lead(stopped, at_least=41).number == 42
    assert other.lead(stopped).number == 43
    other.close()
    assert other.leader() is None


def test_who_stands_by_leads_when_the_leader_is_silent(storage):
    stopped = threading.Event()
    one, two, seen = election(storage), election(storage), []
    first = one.lead(stopped)
    ended = threading.Event()
    first.on_end(ended.set)
    elected = []
    standby = threading.Thread(target=lambda: elected.append(two.lead(stopped, seen.append)))
    standby.start()
    until(lambda: len(seen) > 2)
    assert not elected
    # It is paused: nothing of it renews any more.
    one._lease._stopped.set()
    standby.join(30)
    assert elected[0].number == 2
    with pytest.raises(LeadershipLost):
        first.check()
    assert ended.is_set()
    one.close()
    elected[0].check()
    assert str(seen[0]) == str(two.leader())
    two.close()


def test_who_stands_by_can_be_stopped(storage):
    stopped = threading.Event()
    one, two, seen = election(storage), election(storage), []
    one.lead(stopped)
    results = []
    standby = threading.Thread(target=lambda: results.append(two.lead(stopped, seen.append)))
    standby.start()
    until(lambda: seen)
    stopped.set()
    standby.join(30)
    assert results == [None]
    two.close()
    one.close()


def test_a_leader_that_cannot_renew_is_told(storage, monkeypatch):
    one = election(storage)
    term = one.lead(threading.Event())

    def broken(self, name, data):
        raise OSError("no such device")

    monkeypatch.setattr(LocalStorage, "write", broken)
    until(lambda: term.over)
    with pytest.raises(LeadershipLost):
        term.check()
    monkeypatch.undo()
    one.close()


# -- what leaders leave each other -------------------------------------------------------------------------------


def test_records(storage):
    records = JobRecords(storage)
    assert (records.run(), records.result()) == (None, None)
    run = RunRecord(id="r", job_name="count", job_id="j", folder="/f", term=1, leader="a:1")
    result = JobResult(id="x", status="FINISHED", term=1, leader="a:1")
    records.begin(run)
    records.end(result)
    assert (records.run(), records.result()) == (run, result)
    records.clean(result)
    assert records.run() is None
    assert not records.result().dirty
    storage.write("result.json", b"{")
    assert records.result() is None


def test_a_folder_and_a_path_of_its_own_for_each_cluster(tmp_path):
    settings = HighAvailability("file", str(tmp_path), cluster_id="/team/a.b")
    found, records = join(settings, "count")
    assert records.root == str(tmp_path / "team%2Fa%2Eb" / "count")
    assert found.place == f"file {records.root}/leader"


def test_zookeeper_without_its_client(tmp_path, monkeypatch):
    settings = HighAvailability("zookeeper", str(tmp_path), quorum="127.0.0.1:1")
    monkeypatch.setattr("millstream.ha.services.find_spec", lambda name: None)
    with pytest.raises(Exception, match="needs kazoo") as caught:
        check(settings)
    assert "millstream[zookeeper]" in caught.value.hint


@pytest.mark.parametrize("root", ["/a/../b", ".", "/a/./b"])
def test_a_path_in_zookeeper_is_not_relative(tmp_path, root):
    settings = HighAvailability("zookeeper", str(tmp_path), quorum="a:1", root=root)
    with pytest.raises(ConfigurationError, match="no relative parts"):
        check(settings)


def test_a_folder_that_cannot_even_be_opened(tmp_path):
    settings = HighAvailability(
        "file", "s3://nowhere-to-be-found?endpoint_override=http://127.0.0.1:1"
    )
    with pytest.raises(ConfigurationError, match="cannot be used"):
        join(settings, "job")
