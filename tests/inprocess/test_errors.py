"""What a user is told when something is wrong: class, code, operator, own line, record, position, hint."""

import operator
import threading
import warnings
from pathlib import Path

import pytest

from millstream.api.functions import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ReduceFunction,
    SinkFunction,
    SourceFunction,
)
from millstream.api.output_tag import OutputTag
from millstream.api.sink import Committer, Sink, SinkWriter
from millstream.api.source import Boundedness, Source, SourceReader, SplitEnumerator
from millstream.common.configuration import Configuration
from millstream.common.typeinfo import Types
from millstream.common.types import Row
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.file.format import StreamFormat
from millstream.connectors.file.source import FileSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import (
    ConfigurationError,
    EmptyProgramError,
    FunctionNotSerializable,
    InvalidArgument,
    JobError,
    KeySelectorError,
    MillstreamError,
    NotSupportedYet,
    RecordNotSerializable,
    SinkError,
    SourceError,
    SourceNotFound,
    TypeMismatchError,
    UnsupportedOperation,
    UserFunctionError,
)
from tests.support import collect, environment

NONE = WatermarkStrategy.no_watermarks()
IN_ENVIRONMENT = "in stream_execution_environment.py; reported"


def line_of(marker):
    """`file:line` of the line of this file that ends with a comment."""
    lines = Path(__file__).read_text().splitlines()
    (number,) = [n for n, text in enumerate(lines, 1) if text.endswith(f"# {marker}")]
    return f"{__file__}:{number}"


def failing(make, kind, *, env=None):
    """Run the stream that `make` builds; the error it fails with, which must be exactly of a kind."""
    with pytest.raises(MillstreamError) as caught:
        collect(make(env or environment()))
    error = caught.value
    assert type(error) is kind, error
    assert str(error).startswith(f"[{error.code}] ")
    return error


def numbers(env, *values):
    return env.from_collection(list(values) or [1, 2, 3])


# -- a user's function raises --------------------------------------------------------------------


def boom(value):
    raise ValueError(f"no {value}")  # boom


class BadMap(MapFunction):
    def map(self, value):
        return 1 // (value - 2)  # bad map


class BadFilter(FilterFunction):
    def filter(self, value):
        return boom(value)


class BadFlatMap(FlatMapFunction):
    def flat_map(self, value):
        yield value
        if value == 2:
            raise KeyError("in the middle")  # bad flat map
        yield value


class BadProcess(ProcessFunction):
    def process_element(self, value, ctx):
        yield value
        yield from boom(value)


class BadKeyedProcess(KeyedProcessFunction):
    def process_element(self, value, ctx):
        raise RuntimeError(f"key {ctx.get_current_key()}")  # bad keyed process


class BadReduce(ReduceFunction):
    def reduce(self, value1, value2):
        return boom((value1, value2))


def test_lambda():
    error = failing(lambda env: numbers(env).map(lambda v: 1 // (v - 2)), UserFunctionError)  # lam
    assert error.code == "USER_FUNCTION_FAILED"
    assert error.what == (
        "the function of 'Map' raised ZeroDivisionError: integer division or modulo by zero"
    )
    assert error.evidence["operator"] == "Map"
    assert error.evidence["record"] == "2"
    assert error.evidence["position"] == "split 'collection', positions 0 to 3, record 1 of these"
    assert error.evidence["line"].startswith(f"{line_of('lam')} in <lambda>: ")
    assert str(error.evidence["declared_at"]).startswith(line_of("lam"))
    assert "ZeroDivisionError" in error.evidence["traceback"]


@pytest.mark.parametrize(
    ("call", "name", "record", "text", "marker"),
    [
        (lambda s: s.map(BadMap()), "Map", "2", "ZeroDivisionError", "bad map"),
        (lambda s: s.map(boom), "Map", "1", "ValueError: no 1", "boom"),
        (lambda s: s.filter(BadFilter()), "Filter", "1", "ValueError: no 1", "boom"),
        (lambda s: s.flat_map(BadFlatMap()), "FlatMap", "2", "in the middle", "bad flat map"),
        (lambda s: s.process(BadProcess()), "Process", "1", "ValueError: no 1", "boom"),
        (
            lambda s: s.key_by(lambda v: v % 2).process(BadKeyedProcess()),
            "KeyedProcess",
            "1",
            "RuntimeError: key 1",
            "bad keyed process",
        ),
        (
            lambda s: s.key_by(lambda v: v % 2).reduce(BadReduce()),
            "Reduce",
            "3",
            "ValueError: no (1, 3)",
            "boom",
        ),
    ],
    ids=["MapFunction", "function", "filter", "generator", "process", "keyed process", "reduce"],
)
@pytest.mark.parametrize("epoch", [1, None])
def test_functions_of_all_kinds(call, name, record, text, marker, epoch):
    error = failing(lambda env: call(numbers(env)), UserFunctionError, env=environment(epoch=epoch))
    assert text in error.what
    assert f"'{name}'" in error.what
    assert (error.evidence["operator"], error.evidence["record"]) == (name, record)
    assert error.evidence["line"].startswith(line_of(marker))
    assert __file__ in str(error.evidence["declared_at"])


class BadCo(CoMapFunction):
    def map1(self, value):
        return value

    def map2(self, value):
        return boom(value)


class BadCoFlat(CoFlatMapFunction):
    def flat_map1(self, value):
        return None

    def flat_map2(self, value):
        yield boom(value)


class BadCoProcess(CoProcessFunction):
    def process_element1(self, value, ctx):
        return None

    def process_element2(self, value, ctx):
        return [boom(value)]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda c: c.map(BadCo()), "Co-Map"),
        (lambda c: c.flat_map(BadCoFlat()), "Co-Flat Map"),
        (lambda c: c.process(BadCoProcess()), "Co-Process"),
    ],
)
def test_two_inputs(call, name):
    error = failing(lambda env: call(numbers(env, 1).connect(numbers(env, "x"))), UserFunctionError)
    assert (error.evidence["operator"], error.evidence["record"]) == (name, "'x'")
    assert error.evidence["position"].startswith("input 1, channel 0, buffer 0, record 0")
    assert error.evidence["line"].startswith(line_of("boom"))


