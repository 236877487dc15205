"""Windows as they are written down: the operator they become, and what is refused before anything runs."""

import pickle

import cloudpickle
import pytest

from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.datastream import (
    AggregateFunction,
    AllWindowedStream,
    AllWindowFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
    WindowedStream,
    WindowFunction,
    functions,
    window,
)
from millstream.datastream.window import (
    CountEvictor,
    CountTrigger,
    CountWindow,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    MergingWindowAssigner,
    NeverTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeWindow,
    Trigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from millstream.errors import InvalidArgument, TypeMismatchError, UnsupportedOperation
from millstream.graph.operators import WindowOp
from millstream.runtime.operators.field_reduce import FieldReduce

TUMBLING = TumblingEventTimeWindows.of("5 s")
SESSIONS = EventTimeSessionWindows.with_gap("5 s")
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Sum(ReduceFunction):
    def reduce(self, value1, value2):
        return value1[0], value1[1] + value2[1]


class Apply(WindowFunction[tuple, tuple, str, TimeWindow]):
    def apply(self, key, window, inputs):
        return [key]


class Process(ProcessWindowFunction[tuple, tuple, str, CountWindow]):
    def process(self, key, context: ProcessWindowFunction.Context[CountWindow], elements):
        yield key


class ApplyAll(AllWindowFunction[tuple, tuple, TimeWindow]):
    def apply(self, window, inputs):
        return [1]


class ProcessAll(ProcessAllWindowFunction[tuple, tuple, TimeWindow]):
    def process(self, context: ProcessAllWindowFunction.Context[TimeWindow], elements):
        yield 1


@pytest.fixture
def env():
    env = StreamExecutionEnvironment.get_execution_environment("in-process")
    env.set_parallelism(4)
    return env


@pytest.fixture
def stream(env):
    return env.from_collection([("a", 1), ("b", 2)], type_info=PAIR)


@pytest.fixture
def keyed(stream):
    return stream.key_by(lambda record: record[0])


def operator(result):
    found = result._transformation.operator
    assert isinstance(found, WindowOp)
    return found


def nodes(env):
    graph = env._graph(env._sinks)
    return {node.name: node for node in graph.nodes.values()}, graph.edges


# -- what the operator is ------------------------------------------------------------------------------


def test_reduce(keyed):
    result = keyed.window(TUMBLING).reduce(max)
    op = operator(result)
    assert (op.kind, op.incremental, op.function, op.evictor) == ("reduce", max, None, None)
    assert (op.lateness, op.late_tag, op.all_windows) == (0, None, False)
    assert op.assigner is TUMBLING
    assert isinstance(op.trigger, EventTimeTrigger)
    assert op.keys == (keyed._key,)
    assert op.user_function is max
    assert result.get_type() == PAIR
    assert result.get_name() == "TumblingEventTimeWindows"
    described = result._transformation.description
    assert described == "Window(TumblingEventTimeWindows(5000), EventTimeTrigger(), max)"


def test_reduce_with_a_window_function(keyed):
    reduce, function = Sum(), Process()
    result = keyed.window(TUMBLING).reduce(reduce, function, output_type=Types.STRING())
    op = operator(result)
    assert (op.kind, op.incremental, op.function) == ("reduce", reduce, function)
    assert op.user_function is function
    assert result.get_type() == Types.STRING()
    untyped = keyed.window(TUMBLING).reduce(reduce, Apply())
    assert untyped.get_type() == Types.PICKLED_BYTE_ARRAY()


def test_aggregate(keyed):
    mean = Mean()
    result = keyed.window(TUMBLING).aggregate(
        mean, Apply(), Types.TUPLE([Types.LONG(), Types.LONG()]), [Types.FLOAT()]
    )
    op = operator(result)
    assert (op.kind, op.incremental, type(op.function)) == ("aggregate", mean, Apply)
    assert op.accumulator_type == Types.TUPLE([Types.LONG(), Types.LONG()])
    assert result.get_type() == Types.ROW([Types.FLOAT()])
    assert operator(keyed.window(TUMBLING).aggregate(mean)).function is None


def test_apply_and_process(keyed):
    windows = keyed.window(TUMBLING)
    for result, kind in ((windows.apply(Apply()), Apply), (windows.process(Process()), Process)):
        op = operator(result)
        assert (op.kind, op.incremental, type(op.function)) == ("list", None, kind)


def test_everything_that_can_be_set(keyed):
    trigger, evictor, late = CountTrigger.of(3), CountEvictor.of(5), OutputTag("late")
    windows = keyed.window(TUMBLING).trigger(trigger).evictor(evictor)
    result = windows.allowed_lateness("1 min").side_output_late_data(late).reduce(max)
    op = operator(result)
    assert (op.trigger, op.evictor, op.lateness, op.late_tag) == (trigger, evictor, 60_000, "late")
    # The evictor needs the records, so they are reduced only when the window fires.
    assert (op.kind, op.incremental) == ("list", max)
    described = result._transformation.description
    assert "CountTrigger(3), CountEvictor(5), max" in described
    assert result.get_side_output(late)._transformation.tag_id == "late"
    assert operator(keyed.window(TUMBLING).allowed_lateness(7).sum(1)).lateness == 7


def test_what_an_all_window_is(env, stream):
    windows = stream.window_all(TUMBLING)
    assert isinstance(windows, AllWindowedStream)
    result = windows.process(ProcessAll())
    op = operator(result)
    assert op.all_windows
    assert {op.key.selector(record) for record in ("a", None, 5)} == {0}
    result.print()
    found, edges = nodes(env)
    node = found["TumblingEventTimeWindows"]
    assert (node.parallelism, node.max_parallelism) == (1, 1)
    incoming = [edge for edge in edges if edge.target == node.id]
    assert [edge.partitioning.strategy.value for edge in incoming] == ["GLOBAL"]
    with pytest.raises(InvalidArgument, match="cannot run with a parallelism of 2"):
        result.set_parallelism(2)


def test_all_windows_of_a_keyed_stream_are_those_of_its_records(env, keyed):
    keyed.window_all(TUMBLING).apply(ApplyAll()).print()
    found, edges = nodes(env)
    node = found["TumblingEventTimeWindows"]
    incoming = [edge for edge in edges if edge.target == node.id]
    assert [edge.partitioning.strategy.value for edge in incoming] == ["GLOBAL"]


def test_windows_per_key_are_reached_by_hash(env, keyed):
    keyed.window(TUMBLING).sum(1).print()
    found, edges = nodes(env)
    node = found["TumblingEventTimeWindows"]
    assert node.parallelism == 4
    incoming = [edge for edge in edges if edge.target == node.id]
    assert [edge.partitioning.strategy.value for edge in incoming] == ["HASH"]


def test_count_windows(stream, keyed):
    assert isinstance(keyed.count_window(3), WindowedStream)
    for windows, shown in (
        (keyed.count_window(3), "CountTumblingWindowAssigner(3)"),
        (keyed.count_window(3, 2), "CountSlidingWindowAssigner(3, 2)"),
        (stream.count_window_all(3), "CountTumblingWindowAssigner(3)"),
        (stream.count_window_all(3, 2), "CountSlidingWindowAssigner(3, 2)"),
    ):
        op = operator(windows.sum(1))
        assert repr(op.assigner) == shown
        assert repr(op.trigger) == "PurgingTrigger(CountTrigger(3))"


def test_what_the_stream_knows(env, stream, keyed):
    for windows in (keyed.window(TUMBLING), stream.window_all(TUMBLING)):
        assert windows.get_input_type() == PAIR
        assert windows.get_execution_environment() is env


def test_the_default_trigger_is_not_asked_for_if_one_is_set(keyed):
    class NoDefault(TumblingEventTimeWindows):
        def get_default_trigger(self, env):
            raise AssertionError

    assert operator(keyed.window(NoDefault("1 s")).trigger(NeverTrigger()).sum(1))


def test_the_default_trigger_is_told_the_environment(env, keyed):
    told = []

    class Asking(TumblingEventTimeWindows):
        def get_default_trigger(self, env):
            told.append(env)
            return EventTimeTrigger.create()

    keyed.window(Asking("1 s")).sum(1)
    assert told == [env]


# -- fields --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "result"),
    [
        ("sum", ("a", 3, "x")),
        ("min", ("a", 1, "x")),
        ("max", ("a", 2, "x")),
        ("min_by", ("a", 1, "x")),
        ("max_by", ("a", 2, "y")),
    ],
)
def test_aggregations_of_a_field(keyed, kind, result):
    op = operator(getattr(keyed.window(TUMBLING), kind)(1))
    assert (op.kind, op.function) == ("reduce", None)
    for function in (op.incremental, pickle.loads(cloudpickle.dumps(op.incremental))):
        assert isinstance(function, FieldReduce)
        assert (function.kind, function.field) == (kind, 1)
        assert function.reduce(("a", 1, "x"), ("a", 2, "y")) == result


