"""What a state holds is what was put, type and value: right away, after a restore, at another parallelism, on the other
backend, and as the state reader shows it and the editor writes it back. What cannot be kept is refused when it is put.

Drawn are declared types of every kind, nested ones too, and values under them: those of exactly the type, those that
become one of it (numpy scalars, subclasses, rows and dictionaries in another order), and those that do not fit at all.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import struct
import tempfile
import uuid
import zoneinfo
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import millstream.state
from millstream.api.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.checkpoint.manifest import (
    METADATA,
    Manifest,
    OperatorInfo,
    Parent,
    StoreState,
    encode_manifest,
)
from millstream.common.time import Instant, Time
from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.datastream import AggregateFunction
from millstream.errors import TypeMismatchError
from millstream.runtime.state.hash_tables import make_hash_table
from millstream.runtime.state.keyed_state import KeyContext, KeyedStates
from millstream.runtime.state.operator_state import OperatorStates
from millstream.runtime.state.store import StateStore
from millstream.runtime.wire.keys import canonical, key_group, subtask_of
from millstream.storage.storage import LocalStorage

MAX = 128


# -- classes that people declare ------------------------------------------------------------------------------


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Colour(enum.Enum):
    RED = "red"
    BLUE = object


class Name(str):
    """A text of the user's own class."""


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0


@dataclasses.dataclass(frozen=True)
class Visit:
    at: datetime.datetime
    day: datetime.date
    point: Point
    path: list[Point]
    level: Level
    colour: Colour | None
    amount: Decimal
    tags: frozenset[str]
    by_name: dict[str, Point]
    took: datetime.timedelta
    id: uuid.UUID
    pair: tuple[int, str]
    many: tuple[float, ...]
    raw: bytes
    anything: object = None


@dataclasses.dataclass(slots=True)
class Chain:
    """Has parts that no declared type has."""

    name: str
    later: Chain | None = None
    mixed: int | str = 0


@dataclasses.dataclass
class Derived:
    """Makes some of itself."""

    n: int
    total: int = dataclasses.field(init=False, default=0)

    def __post_init__(self):
        self.total = self.total + self.n
        self.extra = "not a field"


# -- values of exactly a type -------------------------------------------------------------------------------------


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


texts = st.text(st.characters(codec="utf-8"), max_size=5)
zones = st.sampled_from(
    [
        None,
        datetime.UTC,
        datetime.timezone(datetime.timedelta(hours=-3, minutes=-30)),
        zoneinfo.ZoneInfo("Europe/Berlin"),
    ]
)
moments = st.datetimes(timezones=zones)
points = st.builds(Point, st.integers(), st.floats())
visits = st.builds(
    Visit,
    moments,
    st.dates(),
    points,
    st.lists(points, max_size=3),
    st.sampled_from(Level),
    st.none() | st.sampled_from(Colour),
    st.decimals(allow_nan=False),
    st.frozensets(texts, max_size=3),
    st.dictionaries(texts, points, max_size=3),
    st.timedeltas(),
    st.uuids(),
    st.tuples(st.integers(), texts),
    st.lists(st.floats(), max_size=3).map(tuple),
    st.binary(max_size=5),
    st.none() | st.just({"a": {1, 2}}),
)
chains = st.builds(Chain, texts, st.none() | st.builds(Chain, texts), st.integers() | texts)


def whole(bits):
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


LEAVES = [
    (Types.STRING(), texts),
    (Types.BYTE(), whole(8)),
    (Types.SHORT(), whole(16)),
    (Types.INT(), whole(32)),
    (Types.LONG(), whole(64)),
    (Types.BOOLEAN(), st.booleans()),
    (Types.FLOAT(), st.floats(width=32)),
    (Types.DOUBLE(), st.floats()),
    (Types.CHAR(), st.characters(codec="utf-8")),
    (Types.BIG_INT(), st.integers()),
    (Types.BIG_DEC(), st.decimals(allow_nan=False)),
    (Types.INSTANT(), st.builds(Instant, whole(40), st.integers(0, 999_999_999))),
    (Types.SQL_DATE(), st.dates()),
    (Types.SQL_TIME(), st.times()),
    (Types.SQL_TIMESTAMP(), moments),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=5)),
    (Types.PRIMITIVE_ARRAY(Types.INT()), st.lists(whole(32), max_size=3)),
    (Types.BASIC_ARRAY(Types.STRING()), st.lists(texts, max_size=3)),
    (Types.PICKLED_BYTE_ARRAY(), st.sampled_from([{1, 2}, (1, [2]), "a", 2.5, 1j])),
]