def test_the_record_is_that_of_the_operator_that_failed():
    error = failing(
        lambda env: numbers(env).map(lambda v: v * 10).map(boom).name("second"), UserFunctionError
    )
    assert (error.evidence["operator"], error.evidence["record"]) == ("second", "10")


def test_position_behind_an_exchange_and_in_a_later_epoch():
    env = environment(epoch=4)
    error = failing(
        lambda env: numbers(env, *range(10)).rebalance().map(lambda v: 1 // (v - 6)),
        UserFunctionError,
        env=env,
    )
    assert error.evidence["position"] == "input 0, channel 0, buffer 0, record 2"
    error = failing(
        lambda env: numbers(env, *range(10)).map(lambda v: 1 // (v - 6)),
        UserFunctionError,
        env=environment(epoch=4),
    )
    assert error.evidence["position"] == "split 'collection', positions 4 to 8, record 2 of these"


def test_a_builtin_has_no_line_but_its_declaration():
    error = failing(lambda env: numbers(env, "x").map(int), UserFunctionError)  # builtin
    assert "invalid literal for int()" in error.what
    assert "line" not in error.evidence
    assert str(error.evidence["declared_at"]).startswith(line_of("builtin"))


def test_a_long_record_is_cut_and_a_broken_repr_does_no_harm():
    class Shy:
        def __repr__(self):
            raise RuntimeError("no")

    error = failing(lambda env: numbers(env, "x" * 1000).map(boom), UserFunctionError)
    assert len(error.evidence["record"]) < 200
    assert "1002 characters" in error.evidence["record"]
    error = failing(
        lambda env: numbers(env, 1).map(lambda v: Shy()).map(lambda v: v.missing),
        UserFunctionError,
    )
    assert error.evidence["record"] == (
        "<test_a_long_record_is_cut_and_a_broken_repr_does_no_harm.<locals>.Shy"
        " whose repr failed: RuntimeError>"
    )


def test_stop_iteration_is_an_error_and_not_an_end():
    def stop(value):
        raise StopIteration

    error = failing(lambda env: numbers(env).map(stop), UserFunctionError)
    assert error.what == "the function of 'Map' raised StopIteration"


def test_braces_in_values_and_names_do_no_harm():
    error = failing(
        lambda env: numbers(env, "{x} {0}").map(boom).name("{name} %s"), UserFunctionError
    )
    assert error.evidence["operator"] == "{name} %s"
    assert error.evidence["record"] == "'{x} {0}'"


# -- open and close ------------------------------------------------------------------------------


class BadOpen(MapFunction):
    def open(self, runtime_context):
        raise ConnectionError("nobody there")  # bad open

    def map(self, value):
        return value


class BadClose(MapFunction):
    def map(self, value):
        return value

    def close(self):
        raise OSError("cannot let go")  # bad close


@pytest.mark.parametrize(
    ("function", "call", "text", "marker"),
    [
        (BadOpen(), "open()", "ConnectionError: nobody there", "bad open"),
        (BadClose(), "close()", "OSError: cannot let go", "bad close"),
    ],
)
def test_open_and_close(function, call, text, marker):
    error = failing(lambda env: numbers(env).map(function).name("m"), UserFunctionError)
    assert error.what == f"{call} of 'm' raised {text}"
    assert error.evidence["operator"] == "m"
    assert error.evidence["line"].startswith(line_of(marker))
    assert __file__ in str(error.evidence["declared_at"])


def test_a_failure_is_told_and_not_that_close_failed_after_it():
    class Both(MapFunction):
        def map(self, value):
            return boom(value) if value == 2 else value

        def close(self):
            raise OSError("closing failed too")

    env = environment(2, epoch=2)
    error = failing(
        lambda env: numbers(env, 1, 2, 3, 4).rebalance().map(Both()), UserFunctionError, env=env
    )
    assert "ValueError" in error.what


# -- sinks ---------------------------------------------------------------------------------------


class BadSink(SinkFunction):
    def __init__(self, where):
        self.where = where

    def open(self, runtime_context):
        if self.where == "open":
            boom("open")

    def invoke(self, value, context):
        if self.where == "invoke":
            boom(value)

    def flush(self):
        if self.where == "flush":
            boom("flush")


class BadWriterSink(Sink):
    def __init__(self, where):
        self.where = where

    def create_writer(self, context):
        if self.where == "create":
            boom("create")
        return BadWriter(self.where)

    def create_committer(self):
        return BadCommitter(self.where)


class BadWriter(SinkWriter):
    def __init__(self, where):
        self.where = where

    def write(self, value):
        if self.where == "write":
            boom(value)

    def prepare_commit(self):
        if self.where == "prepare":
            boom("prepare")
        return b"x"


class BadCommitter(Committer):
    def __init__(self, where):
        self.where = where

    def commit(self, epoch, committables):
        if self.where == "commit":
            boom("commit")


@pytest.mark.parametrize("where", ["open", "invoke", "flush"])
def test_sink_function(where):
    env = environment()
    numbers(env).add_sink(BadSink(where)).name("out")
    with pytest.raises(SinkError) as caught:
        env.execute()
    assert caught.value.code == "SINK_FAILED"
    assert caught.value.evidence["operator"] == "Sink: out"
    assert caught.value.evidence["line"].startswith(line_of("boom"))
    if where == "invoke":
        assert caught.value.evidence["record"] == "1"


@pytest.mark.parametrize("where", ["create", "write", "prepare", "commit"])
def test_sink_with_a_writer(where):
    env = environment()
    numbers(env).sink_to(BadWriterSink(where)).name("out")
    with pytest.raises(SinkError, match="ValueError: no ") as caught:
        env.execute()
    assert caught.value.evidence["operator"] == "Sink: out"


def test_a_plain_function_as_a_sink():
    env = environment()
    numbers(env).add_sink(boom)
    with pytest.raises(SinkError) as caught:
        env.execute()
    assert caught.value.evidence["line"].startswith(line_of("boom"))
    assert "data_stream.py" not in str(caught.value)


# -- what cannot travel --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "then",
    [
        lambda s: s.rebalance().map(str),
        lambda s: s.key_by(lambda v: 1).reduce(lambda a, b: a),
        lambda s: s,
    ],
    ids=["exchange", "key", "collect"],
)
def test_a_record_with_a_lock(then):
    def lock(value):
        return value, threading.Lock()

    error = failing(
        lambda env: then(numbers(env, 7).map(lock).name("locks")), RecordNotSerializable
    )
    assert error.code == "RECORD_NOT_SERIALIZABLE"
    assert "lock" in error.evidence["cause"]
    assert error.evidence["record"].startswith("(7, <unlocked _thread.lock")
    assert error.evidence["operator"] == "locks"
    assert "open()" in error.hint


def test_a_record_that_expands_into_a_lock():
    error = failing(
        lambda env: numbers(env, 1).flat_map(lambda v: [v, threading.Lock()] * 500).name("locks"),
        RecordNotSerializable,
    )
    assert "lock" in error.evidence["record"]


def test_a_collection_with_a_lock():
    with pytest.raises(RecordNotSerializable) as caught:
        environment().from_collection([1, threading.Lock()])
    assert caught.value.evidence["index"] == 1


LOCK = threading.Lock()


class Holds(KeySelector, Partitioner):
    """Something with a lock in it."""

    def __init__(self):
        self.lock = LOCK

    def get_key(self, value):
        return value

    def partition(self, key, num_partitions):
        return 0


def capturing():
    lock = threading.Lock()
    return lambda value: (value, lock)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda s: s.map(capturing()).name("x"), "the function of 'x'"),
        (
            lambda s: s.map(str).name("x").key_by(Holds()).reduce(min),
            "the key selector after 'x'",
        ),
        (
            lambda s: s.map(str).name("x").partition_custom(Holds(), int).map(str),
            "the partitioner after 'x'",
        ),
    ],
    ids=["closure", "key selector", "partitioner"],
)
def test_a_function_that_cannot_be_shipped(call, name):
    error = failing(lambda env: call(numbers(env)), FunctionNotSerializable)
    assert error.code == "FUNCTION_NOT_SERIALIZABLE"
    assert error.what == f"{name} cannot be sent to the workers"
    assert error.evidence["operator"] == "x"
    assert "lock" in error.evidence["cause"]
    assert __file__ in str(error.evidence["declared_at"])
    assert "open()" in error.hint


