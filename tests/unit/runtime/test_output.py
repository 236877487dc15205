"""The sending side of an edge: when a buffer goes out, to whom, and what cannot go."""

import threading

import pytest

from millstream.errors import RecordNotSerializable
from millstream.runtime.wire import output
from millstream.runtime.wire.codec import END_OF_INPUT, WATERMARK, Mark, decode
from millstream.runtime.wire.output import EdgeWriter
from millstream.runtime.wire.rows import RowBatch


class Sent:
    """A writer and what has come out of it."""

    def __init__(self, targets=(0,), **settings):
        self.rows = RowBatch()
        settings.setdefault("timeout_ms", -1)
        self.writer = EdgeWriter(7, "Map", targets, self.rows, **settings)

    def send(self, *records, index=0):
        for record in records:
            self.writer.appends[index](record)

    def taken(self):
        """(target, channel, sequence, records) of each buffer since the last call."""
        columns = [column.to_pylist() for column in self.rows.take().columns]
        return [
            (target, channel, sequence, decode(payload).records)
            for target, channel, sequence, edge, payload in zip(*columns, strict=True)
            if edge == 7
        ]


def test_nothing_goes_out_before_the_limit():
    sent = Sent()
    sent.send(*range(sent.writer.limit - 1))
    sent.writer.flush_full()
    assert sent.taken() == []
    sent.send("last")
    sent.writer.flush_full()
    assert sent.taken() == [(0, 0, 0, [*range(sent.writer.limit // 4 - 1), "last"])]


def test_small_records_let_the_limit_grow_to_the_most_records():
    sent = Sent(max_records=1000)
    limits = []
    for _ in range(4):
        sent.send(*[1] * sent.writer.limit)
        sent.writer.flush_full()
        limits.append(sent.writer.limit)
    assert limits == [1000, 1000, 1000, 1000]
    assert [len(records) for _, _, _, records in sent.taken()] == [256, 1000, 1000, 1000]


def test_the_limit_is_never_above_the_most_records():
    sent = Sent(max_records=3)
    sent.send(1, 2, 3)
    sent.writer.flush_full()
    assert len(sent.taken()) == 1


def test_large_records_shrink_the_buffer_to_its_bytes():
    sent = Sent(max_bytes=100_000)
    sent.send(*[b"x" * 10_000] * 256)
    sent.writer.flush_full()
    sent.taken()
    assert sent.writer.limit == 9
    sent.send(*[b"x" * 10_000] * 9)
    sent.writer.flush_full()
    (buffer,) = sent.taken()
    assert len(buffer[3]) == 9


def test_a_huge_record_goes_alone():
    sent = Sent(max_bytes=1000)
    sent.send(b"x" * 5_000_000)
    sent.writer.flush_all()
    assert sent.writer.limit == 1
    sent.send(b"y" * 5_000_000)
    sent.writer.flush_full()
    assert [len(records) for _, _, _, records in sent.taken()] == [1, 1]
    assert sent.writer.bytes_out > 10_000_000


def test_timeout_sends_everything(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(output.time, "monotonic", lambda: now[0])
    sent = Sent(targets=(0, 1), timeout_ms=50)
    sent.send("a")
    sent.send("b", index=1)
    now[0] += 0.049
    sent.writer.flush_full()
    assert sent.taken() == []
    now[0] += 0.002
    sent.writer.flush_full()
    assert sent.taken() == [(0, 0, 0, ["a"]), (1, 0, 1, ["b"])]
    sent.send("c")
    sent.writer.flush_full()
    assert sent.taken() == [], "the time counts from the last flush"


def test_timeout_of_zero_sends_at_once_and_minus_one_never(monkeypatch):
    monkeypatch.setattr(output.time, "monotonic", lambda: 1e9)
    at_once, never = Sent(timeout_ms=0), Sent(timeout_ms=-1)
    for sent in (at_once, never):
        sent.writer.last_flush = 0.0
        sent.send("a")
        sent.writer.flush_full()
    assert len(at_once.taken()) == 1
    assert never.taken() == []


def test_each_target_has_its_list_and_all_share_the_sequence():
    sent = Sent(targets=(4, 9))
    sent.send("a", "b")
    sent.send("c", index=1)
    sent.writer.flush_all()
    sent.send("d")
    sent.writer.flush_all()
    assert sent.taken() == [(4, 0, 0, ["a", "b"]), (9, 0, 1, ["c"]), (4, 0, 2, ["d"])]
    assert sent.writer.records_out == 4


def test_broadcast_writes_once_and_sends_to_all():
    sent = Sent(targets=(0, 1, 2), broadcast=True)
    assert len(sent.writer.lists) == 1
    sent.send("a", "b")
    sent.writer.flush_all()
    assert sent.taken() == [(target, 0, 0, ["a", "b"]) for target in (0, 1, 2)]


def test_a_new_channel_first_sends_the_old_ones_records():
    sent = Sent()
    sent.writer.start(3)
    sent.send("a")
    sent.writer.start(5)
    sent.send("b")
    sent.writer.flush_all()
    assert sent.taken() == [(0, 3, 0, ["a"]), (0, 5, 0, ["b"])]


def test_marks_stand_behind_what_was_sent_so_far_on_every_target():
    rows = RowBatch()
    writer = EdgeWriter(7, "Map", (0, 1), rows, timeout_ms=-1)
    writer.appends[0]("a")
    writer.mark(WATERMARK, 99)
    writer.appends[0]("b")
    writer.appends[1]("c")
    writer.mark(END_OF_INPUT)
    writer.flush_all()
    payloads = rows.take().column(4).to_pylist()
    assert [list(decode(one).marks) for one in payloads] == [
        [Mark(1, WATERMARK, 99), Mark(2, END_OF_INPUT, 0)],
        [Mark(0, WATERMARK, 99), Mark(1, END_OF_INPUT, 0)],
    ]


def test_more_marks_than_a_buffer_can_hold():
    rows = RowBatch()
    writer = EdgeWriter(7, "Map", (0,), rows, timeout_ms=-1)
    for value in range(70_000):
        writer.mark(WATERMARK, value)
    writer.appends[0]("a")
    writer.flush_all()
    buffers = [decode(one) for one in rows.take().column(4).to_pylist()]
    assert [mark.value for one in buffers for mark in one.marks] == list(range(70_000))
    assert [one.records for one in buffers if one.records] == [["a"]]


def test_an_attempt_begins_without_what_a_failed_one_has_left():
    sent = Sent()
    sent.send("a")
    sent.writer.mark(WATERMARK, 1)
    sent.writer.flush_all()
    sent.send("b")
    sent.writer.begin(7)
    sent.taken()
    sent.send("c")
    sent.writer.flush_all()
    assert sent.taken() == [(0, 0, 0, ["c"])]
    assert sent.writer.records_out == 1


def test_the_appends_stay_valid_after_a_flush():
    sent = Sent()
    append = sent.writer.appends[0]
    append("a")
    sent.writer.flush_all()
    append("b")
    sent.writer.flush_all()
    assert [records for *_, records in sent.taken()] == [["a"], ["b"]]


def test_what_cannot_be_serialized_is_named():
    sent = Sent()
    lock = threading.Lock()
    sent.send(("fine", 1), ("bad", lock), ("fine", 2))
    with pytest.raises(RecordNotSerializable) as caught:
        sent.writer.flush_all()
    error = caught.value
    assert error.code == "RECORD_NOT_SERIALIZABLE"
    assert error.evidence["operator"] == "Map"
    assert error.evidence["record"].startswith("('bad', <unlocked _thread.lock")
    assert error.evidence["type"] == "tuple"
    assert "lock" in error.evidence["cause"]
    assert "open()" in error.hint