def _with_none(values):
    return st.none() | values


def _row(parts, names):
    kinds, values = [one[0] for one in parts], [_with_none(one[1]) for one in parts]
    labels = [f"n{place}" for place in range(len(parts))]
    declared = Types.ROW_NAMED(labels, kinds) if names else Types.ROW(kinds)
    labels = labels if names else [f"f{place}" for place in range(len(parts))]

    def made(values, kind):
        row = Row(**dict(zip(labels, values, strict=True)))
        row.set_row_kind(kind)
        return row

    return declared, st.builds(made, st.tuples(*values), st.sampled_from(RowKind))


def _nest(inner):
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(lambda p: (Types.LIST(p[0]), st.lists(_with_none(p[1]), max_size=3))),
        inner.map(lambda p: (Types.OBJECT_ARRAY(p[0]), st.lists(p[1], max_size=3))),
        inner.map(
            lambda p: (
                Types.MAP(Types.STRING(), p[0]),
                st.dictionaries(texts, _with_none(p[1]), max_size=3),
            )
        ),
        inner.map(
            lambda p: (
                Types.MAP(Types.TUPLE([Types.SQL_DATE(), Types.LONG()]), p[0]),
                st.dictionaries(st.tuples(st.dates(), whole(64)), p[1], max_size=3),
            )
        ),
        some.map(
            lambda ps: (
                Types.TUPLE([p[0] for p in ps]),
                st.tuples(*(_with_none(p[1]) for p in ps)),
            )
        ),
        st.builds(_row, some, st.booleans()),
    )


typed = st.recursive(st.sampled_from(LEAVES), _nest, max_leaves=5)
declared = st.one_of(
    typed,
    st.sampled_from(
        [
            (Point, points),
            (Visit, visits),
            (Chain, chains),
            (Derived, st.builds(Derived, st.integers())),
            (None, st.sampled_from([{1, 2}, [1, {"a": Point(1)}], Decimal("1.50"), Level.HIGH])),
        ]
    ),
)


@st.composite
def typed_values(draw):
    kind, values = draw(declared)
    return kind, draw(values)


# -- equality with types ------------------------------------------------------------------------------------------