class OneWay(Exception):
    """Pickles, but does not unpickle: as many exceptions with two arguments."""

    def __init__(self, one, two):
        super().__init__(one)


def test_a_record_that_can_be_written_but_not_read():
    error = failing(
        lambda env: numbers(env).map(lambda v: OneWay(v, v)).name("m").rebalance().map(str),
        RecordNotSerializable,
    )
    assert "OneWay" in str(error)


# -- keys ----------------------------------------------------------------------------------------


class BadKey(KeySelector):
    def get_key(self, value):
        return boom(value)


@pytest.mark.parametrize(
    ("selector", "parts"),
    [
        (BadKey(), ["key selector after 'numbers' raised ValueError: no 1", "filter out"]),
        (boom, ["key selector after 'numbers' raised ValueError: no 1", "filter out"]),
        (lambda v: v["k"], ["key selector after 'numbers' raised TypeError"]),
        ("name", ["after 'numbers' has no key 'name'", "in every record"]),
        (3, ["after 'numbers' has no key 3", "in every record"]),
    ],
    ids=["class", "function", "inlined", "name", "position"],
)
def test_key_selector(selector, parts):
    error = failing(
        lambda env: numbers(env).map(lambda v: v).name("numbers").key_by(selector).sum(),  # key
        KeySelectorError,
    )
    assert error.code == "KEY_SELECTOR_FAILED"
    for part in parts:
        assert part in str(error)
    assert (error.evidence["operator"], error.evidence["record"]) == ("numbers", "1")
    assert str(error.evidence["declared_at"]).startswith(line_of("key"))
    assert error.hint
    if selector in (boom, "class"):
        assert error.evidence["line"].startswith(line_of("boom"))


