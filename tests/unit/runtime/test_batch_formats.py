"""Records as columns and back."""

import math
from collections import namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common.types import Row
from millstream.errors import UserFunctionError
from millstream.runtime.columns.shapes import BatchShape, shape_of
from millstream.runtime.operators.batch_formats import FORMATS, mask_of, records_of

Point = namedtuple("Point", "x y")
BIG = 2**80


def batch(name, records):
    return FORMATS[name](records, shape_of(records))


def back(result, like=(1,)):
    return records_of(result, shape_of(list(like)), "the function")


RECORDS = {
    "ints": [1, -2, 2**62],
    "floats": [1.5, -0.0, math.inf],
    "booleans": [True, False],
    "texts": ["a", "b\0", ""],
    "bytes": [b"a\0", b""],
    "ints and None": [1, None, 2],
    "only None": [None, None],
    "tuples": [("a", 1, None), ("b", 2, 0.5)],
    "rows with names": [Row(name="a", n=1), Row(name="b", n=None)],
    "rows without names": [Row("a", 1), Row("b", 2)],
    "rows of one": [Row(value=1), Row(value=2)],
    "rows called f": [Row(f0="a", f1=1)],
    "named tuples": [Point(1, 2.5), Point(2, 0.5)],
    "dictionaries": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
    "times": [datetime(2024, 5, 1, 12), datetime(1970, 1, 1)],
}


def typed(value):
    if isinstance(value, Row):
        return "row", value._fields, [typed(v) for v in value]
    if isinstance(value, tuple | list):
        return type(value).__name__, [typed(v) for v in value]
    if isinstance(value, dict):
        return [(k, typed(v)) for k, v in value.items()]
    return type(value).__name__, repr(value)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", RECORDS)
def test_columns_become_the_records_they_were(name, kind):
    records = RECORDS[kind]
    found = records_of(batch(name, records), shape_of(records), "the function")
    assert typed(found) == typed(records)


VALUES = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1),
    st.lists(st.floats(), min_size=1),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1),
    st.lists(st.none() | st.booleans(), min_size=1),
    st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), min_size=1),
    st.lists(st.none() | st.floats(), min_size=1),
)


@given(st.sampled_from(sorted(FORMATS)), st.lists(VALUES, min_size=1, max_size=3), st.booleans())
def test_any_columns_become_the_records_they_were(name, columns, named):
    records: list = list(zip(*columns, strict=False))
    if named:
        records = [Row(**{f"c{i}": v for i, v in enumerate(r)}) for r in records]
    found = records_of(batch(name, records), shape_of(records), "the function")
    assert typed(found) == typed(records)