def same(a, b):
    """Equal, and of the same types, all the way down; a NaN is itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return repr(a) == repr(b)
    if isinstance(a, Decimal):
        return str(a) == str(b)
    if isinstance(a, datetime.datetime | datetime.time):
        return a.isoformat() == b.isoformat() and a.fold == b.fold and same_zone(a, b)
    if dataclasses.is_dataclass(a):
        names = [field.name for field in dataclasses.fields(a)]
        return all(same(getattr(a, name), getattr(b, name)) for name in names)
    if isinstance(a, Row):
        kinds = a.get_row_kind() is b.get_row_kind() and a._fields == b._fields
        return kinds and same(list(a), list(b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            same(*pair)
            for pair in zip(sorted(a.items(), key=repr), sorted(b.items(), key=repr), strict=True)
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(*pair) for pair in zip(a, b, strict=True))
    return a == b


def same_zone(a, b):
    return str(a.tzinfo) == str(b.tzinfo) and type(a.tzinfo) is type(b.tzinfo)


def shown(value, declared=True):
    """As it is seen from outside, where classes are not known."""
    if not declared:
        return value
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        opaque = {"anything", "later", "mixed"}
        return {f.name: shown(getattr(value, f.name), f.name not in opaque) for f in fields}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, list):
        return [shown(one) for one in value]
    if isinstance(value, dict):
        return {name: shown(one) for name, one in value.items()}
    return value


# -- a job's state ------------------------------------------------------------------------------------------------


class Last(AggregateFunction):
    def create_accumulator(self):
        return None

    def add(self, value, accumulator):
        return value

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_b


def last(_, value):
    return value


KINDS = ["value", "list", "map", "map key", "reducing", "aggregating"]
OPERATOR_KINDS = ["operator list", "operator union", "broadcast", "broadcast key"]


def descriptor_of(kind, type_info, *, ttl=False):
    match kind:
        case "value":
            made = ValueStateDescriptor("s", type_info)
        case "list" | "operator list" | "operator union":
            made = ListStateDescriptor("s", type_info)
        case "map" | "broadcast":
            made = MapStateDescriptor("s", Types.STRING(), type_info)
        case "map key" | "broadcast key":
            made = MapStateDescriptor("s", type_info, Types.LONG())
        case "reducing":
            made = ReducingStateDescriptor("s", last, type_info)
        case _:
            made = AggregatingStateDescriptor("s", Last(), type_info)
    if ttl:
        made.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1000)).build())
    return made


class Job:
    """One subtask of a job with one state."""

    def __init__(self, backend, folder, subtask=0, parallelism=1):
        self.folder = Path(folder)
        self.storage = LocalStorage(self.folder / "job")
        owner = f"op/{subtask}"
        make = make_hash_table
        if backend == "lmdb":
            from millstream.runtime.state.lmdb.store import LmdbStore

            local = tempfile.mkdtemp(dir=folder)
            make = LmdbStore(local, "job", "x", owner).table
        self.store = StateStore(self.storage, owner, operators=["op"], make_table=make)
        self.subtask, self.parallelism = subtask, parallelism
        self.keys = KeyContext()
        self.states = KeyedStates(self.store, "op", "op", self.keys)

    def version(self, segments=(), parents=()):
        return StoreState(
            subtask=self.subtask,
            parallelism=self.parallelism,
            max_parallelism=MAX,
            operators=["op"],
            segments=list(segments),
            parents=list(parents),
        )

    def state(self, kind, descriptor):
        operator = OperatorStates(self.store.operator_state, "op", self.store.register)
        match kind:
            case "operator list":
                return operator.get_list_state(descriptor)
            case "operator union":
                return operator.get_union_list_state(descriptor)
            case "broadcast" | "broadcast key":
                return operator.get_broadcast_state(descriptor)
        return self.states.get(descriptor, descriptor.kind)

    def at(self, key):
        self.keys.key, self.keys.canon = key, canonical(key)

    def close(self):
        self.store.close()


def put(kind, state, value):
    match kind:
        case "value":
            state.update(value)
        case "map" | "broadcast":
            state.put("k", value)
        case "map key" | "broadcast key":
            state.put(value, 7)
        case _:
            state.add(value)


def got(kind, state):
    """What the state holds, in a list."""
    match kind:
        case "value":
            return [state.value()]
        case "list" | "operator list" | "operator union":
            return list(state.get())
        case "map" | "broadcast":
            assert list(state.keys()) == ["k"]
            return [state.get("k")]
        case "map key" | "broadcast key":
            found = list(state.keys())
            assert [state.get(one) for one in found] == [7] * len(found)
            return found
        case _:
            return [state.get()]


def at_another_parallelism(backend, folder, file, kind, descriptor):
    parent = Parent(root="", subtask=0, parallelism=1, operators=["op"], segments=[file])
    found = []
    for subtask in range(2):
        mine = subtask_of(key_group(canonical("key"), MAX), 2, MAX) == subtask
        job = Job(backend, folder, subtask, 2)
        job.store.open(job.version(parents=[parent]))
        state = job.state(kind, descriptor)
        if kind.startswith("broadcast") or kind == "operator union" or (mine and kind in KINDS):
            job.at("key")
            found = got(kind, state)
        elif kind == "operator list":
            found += got(kind, state)
        job.close()
    return found


def save(job, file, descriptor, kind):
    """A savepoint of the job's state; its path."""
    state_kind = descriptor.kind if kind in KINDS else {"operator list": "operator list"}.get(kind)
    described = {**descriptor.describe(), "kind": state_kind or f"operator {kind.split()[-1]}"}
    if kind.startswith("broadcast"):
        described["kind"] = "operator broadcast"
    manifest = Manifest(
        epoch=1,
        job_id="job",
        stores={"op/0": job.version([file])},
        operators={
            "op": OperatorInfo(
                name="op", parallelism=1, max_parallelism=MAX, states={"s": described}
            )
        },
        savepoint=True,
    )
    job.storage.publish(METADATA, encode_manifest(manifest))
    return str(job.folder / "job")


def read_outside(path, kind):
    rows = list(millstream.state.open_savepoint(path, allow_pickle=True).rows("op", "s"))
    return [row[-2] if kind.endswith("key") else row[-1] for row in rows]


# -- the properties -------------------------------------------------------------------------------------------------


on_both = pytest.mark.parametrize("backend", ["hashmap", "lmdb"])


def can_be_a_key(value):
    try:
        hash(value)
        canonical(value)
    except Exception:
        return False
    return True