def test_a_selector_on_a_keyed_stream_that_is_collected():
    error = failing(lambda env: numbers(env).key_by(boom), KeySelectorError)
    assert error.evidence["line"].startswith(line_of("boom"))


def test_unhashable_keys_work():
    env = environment(2, epoch=1)
    keys = [[1], {"a": [1]}, {1, 2}, [1], {1, 2}, bytearray(b"x"), {"a": [1]}]
    stream = env.from_collection([(key, 1) for key in keys]).key_by(0).sum(1)
    results = collect(stream)
    assert len(results) == 7
    assert sorted(count for _, count in results) == [1, 1, 1, 1, 2, 2, 2]


def test_a_key_that_cannot_be_serialized():
    error = failing(
        lambda env: numbers(env).key_by(lambda v: threading.Lock()).sum(), KeySelectorError
    )
    assert "a key of type lock cannot be serialized" in error.what
    assert "plain values" in error.hint


def test_a_key_of_the_wrong_type():
    error = failing(
        lambda env: numbers(env, "a").key_by(lambda v: v, Types.INT()).reduce(max),
        TypeMismatchError,
    )
    assert (error.evidence["wanted"], error.evidence["found"]) == ("Integer", "str")
    assert "key_type" in error.hint


@pytest.mark.parametrize("selector", [True, 1.5, None, "not a name", MapFunction, BadMap()])
def test_what_cannot_be_a_key(selector):
    with pytest.raises(InvalidArgument, match="key_by"):
        numbers(environment()).key_by(selector)
    with pytest.raises(InvalidArgument, match="partition_custom"):
        numbers(environment()).partition_custom(lambda k, n: 0, selector)


# -- declared types ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "declared", "parts"),
    [
        ("x", Types.INT(), ["type Integer", "wanted: Integer", "found: str"]),
        ((1,), Types.TUPLE([Types.INT(), Types.INT()]), ["tuple with 1 fields"]),
        ((1, "x"), Types.TUPLE([Types.INT(), Types.INT()]), ["field: f1", "found: str"]),
        ({"a": 1}, Types.STRING(), ["found: dict"]),
        (
            Row(a=1),
            Types.ROW_NAMED(["b"], [Types.INT()]),
            ["Row with the fields a", "RowTypeInfo(b: Integer)"],
        ),
    ],
    ids=str,
)
def test_output_type(value, declared, parts):
    error = failing(
        lambda env: numbers(env, 1).map(lambda v: value, declared).name("typed"),  # typed
        TypeMismatchError,
    )
    assert error.code == "TYPE_MISMATCH"
    for part in parts:
        assert part in str(error)
    assert error.evidence["operator"] == "typed"
    assert error.evidence["record"] == repr(value)
    assert str(error.evidence["declared_at"]).startswith(line_of("typed"))
    assert "output_type" in error.hint


def test_type_of_a_source_and_of_a_side_output():
    error = failing(lambda env: env.from_collection([1, "x"], Types.INT()), TypeMismatchError)
    assert error.evidence["record"] == "'x'"
    assert "record 1" in error.evidence["position"]

    class Side(ProcessFunction):
        def process_element(self, value, ctx):
            yield OutputTag("s"), "text"

    tag = OutputTag("s", Types.INT())
    error = failing(
        lambda env: numbers(env).process(Side()).get_side_output(tag), TypeMismatchError
    )
    assert error.evidence["found"] == "str"


@pytest.mark.parametrize("declared", ["STRING", int, Types.STRING])
def test_a_type_that_is_none(declared):
    with pytest.raises(InvalidArgument, match="output type") as caught:
        numbers(environment()).map(str, declared)
    assert "Types.STRING()" in caught.value.hint


# -- results that are no iterable ----------------------------------------------------------------