def test_fields_of_rows_scalars_and_by_name():
    assert FieldReduce("sum", 0, "W").reduce(1, 2) == 3
    assert FieldReduce("sum", 1, "W").reduce(Row("a", 1), Row("a", 2)) == Row("a", 3)
    assert FieldReduce("max", "n", "W").reduce(Row(n=1), Row(n=2)) == Row(n=2)


def test_ties_keep_the_earlier():
    for kind in ("min_by", "max_by"):
        assert FieldReduce(kind, 0, "W").reduce((1, "first"), (1, "second")) == (1, "first")


@pytest.mark.parametrize(
    ("kind", "field", "one", "two", "told"),
    [
        ("sum", 0, "a", "b", "needs a number"),
        ("sum", 1, ("a", 1), ("a", "x"), "cannot combine"),
        ("max", 1, ("a", 1), ("a", None), "cannot combine"),
        ("min", 5, ("a", 1), ("a", 2), "has no field 5"),
        ("min_by", "n", Row(m=1), Row(n=1), "has no field 'n'"),
    ],
)
def test_records_that_cannot_be_aggregated(kind, field, one, two, told):
    with pytest.raises(TypeMismatchError, match=told) as caught:
        FieldReduce(kind, field, "Per minute").reduce(one, two)
    assert caught.value.evidence["operator"] == "Per minute"


