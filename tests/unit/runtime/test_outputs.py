"""What leaves a job on the driver."""

import logging
from types import SimpleNamespace

import pytest

from millstream.api.sink import Committer, DeliveryGuarantee, Sink
from millstream.errors import InvalidArgument, SinkError
from millstream.runtime.driver import outputs as module
from millstream.runtime.driver.outputs import EpochRow, JobOutputs
from millstream.runtime.wire.codec import encode
from millstream.runtime.wire.rows import client_edge
from tests.support import environment
from tests.unit.graph.programs import stream_graph


class Told(Committer):
    """Notes what it is told."""

    def __init__(self, log, error=None):
        self.log = log
        self.error = error

    def commit(self, epoch, committables):
        self.note("commit", epoch, committables)

    def commit_again(self, epoch, committables):
        self.note("again", epoch, committables)

    def note(self, how, epoch, committables):
        if self.error is not None:
            raise self.error
        self.log.append((how, self.job_id, self.sink, epoch, list(committables)))

    def close(self):
        self.log.append("closed")


class Tells(Sink):
    def __init__(self, log, guarantee=DeliveryGuarantee.EXACTLY_ONCE, error=None):
        self.log = log
        self.guarantee = guarantee
        self.error = error

    def create_writer(self, context):
        raise AssertionError("only the driver is here")

    def create_committer(self):
        return Told(self.log, self.error)


def outputs_of(*ends):
    """The outputs of a job with these ends, each a function of a stream."""
    env = environment()
    numbers = env.from_collection([1, 2])
    for end in ends:
        end(numbers)
    graph = stream_graph(env)
    return JobOutputs(SimpleNamespace(graph=graph)), graph


def sink(log, uid="files", **options):
    return lambda stream: stream.sink_to(Tells(log, **options)).uid(uid)


def collect(into):
    from millstream.graph.operators import CollectOp

    return lambda stream: stream._sink("collect", CollectOp(into))


def row_for(graph, records):
    (node,) = [n for n in graph.nodes.values() if n.name == "collect"]
    return EpochRow(client_edge(node.id), 0, 0, encode(records))


@pytest.mark.parametrize(
    ("guarantees", "exactly"),
    [
        ([], False),
        ([DeliveryGuarantee.AT_LEAST_ONCE], False),
        ([DeliveryGuarantee.EXACTLY_ONCE], True),
        ([DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.EXACTLY_ONCE], True),
        ([DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE], True),
    ],
)
def test_one_sink_that_is_exact_makes_the_job_so(guarantees, exactly):
    ends = [sink([], f"{n}", guarantee=one) for n, one in enumerate(guarantees)]
    assert outputs_of(lambda stream: stream.print(), *ends)[0].exactly_once is exactly


@pytest.mark.parametrize(
    ("collects", "commits", "streams"),
    [(False, False, False), (True, False, True), (False, True, False), (True, True, False)],
)
def test_results_stream_if_nothing_else_leaves_the_job(collects, commits, streams):
    ends = [collect([].extend)] * collects + [sink([])] * commits
    assert outputs_of(lambda stream: stream.print(), *ends)[0].streams is streams


def test_rows_reach_their_consumer_and_no_other():
    seen = []
    outputs, graph = outputs_of(collect(seen.extend), sink([]))
    row = row_for(graph, [1, 2])
    assert outputs.deliver(row) is True
    assert outputs.deliver(EpochRow(row.edge + 1000, 0, 0, row.payload)) is False
    assert seen == [1, 2]


def test_every_sink_is_told_who_has_written_what(monkeypatch):
    log, places = [], []
    outputs, _ = outputs_of(sink(log, "one"), sink(log, "two"), sink(log, "three"))
    monkeypatch.setattr(module, "reached", places.append)
    outputs.commit(7, {"one": [b"a"], "three": [b"b", b"c"]}, job_id="4f")
    assert log == [
        ("commit", "4f", "one", 7, [b"a"]),
        ("commit", "4f", "two", 7, []),
        ("commit", "4f", "three", 7, [b"b", b"c"]),
    ]
    assert places == ["between commits"] * 2


def test_what_may_have_been_committed_is_committed_again_and_nothing_else():
    log = []
    outputs, _ = outputs_of(sink(log, "one"), sink(log, "two"))
    outputs.commit(7, {"two": [b"a"]}, job_id="4f", again=True)
    assert log == [("again", "4f", "two", 7, [b"a"])]


def test_a_sink_that_cannot_commit_is_named():
    outputs, _ = outputs_of(sink([], error=OSError("disk gone")))
    with pytest.raises(SinkError, match=r"could not commit epoch 3: OSError: disk gone") as caught:
        outputs.commit(3, {"files": [b"a"]})
    assert caught.value.evidence["epoch"] == 3
    assert isinstance(caught.value.__cause__, OSError)


def test_an_error_with_a_code_stays_what_it_is():
    error = InvalidArgument("no such table")
    outputs, _ = outputs_of(sink([], error=error))
    with pytest.raises(InvalidArgument) as caught:
        outputs.commit(3, {"files": [b"a"]})
    assert caught.value is error


def test_committers_are_closed():
    log = []
    outputs, _ = outputs_of(sink(log, "one"), sink(log, "two"))
    outputs.close()
    assert log == ["closed", "closed"]


def test_the_log_tells_what_each_sink_promises(caplog):
    with caplog.at_level(logging.INFO, "millstream.job"):
        outputs_of(sink([], guarantee=DeliveryGuarantee.AT_LEAST_ONCE))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("sink '")
    assert "at-least-once" in line.lower().replace("_", "-")


def test_lines_are_printed_at_once(monkeypatch):
    seen = []
    monkeypatch.setattr("builtins.print", lambda *args, **options: seen.append((args, options)))
    module._print_lines(["a", "b"])
    assert seen == [(("a\nb",), {"flush": True})]