class ReturnsNumber(ProcessFunction):
    def process_element(self, value, ctx):
        return 5


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda s: s.flat_map(lambda v: None), ["returned NoneType", "[] for no records"]),
        (lambda s: s.flat_map(lambda v: 5), ["returned int", "flat_map must return"]),
        (lambda s: s.process(ReturnsNumber()), ["returned int", "yield the records"]),
    ],
    ids=["None", "int", "process"],
)
def test_not_iterable(call, parts):
    error = failing(lambda env: call(numbers(env)), UserFunctionError)
    for part in [*parts, "which is not iterable"]:
        assert part in str(error)
    assert error.evidence["record"] == "1"


def test_a_builtin_that_raises_is_not_taken_for_one_that_returns():
    for call in (lambda s: s.flat_map(list), lambda s: s.map(list)):
        error = failing(lambda env, call=call: call(numbers(env)), UserFunctionError)
        assert "raised TypeError: 'int' object is not iterable" in error.what


def test_an_error_inside_a_function_is_not_taken_for_its_result():
    error = failing(lambda env: numbers(env).flat_map(lambda v: [*v]), UserFunctionError)
    assert "raised TypeError" in error.what


# -- partitioning --------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [-1, 2, None, "0", 1.0, True])
def test_partition_out_of_range(target):
    error = failing(
        lambda env: numbers(env).partition_custom(lambda k, n: target, lambda v: v).map(str),  # pc
        UserFunctionError,
        env=environment(2),
    )
    assert "partitioner after 'Source: Collection Source' chose a target" in error.what
    assert error.evidence["chosen"] == repr(target)
    assert error.evidence["wanted"] == "a number from 0 to 1"
    assert error.evidence["record"] == "1"
    assert str(error.evidence["declared_at"]).startswith(line_of("pc"))
    assert "num_partitions" in error.hint


def test_a_partitioner_that_raises():
    error = failing(
        lambda env: numbers(env).partition_custom(lambda k, n: boom(k), lambda v: v).map(str),
        UserFunctionError,
    )
    assert "the partitioner after" in error.what
    assert error.evidence["line"].startswith(line_of("boom"))


def test_forward_needs_the_same_parallelism():
    env = environment(2)
    numbers(env).map(str).name("one").forward().map(str).name("two").set_parallelism(3).print()
    with pytest.raises(InvalidArgument) as caught:
        env.execute()
    assert "forward() from 'one' to 'two'" in caught.value.what
    assert caught.value.evidence["parallelism"] == "2 and 3"
    assert "rebalance()" in caught.value.hint


# -- aggregations --------------------------------------------------------------------------------


def test_sum_of_text():
    error = failing(
        lambda env: env.from_collection([("a", "x")]).key_by(0).sum(1), TypeMismatchError
    )
    assert error.what == "sum(1) on 'Sum' needs a number"
    assert error.evidence["found"] == "str"


def test_a_declared_type_has_no_such_field():
    row = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.INT()])
    keyed = environment().from_collection([("a", 1)], row).key_by("k")
    with pytest.raises(InvalidArgument, match="there is no field 'm'") as caught:
        keyed.sum("m")
    assert caught.value.evidence["fields"] == "k, n"


# -- configuration -------------------------------------------------------------------------------


def test_unknown_keys_warn_with_the_nearest_match():
    configuration = Configuration().set_string("millstream.epoch.record", "3")
    with pytest.warns(UserWarning, match="did you mean 'millstream.epoch.records'"):
        StreamExecutionEnvironment.get_execution_environment(configuration)


def test_the_warning_points_at_the_users_line():
    configuration = Configuration().set_string("millstream.epoch.record", "3")
    with pytest.warns(UserWarning, match="unknown configuration key") as caught:
        StreamExecutionEnvironment.get_execution_environment(configuration)
    assert caught[0].filename == __file__


def test_unknown_keys_warn_once():
    env = environment()
    configuration = Configuration().set_string("no.such.key", "3")
    with pytest.warns(UserWarning, match=r"'no\.such\.key'$"):
        env.configure(configuration)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.configure(configuration)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("parallelism.default", "many"),
        ("parallelism.default", "0"),
        ("parallelism.default", "-3"),
        ("pipeline.max-parallelism", "x"),
        ("millstream.epoch.records", "0"),
        ("millstream.epoch.records", "-1"),
        ("millstream.buffer.records", "0"),
        ("millstream.buffer.bytes", "0"),
        ("millstream.buffer.bytes", "lots"),
        ("execution.target", "moon"),
        ("execution.buffer-timeout.interval", "soon"),
        ("millstream.epoch.interval", "0 s"),
    ],
)
def test_bad_values_are_named(key, value):
    env = environment()
    env.get_configuration().set_string(key, value)
    with pytest.raises(ConfigurationError) as caught:
        collect(numbers(env).map(str))
    assert caught.value.code == "CONFIGURATION_INVALID"
    assert caught.value.evidence["key"] == key
    assert value in caught.value.evidence["value"]
    assert caught.value.evidence["wanted"]
    assert caught.value.hint


# -- sources -------------------------------------------------------------------------------------


def test_a_missing_file(tmp_path):
    missing = tmp_path / "missing.txt"
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), missing).build()
    with pytest.raises(SourceNotFound) as caught:
        environment().from_source(source, NONE, "files")
    assert caught.value.code == "SOURCE_NOT_FOUND"
    assert str(missing) in str(caught.value)