@pytest.mark.timeout(1800)
@on_both
@given(data=st.data(), one=typed_values())
def test_what_was_put_is_there_everywhere(backend, data, one):
    type_info, value = one
    kinds = [
        kind for kind in KINDS + OPERATOR_KINDS if not kind.endswith("key") or can_be_a_key(value)
    ]
    kind = data.draw(st.sampled_from(kinds), "kind of state")
    ttl = kind in KINDS and data.draw(st.booleans(), "ttl")
    descriptor = descriptor_of(kind, type_info, ttl=ttl)
    with tempfile.TemporaryDirectory() as folder:
        job = Job(backend, folder)
        job.store.open(job.version())
        state = job.state(kind, descriptor)
        job.at("key")
        put(kind, state, value)
        assert same(got(kind, state), [value])
        file = job.store.snapshot(0, "a")
        job.close()
        for other in ("hashmap", backend):
            again = Job(other, folder)
            if data.draw(st.booleans(), "asked for before the files are read"):
                again.state(kind, descriptor)
            again.store.open(again.version([file]))
            state = again.state(kind, descriptor)
            again.at("key")
            assert same(got(kind, state), [value])
            again.close()
            assert same(at_another_parallelism(other, folder, file, kind, descriptor), [value])
        path = save(job, file, descriptor, kind)
        outside = read_outside(path, kind)
        if not kind.endswith("key"):
            assert same(outside, [shown(value)] if type_info is not None else [value])
        if kind not in ("value", "reducing", "aggregating"):
            return
        editor = millstream.state.edit(path, allow_pickle=True)
        assert editor.update("op", "s", lambda key, found: found) == 0
        editor.put("op", "s", "other", outside[0])
        edited = millstream.state.open_savepoint(
            editor.write(f"{folder}/edited"), allow_pickle=True
        )
        (segments,) = (store.segments for store in edited.manifest.stores.values())
        again = Job(backend, folder)
        again.storage = again.store.storage = again.store._storage = edited.storage
        again.store.open(again.version(segments))
        state = again.state(kind, descriptor)
        for key in ("key", "other"):
            again.at(key)
            assert same(got(kind, state), [value])
        again.close()


ODD = st.one_of(
    texts,
    st.sampled_from([Name(), Name("ä")]),
    st.integers(),
    whole(16).map(np.int64),
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
    st.booleans().map(np.bool_),
    st.sampled_from([Level.LOW, Colour.RED, Point(np.int64(1), 2), Row(1, 2), object()]),
    st.builds(lambda a, b: Row(n1=b, n0=a), whole(8), texts),
    st.fixed_dictionaries({"n1": texts, "n0": whole(8)}),
    st.fixed_dictionaries({"n1": texts, "n0": whole(8), "more": whole(8)}),
    st.lists(whole(8).map(np.int16), max_size=2),
    st.lists(whole(8), max_size=2).map(tuple),
    moments,
    st.dates(),
)
ODD_TYPES = st.one_of(
    typed.map(lambda pair: pair[0]),
    st.just(Types.ROW_NAMED(["n0", "n1"], [Types.LONG(), Types.STRING()])),
    st.just(Types.LIST(Types.LONG())),
    st.sampled_from([Point, Visit, Derived]),
)


@pytest.mark.timeout(1800)
@on_both
@given(data=st.data(), type_info=ODD_TYPES, value=ODD)
def test_what_does_not_fit_is_made_to_fit_or_refused(backend, data, type_info, value):
    """What was accepted reads the same before and after a restore, wherever that is."""
    kind = data.draw(st.sampled_from(KINDS + OPERATOR_KINDS), "kind of state")
    ttl = kind in KINDS and data.draw(st.booleans(), "ttl")
    descriptor = descriptor_of(kind, type_info, ttl=ttl)
    with tempfile.TemporaryDirectory() as folder:
        job = Job(backend, folder)
        job.store.open(job.version())
        state = job.state(kind, descriptor)
        job.at("key")
        try:
            put(kind, state, value)
        except TypeMismatchError as error:
            missing = {"state", "uid", "value", "wanted"} - set(error.evidence)
            job.close()
            assert not missing
            return
        before = got(kind, state)
        assert len(before) == 1
        file = job.store.snapshot(0, "a")
        job.close()
        again = Job(backend, folder)
        again.store.open(again.version([file]))
        state = again.state(kind, descriptor)
        again.at("key")
        assert same(got(kind, state), before)
        again.close()
        assert same(at_another_parallelism(backend, folder, file, kind, descriptor), before)