def test_what_numpy_gets():
    assert batch("numpy", [1, 2]).dtype == np.int64
    assert batch("numpy", [1.0, 2.0]).dtype == np.float64
    assert batch("numpy", [1, 2.5]).dtype == np.float64
    assert batch("numpy", [True]).dtype == np.bool_
    # A float could not hold these.
    assert batch("numpy", [2**60 + 1, 2.5]).tolist() == [2**60 + 1, 2.5]
    assert batch("numpy", [BIG]).tolist() == [BIG]
    assert batch("numpy", [1, None]).dtype == object
    assert batch("numpy", [[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert batch("numpy", [np.float32(1), np.float32(2)]).dtype == np.float32
    assert batch("numpy", [np.zeros(3), np.ones(3)]).shape == (2, 3)
    assert batch("numpy", [np.zeros(3), np.ones(2)]).dtype == object
    columns = batch("numpy", [("a", 1), ("b", 2)])
    assert {name: column.tolist() for name, column in columns.items()} == {
        "f0": ["a", "b"],
        "f1": [1, 2],
    }


def test_what_pandas_gets():
    frame = batch("pandas", [Row(word="a", n=1), Row(word="b", n=2)])
    assert list(frame.columns) == ["word", "n"]
    assert frame["n"].dtype == np.int64
    assert list(batch("pandas", [1, 2]).columns) == ["value"]
    missing = batch("pandas", [(1,), (None,)])["f0"]
    assert missing.tolist() == [1, None]
    assert batch("pandas", [np.zeros(3), np.ones(3)])["value"].map(len).tolist() == [3, 3]


def test_what_arrow_gets():
    table = batch("arrow", [("a", 1, math.nan), ("b", None, 1.0)])
    assert table.schema.names == ["f0", "f1", "f2"]
    assert table["f1"].null_count == 1
    assert table["f2"].null_count == 0
    with pytest.raises(UserFunctionError, match="column 'f0' of a batch cannot be one of Arrow"):
        batch("arrow", [("a",), (1,)])
    with pytest.raises(UserFunctionError, match="cannot be one of Arrow"):
        batch("arrow", [BIG])


@pytest.mark.parametrize(
    "records",
    [
        [("a", 1), ("a",)],
        [("a", 1), Row("a", 1)],
        [Row(a=1), Row(b=1)],
        [{"a": 1}, {"b": 1}],
        [{"a": 1}, None],
        [(1, 2), Point(1, 2)],
    ],
)
def test_records_that_are_not_alike_make_no_columns(records):
    with pytest.raises(UserFunctionError, match="different fields") as failure:
        shape_of(records)
    assert failure.value.evidence["first"] != failure.value.evidence["other"]


def test_records_without_fields_are_values():
    assert shape_of([(), (1,)]) == BatchShape()
    assert batch("numpy", [(), (1,)]).tolist() == [(), (1,)]


def test_results_become_python_values():
    assert typed(back(np.array([1, 2], np.int32))) == typed([1, 2])
    assert typed(back(np.array([[1.0, 2.0], [3.0, 4.0]]))) == typed([(1.0, 2.0), (3.0, 4.0)])
    assert typed(back(pd.Series([1, None], dtype="Int64"))) == typed([1, None])
    assert typed(back(pa.array([1, None]))) == typed([1, None])
    assert typed(back(pa.chunked_array([[1], [2]]))) == typed([1, 2])
    assert back((1, 2)) == back(iter([1, 2])) == back(range(1, 3)) == [1, 2]
    moment = datetime(2024, 5, 1, 12, 0, 0, 5)
    assert typed(back(np.array([moment, "NaT"], "datetime64[ns]"))) == typed([moment, None])
    assert typed(back(np.array([5], "timedelta64[ns]"))) == typed([timedelta(0)])
    aware = moment.replace(tzinfo=UTC)
    assert back(pd.Series([aware, None])) == [aware, None]
    assert type(back(pd.Series([aware]))[0]) is datetime


def test_a_list_is_taken_as_it_is():
    result = [np.float64(1.0)]
    assert back(result) is result


class Tensor:
    """As other libraries have them."""

    def __array__(self, dtype=None, copy=None):
        return np.array([1.5, 2.5])


def test_whatever_becomes_an_array_is_one():
    assert typed(back(Tensor())) == typed([1.5, 2.5])


def test_other_columns_make_other_records():
    columns = {"word": ["a", "b"], "score": np.array([0.5, 1.0])}
    rows = [Row(word="a", score=0.5), Row(word="b", score=1.0)]
    assert typed(back(columns)) == typed(back(pd.DataFrame(columns))) == typed(rows)
    assert typed(back(pa.table(columns))) == typed(rows)
    assert back(columns, [{"x": 1}])[0] == {"word": "a", "score": 0.5}
    numbered = {"f0": ["a"], "f1": [1]}
    assert typed(back(numbered)) == typed([("a", 1)])
    assert typed(back(numbered, [Row("x", 0)])) == typed([Row("a", 1)])
    assert typed(back(pd.DataFrame([[1, "a"]]))) == typed([(1, "a")])
    # Scalars came as the column "value", and go so; a dictionary names it.
    assert back(pd.DataFrame({"value": [1, 2]})) == back(pa.table({"value": [1, 2]})) == [1, 2]
    assert back({"value": [1]}) == [Row(value=1)]


@pytest.mark.parametrize(
    "result",
    [5, "text", None, Row(1, 2), np.float64(2), {"a": 5}, {"a": [1], "b": [1, 2]}, {}, {1: [1]}],
)
def test_what_is_no_batch_is_refused(result):
    with pytest.raises(UserFunctionError, match="the function"):
        back(result)


def test_masks():
    yes_and_no = [True, False]
    every = [
        yes_and_no,
        np.array(yes_and_no),
        list(np.array(yes_and_no)),
        pd.Series(yes_and_no),
        pd.array(yes_and_no, dtype="boolean"),
        pa.array(yes_and_no),
        iter(yes_and_no),
    ]
    for mask in every:
        assert typed(mask_of(mask, "it")) == typed(yes_and_no)


@pytest.mark.parametrize(
    "wrong", [[1, 0], [True, None], np.array([1.0]), pa.array([True, None]), ["x"]]
)
def test_what_is_neither_true_nor_false_is_no_mask(wrong):
    with pytest.raises(UserFunctionError, match="neither True nor False"):
        mask_of(wrong, "it")


@pytest.mark.parametrize(
    "wrong", [pd.DataFrame({"a": [True]}), pa.table({"a": [True]}), {"a": [True]}]
)
def test_columns_are_no_mask(wrong):
    with pytest.raises(UserFunctionError, match="a mask is wanted"):
        mask_of(wrong, "it")


def test_one_boolean_is_no_mask():
    with pytest.raises(UserFunctionError, match="gave one bool") as failure:
        mask_of(True, "it")
    assert failure.value.hint == "give one boolean for each record, in their order"


# -- what is not to be lost or changed on the way ------------------------------------------------------------


def test_two_columns_of_one_name_are_refused():
    twice = [[1, 2], [3, 4]]
    for result in (pd.DataFrame(twice, columns=["a", "a"]), pa.table(twice, names=["a", "a"])):
        with pytest.raises(UserFunctionError, match="columns that make no records") as failure:
            back(result)
        assert failure.value.evidence["columns"] == "['a', 'a']"


MOMENT = datetime(2024, 5, 1, 12, 0, 0, 5)
LONG = timedelta(days=1, microseconds=7)
PLAIN = [2.5, 7, True, "a", None, None, MOMENT, LONG, MOMENT, LONG]
ODD = [np.float64(2.5), np.int8(7), np.bool_(True), np.str_("a"), pd.NA, pd.NaT]
ODD += [pd.Timestamp(MOMENT), pd.Timedelta(LONG)]
ODD += [np.datetime64(MOMENT, "ns"), np.timedelta64(LONG, "ns")]


@pytest.mark.parametrize("make", [np.array, pd.Series])
def test_objects_become_python_values_too(make):
    assert typed(back(make(ODD, dtype=object))) == typed(PLAIN)
    assert typed(back({"a": make(ODD, dtype=object)})) == typed([Row(a=v) for v in PLAIN])


def test_objects_of_two_dimensions_become_tuples_of_python_values():
    assert typed(back(np.array([ODD, ODD], dtype=object))) == typed([tuple(PLAIN)] * 2)


@pytest.mark.parametrize(
    ("result", "plain"),
    [
        (pd.array([1, None], dtype="Int64"), [1, None]),
        (pd.array(["a", None], dtype="string"), ["a", None]),
        (pd.array([True, None], dtype="boolean"), [True, None]),
        (pd.Categorical(["a", None]), ["a", None]),
        (pd.to_datetime([MOMENT, None], utc=True).array, [MOMENT.replace(tzinfo=UTC), None]),
        (pd.to_datetime([MOMENT, None]).array, [MOMENT, None]),
        (pd.Series([[1], None], dtype=pd.ArrowDtype(pa.list_(pa.int64()))), [[1], None]),
        (pa.array([MOMENT, None], pa.timestamp("ns")), [MOMENT, None]),
        (pa.array([MOMENT], pa.timestamp("ns", "UTC")), [MOMENT.replace(tzinfo=UTC)]),
        (pa.chunked_array([pa.array([LONG, None], pa.duration("ns"))]), [LONG, None]),
        (pa.array([5], pa.timestamp("ns")), [datetime(1970, 1, 1)]),
    ],
    ids=lambda value: str(getattr(value, "dtype", getattr(value, "type", ""))),
)
def test_arrays_of_pandas_and_moments_of_arrow_become_python_values(result, plain):
    found = back(result)
    assert found == plain
    assert list(map(type, found)) == list(map(type, plain))


@pytest.mark.parametrize(
    "result",
    [
        np.array(["20000-01-01"], "datetime64[D]"),
        np.array(["-0001-01-01", "NaT"], "datetime64[s]"),
        np.array(["400000"], "datetime64[Y]"),  # in microseconds it would be another year
        np.array([2**62], "timedelta64[s]"),
        pa.array([2**60], pa.timestamp("s")),
    ],
)
def test_moments_that_python_has_not_are_refused(result):
    with pytest.raises(UserFunctionError, match="that Python cannot hold"):
        back(result)


@pytest.mark.parametrize("result", [{1, 2}, frozenset([1])])
def test_what_has_no_order_is_refused(result):
    with pytest.raises(UserFunctionError, match="has no order"):
        back(result)


def test_a_forgotten_return_is_guessed():
    with pytest.raises(UserFunctionError, match="the function gave None") as failure:
        back(None)
    assert "return" in failure.value.hint


BERLIN = timezone(timedelta(hours=2))
MIXED = {
    "date and datetime": [date(2024, 5, 1), datetime(2024, 5, 1, 5)],
    "bytes and str": ["a", b"b"],
    "bool and float": [1.5, True],
    "datetime with and without a zone": [datetime(2024, 5, 1), datetime(2024, 5, 1, tzinfo=BERLIN)],
    "time with a zone": [time(5, tzinfo=BERLIN)],
    "NaT": [pd.NaT, pd.Timestamp(2024, 5, 1)],
    "half a character": ["\ud800"],
}


@pytest.mark.parametrize("kind", MIXED)
def test_what_arrow_would_change_or_cannot_take_is_refused(kind):
    with pytest.raises(UserFunctionError, match="column 'f1' of a batch cannot be one of Arrow"):
        batch("arrow", [(0, value) for value in MIXED[kind]])


def test_the_order_of_a_dictionary_s_keys_is_no_difference():
    records = [{"a": 1, "b": "x"}, {"b": "y", "a": 2}]
    for name in FORMATS:
        assert back(batch(name, records), records) == records