class Dying(Source):
    """Ten numbers; something fails on the way."""

    def __init__(self, where, at=4, split="only"):
        self.where, self.at, self.split = where, at, split

    def boundedness(self):
        return Boundedness.BOUNDED

    def create_enumerator(self, parallelism):
        if self.where == "create":
            boom("create")
        return DyingSplits(self.where, self.split)

    def create_reader(self):
        return DyingReader(self.where, self.at)


class DyingSplits(SplitEnumerator):
    def __init__(self, where, split):
        self.where, self.split = where, split

    def discover(self):
        if self.where == "discover":
            boom("discover")
        return [self.split]

    def available(self, split, position):
        return 10

    def finished(self, split, position):
        return position == 10


class DyingReader(SourceReader):
    def __init__(self, where, at):
        self.where, self.at = where, at

    def open(self):
        if self.where == "open":
            boom("open")

    def read(self, split, start, end):
        for number in range(start, end):
            if self.where == "read" and number == self.at:
                raise OSError("the disk is gone")  # read
            yield number


@pytest.mark.parametrize("where", ["create", "discover", "open"])
def test_a_source_that_does_not_start(where):
    error = failing(lambda env: env.from_source(Dying(where), NONE, "tens"), SourceError)
    assert error.code == "SOURCE_FAILED"
    assert "'Source: tens'" in error.what
    assert f"ValueError: no {where}" in error.what
    assert error.evidence["line"].startswith(line_of("boom"))


def test_a_source_that_dies_in_mid_read():
    error = failing(lambda env: env.from_source(Dying("read"), NONE, "tens"), SourceError)
    assert error.what == "the source 'Source: tens' raised OSError: the disk is gone"
    assert error.evidence["line"].startswith(line_of("read"))
    assert __file__ in str(error.evidence["declared_at"])


def test_where_a_source_died():
    error = failing(lambda env: env.from_source(Dying("read"), NONE, "tens"), SourceError)
    assert error.evidence["position"] == "split 'only', positions 0 to 10, record 4 of these"


def test_a_source_that_dies_in_a_split_with_braces():
    source = Dying("read", 0, "{only}")
    error = failing(lambda env: env.from_source(source, NONE, "tens"), SourceError)
    assert error.evidence["position"] == "split '{only}', positions 0 to 10, record 0 of these"


class DyingFunction(SourceFunction):
    def run(self, ctx):
        ctx.collect(1)
        boom("more")

    def cancel(self):
        pass


def test_a_source_function_that_raises():
    error = failing(lambda env: env.add_source(DyingFunction(), "numbers"), SourceError)
    assert "'numbers' raised ValueError: no more" in error.what
    assert line_of("boom").partition(":")[0] in error.evidence["traceback"]


def test_a_user_error_names_the_split_even_with_braces():
    source = Dying("no", 0, "{only} {0}")
    error = failing(lambda env: env.from_source(source, NONE, "tens").map(boom), UserFunctionError)
    assert error.evidence["position"] == (
        "split '{only} {0}', positions 0 to 10, record 0 of these"
    )


# -- programs ------------------------------------------------------------------------------------


def test_nothing_to_execute():
    with pytest.raises(EmptyProgramError) as caught:
        environment().execute()
    assert caught.value.code == "EMPTY_PROGRAM"
    assert caught.value.what == "No operators defined in streaming topology. Cannot execute."
    assert "print" in caught.value.hint


def test_a_program_without_a_sink_is_empty():
    env = environment()
    numbers(env).map(boom)
    with pytest.raises(EmptyProgramError):
        env.execute()


def test_a_second_execute_has_nothing_left():
    env = environment()
    numbers(env).add_sink(lambda v: None)
    env.execute()
    with pytest.raises(EmptyProgramError, match="No operators defined"):
        env.execute()
    numbers(env).add_sink(lambda v: None)
    env.execute()


def test_a_uid_used_twice():
    env = environment()
    numbers(env).map(str).uid("u").name("one").map(str).uid("u").name("two").print()
    with pytest.raises(InvalidArgument, match="the uid 'u' is used by two operators") as caught:
        env.execute()
    assert caught.value.evidence["operators"] == "'one' and 'two'"


def test_parallelism_above_the_maximum():
    env = environment()
    numbers(env).map(str).name("m").set_parallelism(5).set_max_parallelism(4).print()
    with pytest.raises(InvalidArgument, match="parallelism of 'm' is above its maximum"):
        env.execute()


@pytest.mark.parametrize("call", ["union", "connect"])
def test_streams_of_two_environments(call):
    one, two = numbers(environment()), numbers(environment())
    with pytest.raises(InvalidArgument, match=f"{call}.*environment"):
        getattr(one, call)(two)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_makes_no_sense_starts_no_job(limit):
    env = environment()
    stream = numbers(env)
    with pytest.raises(InvalidArgument, match="limit must be 1 or more"):
        stream.execute_and_collect(limit=limit)
    assert not [t for t in threading.enumerate() if t.name.startswith("millstream-")]
    with pytest.raises(EmptyProgramError):
        env.execute()