@pytest.mark.parametrize("field", [-1, True, 1.5, None])
def test_what_is_no_field(keyed, field):
    with pytest.raises(InvalidArgument, match="position or name"):
        keyed.window(TUMBLING).sum(field)


def test_a_field_that_the_type_does_not_have(env):
    typed = Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()])
    rows = env.from_collection([Row(word="a", n=1)], type_info=typed)
    windows = rows.key_by("word").window(TUMBLING)
    assert windows.sum("n").get_type() == typed
    with pytest.raises(InvalidArgument, match="there is no field 'm'") as caught:
        windows.sum("m")
    assert caught.value.evidence["fields"] == "word, n"


# -- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda s: s.window(None), "window needs a WindowAssigner"),
        (lambda s: s.window("5 s"), "window needs a WindowAssigner"),
        (lambda s: s.window(TumblingEventTimeWindows), "not an object of it"),
        (lambda s: s.window_all(None), "window_all needs a WindowAssigner"),
        (lambda s: s.window(TUMBLING).trigger(None), "trigger needs a Trigger"),
        (lambda s: s.window(TUMBLING).trigger(EventTimeTrigger), "not an object of it"),
        (lambda s: s.window(TUMBLING).evictor(5), "evictor needs an Evictor"),
        (lambda s: s.window(TUMBLING).evictor(CountEvictor), "not an object of it"),
        (lambda s: s.window(TUMBLING).side_output_late_data("late"), "needs an OutputTag"),
        (lambda s: s.window(TUMBLING).allowed_lateness(-1), "must not be negative"),
        (lambda s: s.window(TUMBLING).allowed_lateness("soon"), "not a duration"),
        (lambda s: s.window(TUMBLING).reduce(5), "needs a ReduceFunction or a callable"),
        (lambda s: s.window(TUMBLING).reduce(Sum), "not an object of it"),
        (lambda s: s.window(TUMBLING).reduce(max, min), "WindowFunction or ProcessWindowFunction"),
        (lambda s: s.window(TUMBLING).reduce(max, ApplyAll()), "window function of reduce"),
        (lambda s: s.window(TUMBLING).reduce(max, Process), "not an object of it"),
        (lambda s: s.window(TUMBLING).aggregate(max), "AggregateFunction"),
        (lambda s: s.window(TUMBLING).aggregate(Mean), "not an object of it"),
        (lambda s: s.window(TUMBLING).aggregate(Mean(), 5), "window function of aggregate"),
        (lambda s: s.window(TUMBLING).aggregate(Mean(), None, int), "must come from Types"),
        (lambda s: s.window(TUMBLING).apply(Process()), "apply needs a WindowFunction"),
        (lambda s: s.window(TUMBLING).apply(len), "apply needs a WindowFunction"),
        (lambda s: s.window(TUMBLING).process(Apply()), "process needs a ProcessWindowFunction"),
        (lambda s: s.window(TUMBLING).process(ProcessAll()), "needs a ProcessWindowFunction"),
        (lambda s: s.window_all(TUMBLING).process(Process()), "needs a ProcessAllWindowFunction"),
        (lambda s: s.window_all(TUMBLING).apply(Apply()), "AllWindowFunction"),
        (lambda s: s.window_all(TUMBLING).reduce(max, Apply()), "AllWindowFunction or Process"),
        (lambda s: s.window(TUMBLING).apply(Apply(), output_type=str), "must come from Types"),
        (lambda s: s.count_window(0), "1 or more"),
        (lambda s: s.count_window(3, -1), "1 or more"),
        (lambda s: s.count_window_all("3"), "1 or more"),
    ],
)
def test_what_cannot_be_built(keyed, call, told):
    with pytest.raises(InvalidArgument, match=told):
        call(keyed)


