"""What the PostgreSQL sinks do before they connect; the rest is in tests/integration."""

import collections
import dataclasses
import pickle
import sys

import pytest

from millstream.api.sink import DeliveryGuarantee, WriterContext
from millstream.common import Row, RowKind
from millstream.connectors.postgres.commit import Staged
from millstream.connectors.postgres.rows import Shape
from millstream.connectors.postgres.settings import Settings, require_driver
from millstream.connectors.postgres.staging import staging_name
from millstream.connectors.postgres.table import psycopg, refused
from millstream.datastream.connectors.postgres import PostgresSink
from millstream.errors import InvalidArgument, RuntimeUnusable, SinkError
from tests.support import environment

SECRET = "p@ss/word 1"
DSN = {"host": "db", "port": 5433, "dbname": "shop", "user": "ann", "password": SECRET}


def builder(**more):
    return PostgresSink.builder().set_dsn({**DSN, **more}).set_table("sales.orders")


def shape(*columns):
    return Shape(Settings({}, (None, "orders"), columns or None, "id"))


# -- the builder --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dsn",
    [
        DSN,
        f"host=db port=5433 dbname=shop user=ann password='{SECRET}'",
        "postgresql://ann:p%40ss%2Fword%201@db:5433/shop",
    ],
)
def test_a_dsn_in_each_of_its_forms(dsn):
    sink = PostgresSink.builder().set_dsn(dsn).set_table("t").build_transactional()
    assert sink.settings.parameters == {**DSN, "port": "5433"}
    assert sink.settings.sink_id == "db:5433/shop/t"


def test_guarantees_are_in_the_plan():
    sinks = [builder().build_transactional(), builder().build_upsert("id")]
    env = environment()
    for sink in sinks:
        env.from_collection([1]).sink_to(sink)
    assert [sink.guarantee for sink in sinks] == [
        DeliveryGuarantee.EXACTLY_ONCE,
        DeliveryGuarantee.EFFECTIVELY_ONCE,
    ]
    plan = env.get_execution_plan()
    assert '"exactly-once"' in plan
    assert '"effectively-once"' in plan


def test_the_sink_id_is_stable_and_can_be_set():
    assert builder().build_transactional().settings.sink_id == "db:5433/shop/sales.orders"
    # Who logs in does not matter.
    other = builder(user="bob", password="other").build_transactional()
    assert other.settings.sink_id == "db:5433/shop/sales.orders"
    assert builder().set_sink_id("mine").build_transactional().settings.sink_id == "mine"


@pytest.mark.parametrize(
    "call",
    [
        lambda b: b.set_table(""),
        lambda b: b.set_table("a.b.c"),
        lambda b: b.set_table(".t"),
        lambda b: b.set_table(None),
        lambda b: b.set_columns(),
        lambda b: b.set_columns("a", "a"),
        lambda b: b.set_columns("a", 1),
        lambda b: b.set_columns(""),
        lambda b: b.set_sink_id(""),
        lambda b: b.set_dsn(""),
        lambda b: b.set_dsn({}),
        lambda b: b.set_dsn(7),
        lambda b: b.build_upsert([]),
        lambda b: b.build_upsert(None),
        lambda b: b.set_columns("a").build_upsert(["b"]),
        lambda b: PostgresSink.builder().build_transactional(),
        lambda b: PostgresSink.builder().set_dsn(DSN).build_transactional(),
    ],
)
def test_bad_arguments(call):
    with pytest.raises(InvalidArgument):
        call(builder())


def test_the_driver_is_missing(monkeypatch):
    sink = builder().build_transactional()
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for use in (
        require_driver,
        builder,
        sink.create_committer,
        lambda: sink.create_writer(WriterContext(0, 1, 0, "a")),
    ):
        with pytest.raises(RuntimeUnusable, match=r"pip install 'millstream\[postgres\]'"):
            use()


# -- passwords ----------------------------------------------------------------------------------------


def test_passwords_are_not_shown():
    sinks = [builder().build_transactional(), builder().build_upsert("id")]
    for shown in [*map(repr, sinks), *(repr(sink.settings) for sink in sinks), str(vars(sinks[0]))]:
        assert SECRET not in shown
        assert "orders" in shown