# -- not there yet -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda s: s.cache(), "cache"),
    ],
)
def test_calls_that_are_not_there_yet(call, name):
    with pytest.raises(NotSupportedYet) as caught:
        call(numbers(environment()))
    assert caught.value.code == "NOT_SUPPORTED_YET"
    assert name in caught.value.what
    assert "not available yet" in caught.value.what


@pytest.mark.parametrize(
    "call",
    ["get_state", "get_list_state", "get_map_state", "get_reducing_state", "get_aggregating_state"],
)
def test_state_needs_a_descriptor_of_its_kind(call):
    class Stateful(KeyedProcessFunction):
        def open(self, runtime_context):
            getattr(runtime_context, call)("descriptor")  # state

        def process_element(self, value, ctx):
            return []

    error = failing(
        lambda env: numbers(env).key_by(lambda v: v).process(Stateful()).name("st"), InvalidArgument
    )
    assert "descriptor of another kind" in error.what
    assert error.evidence["operator"] == "st"
    assert error.evidence["line"].startswith(line_of("state"))


TIMERS = [
    f"{verb}_{domain}_time_timer"
    for verb in ("register", "delete")
    for domain in ("event", "processing")
]


@pytest.mark.parametrize("call", TIMERS)
@pytest.mark.parametrize("time", [2**63, -(2**63) - 1, 1.5, "5", None])
def test_timers_need_a_time(call, time):
    class Timed(KeyedProcessFunction):
        def process_element(self, value, ctx):
            getattr(ctx.timer_service(), call)(time)  # timer
            return []

        def on_timer(self, timestamp, ctx):
            return []

    error = failing(lambda env: numbers(env).key_by(lambda v: v).process(Timed()), InvalidArgument)
    assert call in error.what
    assert error.evidence["operator"] == "KeyedProcess"
    assert error.evidence["record"] == "1"
    assert "record 0" in error.evidence["position"]


@pytest.mark.parametrize("call", TIMERS)
def test_timers_need_a_key(call):
    class Timed(ProcessFunction):
        def process_element(self, value, ctx):
            assert ctx.timer_service().current_processing_time() > 0
            getattr(ctx.timer_service(), call)(5)
            return []

    error = failing(lambda env: numbers(env).process(Timed()), UnsupportedOperation)
    assert call in error.what
    assert "only keyed functions" in error.what
    assert "key_by" in error.hint


# -- calls that make no sense --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("name", ["n"]),
        ("get_name", []),
        ("uid", ["u"]),
        ("set_uid_hash", ["h"]),
        ("set_parallelism", [2]),
        ("set_max_parallelism", [2]),
        ("force_non_parallel", []),
        ("set_buffer_timeout", [5]),
        ("start_new_chain", []),
        ("disable_chaining", []),
        ("slot_sharing_group", ["g"]),
        ("set_description", ["d"]),
        ("forward", []),
        ("rebalance", []),
        ("rescale", []),
        ("shuffle", []),
        ("broadcast", []),
        ("global_", []),
        ("partition_custom", [lambda k, n: 0, lambda v: v]),
    ],
)
def test_setters_and_partitioning_on_a_keyed_stream(call, arguments):
    keyed = numbers(environment()).key_by(lambda v: v)
    with pytest.raises(UnsupportedOperation) as caught:
        getattr(keyed, call)(*arguments)
    assert caught.value.code == "UNSUPPORTED_OPERATION"
    assert f"{call}" in caught.value.what
    assert "KeyedStream" in caught.value.what
    assert "before key_by" in caught.value.hint


class NoMap(MapFunction):
    def map(self, value):
        return value


