"""The published kill test without its kills: the ledger, what is run next, what is kept of a round, and the page."""

from __future__ import annotations

import doctest
import json
import re
import subprocess
import sys
import tempfile
from xml.etree import ElementTree

import pytest

from tests.chaos import kill_page, kill_test
from tests.chaos.chaos import Kill
from tests.chaos.ledger import Ledger, Round, Strike

JOBS = ["state", "time"]


def a_round(job="state", seed=1000, **facts):
    strikes = [Strike("driver", "after manifest", 8.0), Strike("worker", "mid batch", 1.5)]
    return Round(
        job,
        seed,
        began="2026-11-18 01:00",
        seconds=360.0,
        commit="0123456789",
        machine="2 cores, 8 GiB, load before the run 0.1; Linux 6",
        **{"strikes": strikes, "records": 500, **facts},
    )


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Those of rounds that are not clean stay, here. Git is not asked each time."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(kill_test, "_commit", lambda: "0123456789")


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "kill_test.jsonl")


def plays(facts=None):
    """A matrix whose rounds strike a driver and find what they are told to."""

    def play(one, folder):
        one.strikes = [Strike("driver", "restore", 2.0)]
        one.records = 10
        for name, value in (facts or {}).get((one.job, one.seed), {}).items():
            setattr(one, name, value)

    return dict.fromkeys(JOBS, play)


def run(ledger, matrix, *words):
    return kill_test.main(["--ledger", str(ledger.path), *words], matrix)


# -- the ledger ----------------------------------------------------------------------------------------


def test_a_round_is_read_as_it_was_written(ledger):
    assert ledger.rounds() == []
    rounds = [a_round(), a_round("time", 1001, lost=2, failures=["exit code 1"])]
    for one in rounds:
        ledger.append(one)
    assert ledger.rounds() == rounds
    assert [one.clean for one in ledger.rounds()] == [True, False]


def test_half_a_line_counts_as_none_and_spoils_nothing(ledger):
    ledger.append(a_round())
    whole = ledger.path.read_bytes()
    for cut in (1, 30, len(whole) - 1):
        ledger.path.write_bytes(whole + whole[:cut])
        assert ledger.rounds() == [a_round()]
        ledger.append(a_round(seed=1001))
        assert [one.seed for one in ledger.rounds()] == [1000, 1001]


def test_of_two_lines_of_a_round_the_first_counts(ledger):
    ledger.append(a_round())
    ledger.append(a_round(lost=5))
    assert ledger.rounds() == [a_round()]


def test_a_note_belongs_to_a_round(ledger):
    ledger.append(a_round(lost=1))
    with ledger.path.open("a") as file:
        file.write(json.dumps({"job": "state", "seed": 1000, "note": "fixed by abc"}) + "\n")
    assert len(ledger.rounds()) == 1
    assert ledger.notes() == {("state", 1000): "fixed by abc"}


def test_two_runs_do_not_write_to_one_ledger(ledger):
    with ledger.held(), pytest.raises(SystemExit, match="another kill test"):
        run(ledger, plays(), "--rounds", "1")


# -- what is run ---------------------------------------------------------------------------------------


def test_the_job_with_the_fewest_kills_is_next():
    assert kill_test.next_round([], JOBS, 1) == Round("state", 1000)
    assert kill_test.next_round([a_round()], JOBS, 1) == Round("time", 1000)
    done = [a_round(), a_round("time", 1000), a_round("time", 1001)]
    assert kill_test.next_round(done, JOBS, 1) == Round("state", 1001)
    assert kill_test.next_round(done, ["time"], 1) == Round("time", 1002)
    assert kill_test.next_round(done, JOBS, 2) == Round("state", 2000)


def test_a_second_run_goes_on_where_the_first_ended(ledger):
    assert run(ledger, plays(), "--rounds", "3") == 0
    first = ledger.path.read_text()
    assert run(ledger, plays(), "--rounds", "2") == 0
    assert ledger.path.read_text().startswith(first)
    rounds = [(one.job, one.seed) for one in ledger.rounds()]
    assert rounds == [
        ("state", 1000),
        ("time", 1000),
        ("state", 1001),
        ("time", 1001),
        ("state", 1002),
    ]


def test_a_round_that_is_interrupted_is_run_again(ledger):
    def interrupted(one, folder):
        raise KeyboardInterrupt

    assert run(ledger, {"state": interrupted}, "--rounds", "2") == 0
    assert ledger.rounds() == []
    assert run(ledger, plays(), "--rounds", "1") == 0
    assert [one.seed for one in ledger.rounds()] == [1000]


def test_no_round_begins_after_its_time(ledger):
    assert run(ledger, plays(), "--minutes", "0") == 0
    assert ledger.rounds() == []
    assert "No round has been run yet" in (ledger.path.parent / "kill_test.md").read_text()


def test_what_is_wrong_is_kept_and_said_and_the_next_rounds_go_on(ledger, capsys):
    matrix = plays({("state", 1000): {"lost": 3}})
    assert run(ledger, matrix, "--rounds", "2") == 1
    assert [one.lost for one in ledger.rounds()] == [3, 0]
    assert "NOT CLEAN" in capsys.readouterr().err


