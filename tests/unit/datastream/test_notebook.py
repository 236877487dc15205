"""What notebooks show: well-formed, escaped, and nothing runs for it."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from millstream.common import Types
from millstream.common.job_client import JobClient
from millstream.common.job_execution_result import JobExecutionResult
from millstream.common.job_id import JobID
from millstream.common.job_status import JobStatus
from millstream.datastream import (
    CoMapFunction,
    OutputTag,
    ProcessFunction,
    StreamExecutionEnvironment,
)

EVIL = "<script>alert('\"&')</script>"


class Reader(HTMLParser):
    """Checks that every tag is closed in its turn; keeps the caption and the rows."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.caption = ""
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["caption"]:
            self.caption += data
        elif self.open[-1:] in (["td"], ["th"]):
            self.rows[-1][-1] += data
        else:
            assert not data.strip(), data


def read(shown: Any) -> Reader:
    reader = Reader()
    reader.feed(shown._repr_html_())
    reader.close()
    assert reader.open == []
    assert reader.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    return reader


class Poison(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        pytest.fail("a stream that is shown must not run")


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment("in-process")
    return env.set_parallelism(2)


def test_a_stream_is_its_operators(env: StreamExecutionEnvironment) -> None:
    words = env.from_collection(["a", "b"], Types.STRING())
    stream = words.map(str.upper, Types.STRING()).set_parallelism(3).name("upper").key_by(0).sum(1)
    page = read(stream)
    assert page.caption == "DataStream: what comes from 3"
    assert page.rows == [
        ["no.", "operator", "parallelism", "type", "reads"],
        ["1", "Source: Collection Source", "1 (default)", "String", ""],
        ["2", "upper", "3", "String", "1"],
        ["3", "Sum", "2 (default)", "String", "2, HASH by field 0"],
    ]


def test_virtual_steps_stand_where_they_are_read(env: StreamExecutionEnvironment) -> None:
    one = env.from_collection([1]).process(Poison())
    late = one.get_side_output(OutputTag("late"))
    both = late.union(one.rebalance())
    assert (
        read(both).caption == "DataStream: what comes from 2, side output 'late' and 2, REBALANCE"
    )

    def parity(n: int) -> int:
        return n % 2

    assert read(both.key_by(parity)).caption.endswith("REBALANCE, HASH by parity")
    assert read(both.key_by(parity)).caption.startswith("KeyedStream: ")


def test_two_inputs(env: StreamExecutionEnvironment) -> None:
    joined = env.from_collection([1]).connect(env.from_collection([2]))

    class Same(CoMapFunction):
        def map1(self, value: Any) -> Any:
            return value

        def map2(self, value: Any) -> Any:
            return value

    assert read(joined.map(Same())).rows[-1] == ["3", "Co-Map", "2 (default)", "", "1; 2"]


def test_showing_changes_nothing(env: StreamExecutionEnvironment) -> None:
    """Ids of operators decide about uids that were not set."""
    stream = env.from_collection([1]).map(lambda n: n)
    before = env._next_id()
    read(stream)
    assert env._next_id() == before + 1
    assert env._sinks == []


def test_everything_is_escaped(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([1]).map(str).name(EVIL)
    assert read(stream).rows[-1][1] == EVIL
    tagged = stream.get_side_output(OutputTag(EVIL))
    assert EVIL in read(tagged).caption
    result = JobExecutionResult(JobID("0" * 32), 5, {EVIL: EVIL})
    assert read(result).rows[-1] == [EVIL, EVIL]
    for shown in (stream, tagged, result):
        assert "<script" not in shown._repr_html_()


def test_a_result(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).add_sink(lambda n: None)
    rows = dict(read(env.execute()).rows)
    assert len(rows["id"]) == 32
    assert rows["run time"].endswith(" s")


def test_a_job_while_it_runs_and_when_it_has_ended(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1, 2]).add_sink(lambda n: None)
    client = env.execute_async(EVIL)
    assert "status" in dict(read(client).rows)
    client.get_job_execution_result().result()
    page = read(client)
    assert page.caption == f"Job '{EVIL}'"
    assert dict(page.rows)["status"] == "FINISHED"
    assert dict(page.rows)["records"].startswith("2 (")


def test_a_job_before_its_first_epoch_and_after_a_failure() -> None:
    class Run:
        status = JobStatus.FAILED
        metrics = None
        error = ValueError(EVIL)

    page = read(JobClient("0" * 32, "x", Run()))
    assert dict(page.rows) == {"id": "0" * 32, "status": "FAILED", "error": EVIL}


def test_results_are_shown_and_not_taken(env: StreamExecutionEnvironment) -> None:
    with env.from_collection([1, 2]).execute_and_collect(EVIL) as results:
        page = read(results)
        assert page.caption == f"Results of '{EVIL}'; iterate to read them"
        assert "status" in dict(page.rows)
        assert sorted(results) == [1, 2]