class CannotMerge(Trigger):
    def on_element(self, element, timestamp, window, ctx):
        raise AssertionError

    on_event_time = on_processing_time = clear = on_element


class Merging(MergingWindowAssigner):
    """A user's own, with a default trigger that does not fit."""

    def __init__(self, trigger):
        self.default = trigger

    def assign_windows(self, element, timestamp, context):
        raise AssertionError

    merge_windows = assign_windows

    def get_default_trigger(self, env):
        return self.default

    def is_event_time(self):
        return True


@pytest.mark.parametrize(
    "trigger", [CannotMerge(), DeltaTrigger.of(1, max), PurgingTrigger.of(CannotMerge())]
)
def test_windows_that_merge_need_a_trigger_that_can_follow(keyed, trigger):
    with pytest.raises(UnsupportedOperation, match="merges windows") as caught:
        keyed.window(SESSIONS).trigger(trigger)
    assert "can_merge" in caught.value.hint
    with pytest.raises(UnsupportedOperation, match="Merging merges windows"):
        keyed.window(Merging(trigger)).sum(1)
    assert keyed.window(Merging(trigger)).trigger(CountTrigger.of(2)).sum(1)
    assert keyed.window(TUMBLING).trigger(trigger).sum(1)


@pytest.mark.parametrize("default", [None, "soon", EventTimeTrigger])
def test_an_assigner_without_a_trigger(keyed, default):
    with pytest.raises(InvalidArgument, match="get_default_trigger of Merging gave no Trigger"):
        keyed.window(Merging(default)).sum(1)


def test_what_is_accepted_although_it_changes_nothing(keyed):
    processing = TumblingProcessingTimeWindows.of("5 s")
    assert operator(keyed.window(processing).allowed_lateness("1 s").sum(1)).lateness == 1000
    assert isinstance(operator(keyed.window(GlobalWindows.create()).sum(1)).trigger, NeverTrigger)
    assert operator(keyed.window(SlidingEventTimeWindows.of(5, 10)).sum(1))


# -- names ---------------------------------------------------------------------------------------------


def test_names_are_where_pyflink_has_them():
    for module in (window, functions):
        for name in module.__all__:
            assert getattr(module, name)
    for name in ("WindowFunction", "AllWindowFunction", "ProcessWindowFunction"):
        assert getattr(functions, name) is getattr(window, name)
    assert issubclass(window.TumblingEventTimeWindows, WindowAssigner)


def test_the_operator_travels(keyed):
    windows = keyed.window(SESSIONS).trigger(CountTrigger.of(2)).evictor(CountEvictor.of(1))
    op = operator(windows.aggregate(Mean(), Process()))
    again = pickle.loads(cloudpickle.dumps(op))
    assert repr(again.assigner) == repr(SESSIONS)
    assert (again.kind, again.lateness, again.all_windows) == ("list", 0, False)
