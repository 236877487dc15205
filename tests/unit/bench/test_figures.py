"""What a benchmark prints, and the clock that it goes by."""

from __future__ import annotations

import inspect
import json
from importlib import import_module
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from millstream.bench.figures import Figures, chart, document, table
from millstream.bench.nexmark import measure
from millstream.bench.nexmark.catalogue import QUERIES
from millstream.bench.nexmark.clock import MarkedBlocks, timed
from millstream.bench.nexmark.generator import Generator
from millstream.bench.nexmark.tally import Tally
from millstream.cli import bench, main
from millstream.errors import JobError, RuntimeUnusable

FOUND = [
    Figures("q1", "millstream", 100, [50.0, 70.0, 60.0], [40.0], 92, "92-ab", 3, {"steady"}),
    Figures("q1", "other <x>", 100, [2.0], [1.0], 92, "92-ab", None, {"whole"}),
    Figures("q2", "millstream", 100, [80.0], [70.0], 1, "1-cd", 3, {"steady"}),
]


def test_the_table_has_medians_and_ratios():
    lines = [[cell.strip() for cell in line.split("|")] for line in table(FOUND).splitlines()]
    assert lines[2][1:-1] == ["q1", "millstream", "100", "60", "50", "70", "40", "3", "92", "-"]
    assert lines[3][1:-1] == ["q1", "other <x> (*)", "100", "2", "2", "2", "1", "1", "92", "30.00x"]
    assert "/ system" not in table(FOUND[:1])


def test_the_document_holds_every_run():
    read = json.loads(document(FOUND, seed=7))
    assert read["seed"] == 7
    assert read["figures"][0]["events_per_second"]["runs"] == [50.0, 70.0, 60.0]
    assert read["figures"][0]["hash"] == "92-ab"


def test_the_chart_has_a_bar_for_each():
    drawn = ElementTree.fromstring(chart(FOUND, "a & b"))
    name = "{http://www.w3.org/2000/svg}"
    bars = [r for r in drawn.iter(f"{name}rect") if r.get("height") == "12" and r.get("x") == "60"]
    lengths = sorted(float(bar.get("width")) for bar in bars)
    # The legend's first square begins where bars do.
    assert len(lengths) == 1 + len(FOUND)
    texts = [text.text for text in drawn.iter(f"{name}text")]
    assert {"a & b", "other <x>", "q1", "q2", "60"} <= set(texts)


def test_the_clock_starts_behind_the_longest_pause(tmp_path):
    # Two processes make 1,000 events each; both rest from 3 to 7 when 600 of the 2,000 are made.
    (tmp_path / "a.marks").write_text("1.0 0\n2.0 150\n3.0 300\n7.0 350\n9.0 1000\n")
    (tmp_path / "b.marks").write_text("1.5 0\n2.5 300\n8.0 1000\n")
    (tmp_path / "a.end").write_text("5.0")
    (tmp_path / "b.end").write_text("11.0")
    found = timed(str(tmp_path), 2_000)
    assert found == {
        "records": 1_400,
        "seconds": 4.0,
        "total_records": 2_000,
        "whole_seconds": 10.0,
        "clock": "steady",
    }


def test_without_a_pause_the_whole_run_counts(tmp_path):
    (tmp_path / "a.marks").write_text("1.0 0\n2.0 1000\n")
    (tmp_path / "a.end").write_text("3.0")
    assert timed(str(tmp_path), 1_000)["clock"] == "whole"
    assert timed(str(tmp_path), 1_000)["seconds"] == 2.0


def test_makers_of_events_leave_marks(tmp_path):
    blocks = MarkedBlocks(Generator(1), str(tmp_path))
    made = [event for number in range(250) for event in blocks(number)]
    assert made[7_777] == Generator(1).event(7_777)
    (file,) = tmp_path.glob("*.marks")
    assert [line.split()[1] for line in file.read_text().splitlines()] == ["0", "5000", "10000"]


def test_a_tally_sees_a_lost_a_repeated_and_a_changed_row():
    def digest(*rows):
        tally = Tally("q1")
        tally.extend(rows)
        return tally.digest()

    right = digest((1, "a"), (2, "b"), (2, "b"))
    assert digest((2, "b"), (1, "a"), (2, "b")) == right
    wrong = [((1, "a"), (2, "b")), ((1, "a"), (2, "b"), (2, "c")), ((1, "b"), (2, "a"), (2, "b"))]
    assert right not in [digest(*rows) for rows in wrong]
    parts = [Tally("q1"), Tally("q1")]
    parts[0].extend([(1, "a"), (2, "b")])
    parts[1].add((2, "b"))
    assert Tally("q1").merge([part.encode() for part in parts]).digest() == right


def test_wrong_results_end_the_benchmark():
    line = {"query": "q2", "system": "millstream", "total_records": 1_000, "hash": "0-00"}
    with pytest.raises(JobError, match="results are wrong"):
        measure.checked(line, 1)
    assert measure.checked(line | {"hash": measure.expected("q2", 1_000, 1)}, 1)["query"] == "q2"


def test_the_command_runs_checks_and_writes(tmp_path):
    target = "-Dexecution.target=in-process"
    files = ["--json", str(tmp_path / "a.json"), "--chart", str(tmp_path / "a.svg")]
    command = ["bench", "nexmark", "q2", "--events", "1020", "--rounds", "1", target, *files]
    done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "| q2 " in done.output
    (found,) = json.loads((tmp_path / "a.json").read_text())["figures"]
    assert found["hash"] == measure.expected("q2", 1_000, 1)
    assert (tmp_path / "a.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["q77"], "no such query"), (["--events", "20"], "50 or more"), (["--rounds", "0"], "1 or")],
)
def test_what_cannot_be_run_is_refused(arguments, said):
    done = CliRunner().invoke(main, ["bench", "nexmark", *arguments])
    assert done.exit_code != 0
    assert said in done.output


def test_other_systems_run_the_queries_that_they_have():
    peers = bench._peers()
    found = peers.peers_of(
        "q5", ["pyflink", "bytewax"], 1_000_000, ["--seed", "3"], ["--seed", "3"]
    )
    assert [(peer.name, peer.records) for peer in found] == [
        ("millstream", 1_000_000),
        ("pyflink", 100_000),
        ("bytewax", 250_000),
    ]
    assert all((peers.harness.PEERS / peer.script).exists() for peer in found)
    alone = peers.peers_of("q9", ["pyflink", "bytewax"], 1_000, [], [])
    assert [peer.name for peer in alone] == ["millstream"]


def test_systems_that_nobody_knows_are_refused():
    done = CliRunner().invoke(main, ["bench", "nexmark", "q1", "--peers", "storm"])
    assert done.exit_code != 0
    assert "no such system" in done.output


def test_without_the_source_tree_there_are_no_other_systems(monkeypatch, tmp_path):
    monkeypatch.setattr(bench.millstream, "__file__", str(tmp_path / "millstream" / "__init__.py"))
    with pytest.raises(RuntimeUnusable, match="source tree"):
        bench._peers()


def test_a_query_is_a_module_of_less_than_sixty_lines():
    for name in QUERIES:
        module = import_module(f"millstream.bench.nexmark.queries.{name}")
        assert len(inspect.getsource(module).splitlines()) < 60
        assert module.query.__doc__.startswith(("(", "All"))