@pytest.mark.parametrize(
    "dsn", ["hunter2", "password=hunter2 hunter2", "postgresql://a:hunter2@[x"]
)
def test_a_dsn_that_cannot_be_read_is_not_shown(dsn):
    with pytest.raises(InvalidArgument, match="cannot be read") as error:
        PostgresSink.builder().set_dsn(dsn)
    assert "hunter2" not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


def test_passwords_are_taken_out_of_what_the_server_says():
    settings = builder().build_transactional().settings
    said = psycopg.OperationalError(f"cannot log in with {SECRET} or p%40ss%2Fword%201")
    error = refused(settings, said, "it failed", record=(1, SECRET))
    assert error.evidence["said"] == "cannot log in with *** or ***"
    assert error.evidence["record"] == "(1, '***')"


def test_sinks_travel_and_committables_hold_no_secret():
    sink = pickle.loads(pickle.dumps(builder().build_upsert("id")))
    assert sink.settings.parameters["password"] == SECRET
    staged = Staged(sink.settings.sink_id, "job", 3, 1, "a").with_more(2, ("id",)).encode()
    assert SECRET.encode() not in staged
    assert Staged.decode(staged) == Staged(
        "db:5433/shop/sales.orders", "job", 3, 1, "a", 2, ("id",)
    )


# -- records ------------------------------------------------------------------------------------------

Pair = collections.namedtuple("Pair", "b a")


@dataclasses.dataclass
class Order:
    b: int
    a: int


@pytest.mark.parametrize(
    "record",
    [
        (1, 2),
        [1, 2],
        Row(1, 2),
        Row(b=2, a=1),
        Row(c=3, b=2, a=1),
        {"b": 2, "a": 1, "c": 3},
        Pair(a=1, b=2),
        Order(a=1, b=2),
        Row.of_kind(RowKind.UPDATE_AFTER, 1, 2),
    ],
)
def test_records_for_columns_that_are_set(record):
    assert shape("a", "b").values(record) == (1, 2)


def test_the_names_of_a_dataclass_are_columns():
    columns = shape()
    assert columns.values(Order(a=1, b=2)) == (2, 1)
    assert columns.columns == ("b", "a")


def test_one_column_takes_plain_values():
    assert [shape("a").values(value) for value in (1, "text", None)] == [(1,), ("text",), (None,)]


@pytest.mark.parametrize("first", [Row(a=1, b=2), {"a": 1, "b": 2}])
def test_columns_of_the_first_record(first):
    columns = shape()
    assert columns.values(first) == (1, 2)
    assert columns.columns == ("a", "b")
    assert columns.values({"b": 4, "a": 3}) == (3, 4)
    assert columns.values((5, 6)) == (5, 6)


@pytest.mark.parametrize(
    ("columns", "records", "said"),
    [
        ((), [(1, 2)], "set_columns"),
        ((), [{}], "set_columns"),
        ((), [{"a": 1}, {"a": 1, "b": 2}], "has b, which the first record had not"),
        ((), [{"a": 1, "b": 2}, {"a": 1}], "has no b"),
        (("a", "b"), [{"a": 1}], "has no b"),
        (("a", "b"), [(1, 2, 3)], "3 values for 2 columns"),
        (("a", "b"), ["ab"], "1 values for 2 columns"),
        (("a",), [Row.of_kind(RowKind.DELETE, 1)], "takes something back"),
    ],
)
def test_records_that_do_not_fit(columns, records, said):
    one = shape(*columns)
    for record in records[:-1]:
        one.values(record)
    with pytest.raises(SinkError) as error:
        one.values(records[-1])
    assert said in str(error.value)
    assert error.value.evidence["table"] == "orders"
    assert error.value.evidence["record"] == repr(records[-1])


@pytest.mark.parametrize("record", [{"id": []}, {"n": 1}])
def test_keys_that_cannot_be(record):
    writer = builder().build_upsert("id").create_writer(WriterContext(0, 1, 0, "a"))
    with pytest.raises(SinkError, match="no usable key"):
        writer.write(record)
    writer.abort()


def test_staging_names_fit_and_differ():
    names = ["t", "x" * 43, "x" * 44, "x" * 63, "x" * 62 + "y", "ü" * 31]
    made = [staging_name(name) for name in names]
    assert len(set(made)) == len(names)
    assert all(len(name.encode()) <= 63 for name in made)