class NoSink(SinkFunction):
    def invoke(self, value, context):
        pass


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda s: s.map(NoMap), "NoMap"),
        (lambda s: s.filter(BadFilter), "BadFilter"),
        (lambda s: s.flat_map(BadFlatMap), "BadFlatMap"),
        (lambda s: s.process(BadProcess), "BadProcess"),
        (lambda s: s.key_by(BadKey), "BadKey"),
        (lambda s: s.partition_custom(Holds, lambda v: v), "Holds"),
        (lambda s: s.key_by(lambda v: v).reduce(BadReduce), "BadReduce"),
        (lambda s: s.key_by(lambda v: v).process(BadKeyedProcess), "BadKeyedProcess"),
        (lambda s: s.connect(s).map(BadCo), "BadCo"),
        (lambda s: s.connect(s).flat_map(BadCoFlat), "BadCoFlat"),
        (lambda s: s.connect(s).process(BadCoProcess), "BadCoProcess"),
        (lambda s: s.add_sink(NoSink), "NoSink"),
        (lambda s: s.sink_to(BadWriterSink), "BadWriterSink"),
        pytest.param(
            lambda s: s.get_execution_environment().add_source(DyingFunction),
            "DyingFunction",
        ),
        pytest.param(
            lambda s: s.get_execution_environment().from_source(Dying, NONE, "n"),
            "Dying",
        ),
    ],
)
def test_a_class_instead_of_an_object(call, name):
    with pytest.raises(InvalidArgument) as caught:
        call(numbers(environment()))
    assert f"{name}()" in caught.value.hint
    assert f"class {name}" in caught.value.what


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda s: s.map(5), ["map needs a MapFunction or a callable", "int"]),
        (lambda s: s.map(BadFlatMap()), ["map needs a MapFunction", "BadFlatMap"]),
        (lambda s: s.process(lambda v: v), ["process needs a ProcessFunction", "function"]),
        (
            lambda s: s.process(BadKeyedProcess()),
            ["is a KeyedProcessFunction, and this stream has no key"],
        ),
        (
            lambda s: s.key_by(lambda v: v).process(BadProcess()),
            ["process needs a KeyedProcessFunction", "BadProcess"],
        ),
        (lambda s: s.union("x"), ["union takes streams", "x"]),
        (lambda s: s.connect("x"), ["connect takes a stream", "str"]),
        (lambda s: s.sink_to(NoSink()), ["sink_to needs a Sink", "add_sink()"]),
        (lambda s: s.connect(s).process(KeyedCo()), ["needs both streams keyed", "key_by"]),
        (lambda s: s.project(), ["project needs field positions"]),
        (lambda s: s.project(-1), ["project needs field positions"]),
        (lambda s: s.set_parallelism(2), ["cannot run with a parallelism of 2"]),
        (lambda s: s.map(str).set_parallelism(0), ["parallelism must be from 1 to 32768"]),
        (lambda s: s.map(str).set_parallelism("2"), ["parallelism must be from 1 to 32768"]),
        (lambda s: s.map(str).set_max_parallelism(40_000), ["from 1 to 32768"]),
        (lambda s: s.get_execution_environment().from_collection("abc"), ["from_collection needs"]),
        (lambda s: s.get_execution_environment().from_collection(5), ["from_collection needs"]),
        (lambda s: OutputTag(""), ["non-empty string"]),
    ],
)
def test_bad_arguments(call, parts):
    with pytest.raises(InvalidArgument) as caught:
        call(numbers(environment()))
    for part in parts:
        assert part in str(caught.value)


class KeyedCo(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        return None

    def process_element2(self, value, ctx):
        return None


@pytest.mark.parametrize("view", ["union", "rebalance", "side"])
def test_setters_on_what_is_no_operator(view):
    stream = numbers(environment())
    views = {
        "union": lambda: stream.union(stream),
        "rebalance": stream.rebalance,
        "side": lambda: stream.map(str).get_side_output(OutputTag("x")),
    }
    with pytest.raises(UnsupportedOperation, match="name needs an operator"):
        views[view]().name("n")


# -- the job as a whole --------------------------------------------------------------------------


def test_exit_in_a_function_fails_the_job_and_not_the_client():
    error = failing(lambda env: numbers(env).map(lambda v: exit(3)), JobError)
    assert "SystemExit: 3" in str(error)


def test_a_failed_job_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for call in (lambda s: s.map(boom), lambda s: s.map(capturing())):
        env = environment(2, epoch=1)
        with pytest.raises(MillstreamError):
            collect(call(numbers(env).rebalance()).key_by(lambda v: v).sum())
    assert list(tmp_path.iterdir()) == []


def test_an_async_job_gives_its_error_to_whoever_asks_late():
    env = environment()
    numbers(env).map(boom).add_sink(lambda v: None)
    client = env.execute_async()
    with pytest.raises(UserFunctionError):
        client.get_job_execution_result().result(timeout=20)
    again = client.get_job_execution_result()
    assert again.done()
    assert isinstance(again.exception(), UserFunctionError)


def test_an_error_crosses_processes_as_text():
    from millstream.errors import decode, encode

    error = failing(lambda env: numbers(env).map(boom).name("m"), UserFunctionError)
    back = decode(f"Py4JJavaError: ...\n{encode(error)}\n\tat org.apache.spark")
    assert type(back) is UserFunctionError
    assert str(back) == str(error)


def test_itemgetter_is_a_selector():
    stream = environment().from_collection([("a", 1), ("a", 2)]).key_by(operator.itemgetter(0))
    assert collect(stream.sum(1)) == [("a", 1), ("a", 3)]


@pytest.mark.parametrize("name", [5, None, b"x", ["x"], True, "\ud800"])
def test_what_is_no_name_is_refused_where_it_is_given(name):
    env = environment()
    stream = env.from_collection([1]).map(str)
    sink = stream.print()
    calls = [stream.name, stream.uid, sink.name, sink.uid, ValueStateDescriptor]
    for call in calls if name is None else [*calls, env.execute]:
        with pytest.raises(InvalidArgument):
            call(name)


@pytest.mark.parametrize(
    "option", ["execution__checkpointing__dir", "execution__state_recovery__path"]
)
def test_a_path_that_cannot_be_one_is_refused(option):
    env = environment(**{option: "folder\0name"})
    with pytest.raises(ConfigurationError, match="NUL"):
        collect(env.from_collection([1]))
