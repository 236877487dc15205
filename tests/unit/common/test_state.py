import importlib
import json
import pickle
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import get_origin

import pytest

from millstream.api.checkpointed import CheckpointedFunction
from millstream.api.functions import AggregateFunction, MapFunction, ReduceFunction
from millstream.api.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReadOnlyBroadcastState,
    ReducingState,
    ReducingStateDescriptor,
    State,
    ValueState,
    ValueStateDescriptor,
)
from millstream.api.state_ttl import StateTtlConfig
from millstream.common.time import Duration, Time
from millstream.common.typeinfo import Types
from millstream.errors import InvalidArgument, UnsupportedOperation


@dataclass
class Point:
    x: int
    at: datetime
    names: list[str]
    later: "Point | None" = None


class Sum(ReduceFunction):
    def reduce(self, value1, value2):
        return value1 + value2


class Count(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


def one_of_each():
    return [
        ValueStateDescriptor("s"),
        ListStateDescriptor("s"),
        MapStateDescriptor("s"),
        ReducingStateDescriptor("s", Sum()),
        AggregatingStateDescriptor("s", Count()),
    ]


class Dict(BroadcastState):
    def __init__(self):
        self.kept = {}

    def get(self, key):
        return self.kept.get(key)

    def contains(self, key):
        return key in self.kept

    def items(self):
        return self.kept.items()

    def keys(self):
        return self.kept.keys()

    def values(self):
        return self.kept.values()

    def is_empty(self):
        return not self.kept

    def put(self, key, value):
        self.kept[key] = value

    def put_all(self, dict_value):
        self.kept.update(dict_value)

    def remove(self, key):
        self.kept.pop(key, None)

    def clear(self):
        self.kept.clear()


def test_public_names():
    public = importlib.import_module("millstream.datastream.state")
    for module in ("state", "state_ttl", "checkpointed"):
        common = importlib.import_module(f"millstream.api.{module}")
        assert common.__all__
        for name in common.__all__:
            assert name in public.__all__
            assert getattr(public, name) is getattr(common, name)


def test_kinds_and_names():
    descriptors = one_of_each()
    kinds = ["value", "list", "map", "reducing", "aggregating"]
    assert [each.kind for each in descriptors] == kinds
    assert [each.describe()["kind"] for each in descriptors] == kinds
    assert {each.get_name() for each in descriptors} == {each.name for each in descriptors} == {"s"}


def test_pyflink_call_forms():
    text, number = Types.STRING(), Types.LONG()
    assert ValueStateDescriptor("s", value_type_info=number).type_info == number
    assert ListStateDescriptor("s", elem_type_info=text).type_info == text
    by_name = MapStateDescriptor("s", key_type_info=text, value_type_info=number)
    assert (by_name.key_type_info, by_name.type_info) == (text, number)
    assert ReducingStateDescriptor("s", Sum(), type_info=number).type_info == number
    assert AggregatingStateDescriptor("s", Count(), state_type_info=number).type_info == number


def test_types_may_be_left_out():
    for each in one_of_each():
        assert each.describe()["type"] is None
    assert MapStateDescriptor("s").describe()["key_type"] is None


@pytest.mark.parametrize("other", range(5))
def test_equal_only_to_itself(other):
    one, two = one_of_each()[other], one_of_each()[other]
    assert one != two
    assert one == one
    assert len({one, two, one}) == 2


def test_describe_a_row():
    row = Types.ROW_NAMED(["id", "tags"], [Types.LONG(), Types.LIST(Types.STRING())])
    described = MapStateDescriptor("s", Types.TUPLE([Types.INT()]), row).describe()
    assert described == {
        "kind": "map",
        "type": "RowTypeInfo(id: Long, tags: ListTypeInfo<String>)",
        "key_type": "TupleTypeInfo(Integer)",
    }
    assert json.loads(json.dumps(described)) == described
    again = pickle.loads(pickle.dumps(row))
    assert ValueStateDescriptor("s", again).describe()["type"] == described["type"]


def test_describe_a_dataclass():
    descriptor = ValueStateDescriptor("s", Point)
    assert descriptor.type_info is Point
    assert descriptor.describe()["type"] == (
        f"dataclass {__name__}.Point"
        "(x: int, at: datetime.datetime, names: list[str], later: Point | None)"
    )


def test_reduce_functions():
    own = Sum()
    assert ReducingStateDescriptor("s", own).get_reduce_function() is own
    wrapped = ReducingStateDescriptor("s", max).get_reduce_function()
    assert isinstance(wrapped, ReduceFunction)
    assert wrapped.reduce(1, 2) == 2
    count = Count()
    assert AggregatingStateDescriptor("s", count).get_agg_function() is count


@pytest.mark.parametrize(
    "build",
    [
        lambda: ValueStateDescriptor(""),
        lambda: ListStateDescriptor(None),
        lambda: MapStateDescriptor(Types.STRING(), Types.LONG()),
        lambda: ValueStateDescriptor("s", int),
        lambda: ValueStateDescriptor("s", "int"),
        lambda: ListStateDescriptor("s", Types.LONG),
        lambda: ListStateDescriptor("s", Point(1, None, [])),
        lambda: MapStateDescriptor("s", str, Types.LONG()),
        lambda: MapStateDescriptor("s", Types.STRING(), [Types.LONG()]),
        lambda: ReducingStateDescriptor("s", None),
        lambda: ReducingStateDescriptor("s", Sum),
        lambda: ReducingStateDescriptor("s", Types.LONG()),
        lambda: AggregatingStateDescriptor("s", max),
        lambda: AggregatingStateDescriptor("s", Count),
        lambda: ValueStateDescriptor("s").enable_time_to_live("1 h"),
        lambda: ValueStateDescriptor("s").enable_time_to_live(StateTtlConfig.new_builder("1 h")),
    ],
)
def test_bad_descriptors(build):
    with pytest.raises(InvalidArgument) as caught:
        build()
    assert caught.value.hint
    assert "got" in caught.value.evidence


def test_enable_time_to_live():
    config = StateTtlConfig.new_builder("1 h").build()
    every = one_of_each()
    assert every
    for each in every:
        assert each._ttl_config is None
        each.enable_time_to_live(config)
        assert each._ttl_config is config


def test_descriptors_pickle():
    descriptor = MapStateDescriptor("s", Types.STRING(), Point)
    descriptor.enable_time_to_live(StateTtlConfig.new_builder("1 h").build())
    again = pickle.loads(pickle.dumps(descriptor))
    assert again.describe() == descriptor.describe()
    assert again._ttl_config == descriptor._ttl_config


@pytest.mark.parametrize(
    "ttl", [Time.seconds(10), Duration.of_seconds(10), timedelta(seconds=10), "10 s", 10_000]
)
def test_ttl_forms(ttl):
    config = StateTtlConfig.new_builder(ttl).build()
    assert (config.get_ttl(), config.ttl_ms) == (Time.seconds(10), 10_000)
    assert StateTtlConfig.new_builder("1 d").set_ttl(ttl).build() == config


def test_ttl_defaults():
    config = StateTtlConfig.new_builder("1 h").build()
    assert config.get_update_type() is StateTtlConfig.UpdateType.OnCreateAndWrite
    assert config.get_state_visibility() is StateTtlConfig.StateVisibility.NeverReturnExpired
    clock = StateTtlConfig.TtlTimeCharacteristic.ProcessingTime
    assert config.get_ttl_time_characteristic() is clock
    assert config.is_enabled()
    strategies = config.get_cleanup_strategies()
    assert strategies.is_cleanup_in_background()
    assert not strategies.in_full_snapshot()
    assert strategies.get_incremental_cleanup_strategy().get_cleanup_size() == 5
    assert not strategies.get_incremental_cleanup_strategy().run_cleanup_for_every_record()
    rocksdb = strategies.get_rocksdb_compact_filter_cleanup_strategy()
    assert rocksdb.get_query_time_after_num_entries() == 1000
    assert rocksdb.get_periodic_compaction_time() == Duration.of_days(30)
    assert config.cleanup_size == 5


def test_ttl_builder():
    builder = (
        StateTtlConfig.new_builder("1 h")
        .update_ttl_on_create_and_write()
        .update_ttl_on_read_and_write()
        .never_return_expired()
        .return_expired_if_not_cleaned_up()
        .use_processing_time()
        .disable_cleanup_in_background()
    )
    before = builder.build()
    assert before.cleanup_size == 0
    assert before.get_cleanup_strategies().get_incremental_cleanup_strategy() is None
    assert before.get_cleanup_strategies().get_rocksdb_compact_filter_cleanup_strategy() is None
    config = (
        builder.cleanup_full_snapshot()
        .cleanup_incrementally(10, True)
        .cleanup_in_rocksdb_compact_filter(7, Duration.of_days(1))
        .build()
    )
    assert config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite
    assert config.get_state_visibility().name == "ReturnExpiredIfNotCleanedUp"
    strategies = config.get_cleanup_strategies()
    assert strategies.in_full_snapshot()
    assert config.cleanup_size == 10
    assert strategies.get_incremental_cleanup_strategy().run_cleanup_for_every_record()
    rocksdb = strategies.get_rocksdb_compact_filter_cleanup_strategy()
    assert rocksdb.get_query_time_after_num_entries() == 7
    assert rocksdb.get_periodic_compaction_time() == Duration.of_days(1)
    assert before.cleanup_size == 0
    assert before != config
    again = pickle.loads(pickle.dumps(config))
    assert again == config
    assert hash(again) == hash(config)


def test_ttl_disabled():
    builder = StateTtlConfig.new_builder("1 h")
    assert not builder.set_update_type(StateTtlConfig.UpdateType.Disabled).build().is_enabled()


@pytest.mark.parametrize(
    "build",
    [
        lambda b: b("0 s"),
        lambda b: b(Time.seconds(-1)),
        lambda b: b(Duration.of_nanos(5)),
        lambda b: b("soon"),
        lambda b: b(None),
        lambda b: b("1 h").set_ttl(0),
        lambda b: b("1 h").set_update_type("OnReadAndWrite"),
        lambda b: b("1 h").set_update_type(StateTtlConfig.StateVisibility.NeverReturnExpired),
        lambda b: b("1 h").set_state_visibility(1),
        lambda b: b("1 h").set_ttl_time_characteristic("EventTime"),
        lambda b: b("1 h").cleanup_incrementally(0, False),
        lambda b: b("1 h").cleanup_incrementally(True, False),
    ],
)
def test_bad_ttl(build):
    with pytest.raises(InvalidArgument) as caught:
        build(StateTtlConfig.new_builder)
    assert caught.value.hint


def test_map_syntax():
    state = Dict()
    state["a"] = 0
    state.put_all({"b": 2})
    assert (state["a"], state["missing"]) == (0, None)
    assert "a" in state
    assert "missing" not in state
    assert sorted(state) == ["a", "b"]
    del state["a"]
    del state["missing"]
    assert list(state.items()) == [("b", 2)]
    state.clear()
    assert state.is_empty()


def test_read_only_broadcast_state_cannot_be_cleared():
    with pytest.raises(UnsupportedOperation):
        ReadOnlyBroadcastState.clear(Dict())
    for name in ("put", "put_all", "remove", "__setitem__", "__delitem__"):
        assert not hasattr(ReadOnlyBroadcastState, name)


def test_interfaces():
    for each in (ValueState, ListState, MapState, ReducingState, AggregatingState, BroadcastState):
        assert issubclass(each, State)
        with pytest.raises(TypeError):
            each()
    assert issubclass(BroadcastState, ReadOnlyBroadcastState)
    for one in (ValueState, ListState, ReducingState):
        assert get_origin(one[int]) is one
    for two in (MapState, AggregatingState, BroadcastState):
        assert get_origin(two[str, int]) is two


def test_a_checkpointed_function_needs_both_methods():
    class Half(MapFunction, CheckpointedFunction):
        def map(self, value):
            return value

        def snapshot_state(self, context):
            pass

    with pytest.raises(TypeError):
        Half()
