"""Buffers survive the way through bytes, whatever is in them."""

import pickle
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common.types import Row, RowKind
from millstream.runtime.wire.codec import (
    END_OF_INPUT,
    IDLE,
    WATERMARK,
    Buffer,
    Mark,
    decode,
    dumps,
    encode,
    plain_pickle,
)

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
ATOMS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=50)
)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.frozensets(st.integers(), max_size=3)
        | st.builds(lambda a, b: Row(a=a, b=b), inner, inner)
        | st.builds(Row, inner)
    ),
    max_leaves=12,
)


@st.composite
def buffers(draw):
    records = draw(st.lists(VALUES, max_size=12))
    timestamps = draw(st.none() | st.lists(I64, min_size=len(records), max_size=len(records)))
    marks = draw(
        st.lists(
            st.builds(
                Mark,
                st.integers(0, len(records)),
                st.sampled_from([WATERMARK, IDLE, END_OF_INPUT]),
                I64,
            ),
            max_size=5,
        )
    )
    return records, timestamps, marks


@given(buffers())
def test_round_trip(buffer):
    records, timestamps, marks = buffer
    payload = encode(records, timestamps, marks)
    back = decode(payload)
    assert back.records == records
    assert [type(one) for one in back.records] == [type(one) for one in records]
    assert (None if back.timestamps is None else list(back.timestamps)) == timestamps
    assert list(back.marks) == marks


def test_marks_alone():
    marks = [Mark(0, WATERMARK, -(1 << 63)), Mark(0, END_OF_INPUT, 1)]
    assert decode(encode([], None, marks)) == Buffer([], None, marks)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, pa.py_buffer])
def test_reads_anything_with_the_buffer_protocol(wrap):
    payload = encode(["a", 1], [5, 6], [Mark(1, WATERMARK, 7)])
    back = decode(wrap(payload))
    assert (back.records, list(back.timestamps), back.marks) == (
        ["a", 1],
        [5, 6],
        [Mark(1, WATERMARK, 7)],
    )


def test_another_version_is_refused():
    payload = b"\x09" + encode(["a"])[1:]
    with pytest.raises(ValueError, match="version 9"):
        decode(payload)


class Loop:
    def __init__(self):
        self.me = self


def test_cyclic_records():
    cyclic = [1]
    cyclic.append(cyclic)
    back = decode(encode([cyclic, Loop()])).records
    assert back[0][0] == 1
    assert back[0][1] is back[0]
    assert back[1].me is back[1]


def local_classes():
    @dataclass
    class Point:
        x: int

    class Node:
        def __init__(self, name):
            self.name = name
            self.parent = self

    return Point, Node


def test_classes_of_a_function():
    point, node = local_classes()
    back = decode(encode([point(1), node("a"), "plain"])).records
    assert back[0] == point(1)
    assert isinstance(back[1], node)
    assert back[1].parent is back[1]
    assert back[2] == "plain"


def test_functions_as_records():
    back = decode(encode([lambda n: n + 1])).records
    assert back[0](1) == 2


def test_numpy():
    values = [np.int64(3), np.float32(0.5), np.array([[1, 2], [3, 4]]), np.bool_(True)]
    back = decode(encode(values)).records
    assert [type(one) for one in back] == [type(one) for one in values]
    assert back[:2] == values[:2]
    assert (back[2] == values[2]).all()


def test_rows_keep_names_and_kind():
    rows = [Row(1, "a"), Row(x=1, y=Row(2)), Row.of_kind(RowKind.DELETE, 1)]
    assert decode(encode(rows)).records == rows


class Special(Row):
    """A class of a user's own."""


@pytest.mark.parametrize(
    "records",
    [
        [Row(a=1, b="x"), Row(a=None, b="y")],
        [Row(a=1), Row(b=2)],
        [Row(a=1, b=2), Row(b=2, a=1)],
        [Row(a=1), Row(1)],
        [Row(1, 2), Row(3)],
        [Row(), Row()],
        [Row("a", "b")(1), Row("a", "b")(1, 2)],
        [Row(a=1), Row.of_kind(RowKind.DELETE, a=1)],
        [Row(a=1), Special(a=1)],
        [Special(a=1), Row(a=1)],
        [Row(a=1), ("a", 1), None],
        [Row(a=Row(b=[Row(c=1)]))] * 2,
        [Row(a=lambda: 1)],
    ],
)
def test_rows_whose_names_are_written_once(records):
    stamps = list(range(len(records)))
    found = decode(encode(records, stamps, [Mark(1, WATERMARK, 5)]))
    assert list(found.timestamps) == stamps
    assert found.marks == [Mark(1, WATERMARK, 5)]
    if not callable(getattr(records[0], "a", None)):
        assert found.records == records
        assert list(map(repr, found.records)) == list(map(repr, records))


def test_a_row_that_holds_itself():
    row = Row(a=1, b=None)
    row["b"] = row
    (found,) = decode(encode([row])).records
    assert found.b is found
    assert found.a == 1


def test_rows_do_not_share_what_they_hold():
    row = Row(a=[1])
    first, second = decode(encode([row, row])).records
    first["a"].append(2)
    first.set_field_names(["x"])
    assert second == Row(a=[1])


def test_what_shares_objects_is_as_long_as_what_does_not():
    shared = ["a" * 3]
    assert plain_pickle((shared, shared)) == plain_pickle((["a" * 3], ["aaa"]))
    assert pickle.dumps((shared, shared)) != pickle.dumps((["aaa"], ["aaa"]))


def test_what_cannot_be_pickled_raises():
    import threading

    with pytest.raises(TypeError, match="lock"):
        dumps([threading.Lock()])


SCRIPT = textwrap.dedent(
    """
    import pickle, subprocess, sys
    from dataclasses import dataclass
    import cloudpickle
    from millstream.runtime.wire.codec import decode

    @dataclass(frozen=True)
    class Order:
        id: int
        lines: list

    WORKER = '''
    import pickle, sys
    from millstream.runtime.wire.codec import encode
    records = pickle.loads(sys.stdin.buffer.read())
    assert not hasattr(sys.modules["__main__"], "Order")
    sys.stdout.buffer.write(encode([records[0], "x"]))
    '''

    sent = cloudpickle.dumps([Order(7, ["a"])])
    worker = subprocess.run(
        [sys.executable, "-c", WORKER.replace("\\n    ", "\\n")],
        input=sent, stdout=subprocess.PIPE, check=True,
    )
    records = decode(worker.stdout).records
    assert type(records[0]) is Order, type(records[0])
    assert records == [Order(7, ["a"]), "x"]
    print("same class")
    """
)


def test_a_class_of_the_main_script_goes_to_a_worker_and_back(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("same class\n", 0), done.stderr