def test_a_round_that_struck_nothing_does_not_count_and_is_the_last(ledger, capsys):
    rounds = []

    def never_ready(one, folder):
        rounds.append(one)
        one.failures = ["a driver neither goes on nor ends"]

    assert run(ledger, {"state": never_ready}, "--rounds", "5") == 1
    assert len(rounds) == 1
    assert ledger.rounds() == []
    assert "nothing was struck" in capsys.readouterr().err


def test_a_round_that_breaks_is_a_failure_without_paths_of_this_machine(ledger, tmp_path):
    def broken(one, folder):
        one.strikes = [Strike("driver", "restore")]
        raise OSError(f"no file {folder}/run-0/out, nor {tmp_path}/more")

    assert run(ledger, {"state": broken}, "--rounds", "1") == 1
    (one,) = ledger.rounds()
    assert one.failures == ["OSError: no file .../run-0/out, nor ..."]
    assert str(tmp_path) not in ledger.path.read_text()


def test_jobs_that_are_not_there_are_refused(ledger, capsys):
    with pytest.raises(SystemExit):
        run(ledger, plays(), "--jobs", "state,tme")
    assert "there are state, time" in capsys.readouterr().err


def test_every_job_of_the_chaos_tests_is_in_the_matrix():
    assert kill_test.JOBS.keys() | {"ha", "scaling"} == kill_test.MATRIX.keys()


def test_bugs_can_still_be_planted():
    """What they change is private, and may have moved."""
    program = "from tests.chaos.planted import PLANTED, plant\nfor name in PLANTED: plant(name)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=kill_test.ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_kills_of_a_real_round_become_strikes(monkeypatch):
    class Done:
        def __init__(self, *args, **options):
            self.failures, self.verdict = [], kill_test.Verdict(records=7, wrong=1)
            self.starts = self.rescales = self.savepoints = 1
            self.done = [
                Kill("restore", "driver", True, 3.14159),
                Kill("while ending", "driver", False),
                Kill("the broker", "broker", True),
            ]

        def run(self):
            pass

    monkeypatch.setattr(kill_test, "Chaos", Done)
    one = kill_test.play(Round("kafka", 1000))
    assert one.strikes == [Strike("driver", "restore", 3.14), Strike("server", "the broker")]
    assert (one.missed, one.records, one.wrong, one.clean) == (1, 7, 1, False)


# -- the page ------------------------------------------------------------------------------------------


def test_the_page_has_the_figures():
    rounds = [a_round(), a_round("time", 1000), a_round("time", 1001, disordered=2, missed=1)]
    text = kill_page.page(rounds, {("time", 1001): "a planted bug"})
    assert "3 drivers and 3 workers killed" in text
    assert "in 3 rounds and 0.3 hours" in text
    assert "1,500 ids **0 lost, 0 doubled, 2 out of order, 0 wrong**" in text
    assert "To the goal: 997 drivers and 997 workers." in text
    assert "| time | 2 | 2 | 2 | 0 | 0 | 1,000 | 0 | 0 | 2 | 0 | 0 |" in text
    assert "| all | drivers | 3 | 8.0 s | 8.0 s | 8.0 s | 8.0 s |" in text
    assert "| workers | mid batch | 3 | 1.5 s" in text
    assert "| time | 1001 | 0123456789 | 2 disordered | a planted bug |" in text
    assert "1 kills more came too late" in text


def test_a_clean_page_says_so():
    strikes = [Strike("driver", "restore", 1.0)] * 1000 + [Strike("worker", "a worker", 1.0)] * 1000
    text = kill_page.page([a_round(strikes=strikes)], {})
    assert "The goal is reached." in text
    assert "## Rounds that were not clean\n\nNone." in text


def test_percentiles_are_times_that_were_measured():
    times = [float(n) for n in range(1, 101)]
    assert [kill_page.percentile(times, share) for share in (0.5, 0.9, 0.99)] == [50.0, 90.0, 99.0]
    assert kill_page.percentile([2.0, 1.0], 0.99) == 2.0


def test_the_charts_can_be_drawn(ledger):
    ledger.append(a_round())
    ledger.append(a_round("ha", strikes=[Strike("pause", "leader: paused", 4.0)]))
    kill_page.write(ledger, ledger.path.parent)
    text = (ledger.path.parent / "kill_test.md").read_text()
    shown = re.findall(r"\]\((images/[^)]+)\)", text)
    assert len(shown) == 2
    for name in shown:
        picture = ElementTree.parse(ledger.path.parent / name).getroot()
        assert picture[0].get("fill") == "white"
        assert len(picture) > 5


def test_the_published_page_is_that_of_its_ledger():
    published = Ledger(kill_test.LEDGER)
    text = kill_page.page(published.rounds(), published.notes())
    assert (kill_test.LEDGER.parent / "kill_test.md").read_text() == text
    assert not re.search(r"/(tmp|home|work|root)/", text), "a folder of some machine"


@pytest.mark.parametrize("module", [kill_page, kill_test])
def test_examples(module):
    failed, attempted = doctest.testmod(module)
    assert (failed, attempted > 0) == (0, True)
