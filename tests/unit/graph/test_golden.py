"""Plans and generated code of typical programs, word for word; for that of each operator see `test_golden_code.py`.

`MILLSTREAM_UPDATE_GOLDEN=1` writes the files in `golden/` anew; the diff is then there to be read.
"""

import json
import os
from pathlib import Path

import pytest

from millstream.api.functions import (
    CoMapFunction,
    KeyedCoProcessFunction,
    ProcessFunction,
    SinkFunction,
)
from millstream.api.output_tag import OutputTag
from millstream.common.typeinfo import Types
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.connectors.number_seq import NumberSequenceSource
from tests.support import environment
from tests.unit.graph.programs import generated

GOLDEN = Path(__file__).parent / "golden"
LATE = OutputTag("late")


def same(value):
    return value


class Split(ProcessFunction):
    def process_element(self, value, ctx):
        yield value
        yield LATE, value


class Both(CoMapFunction):
    map1 = map2 = lambda self, value: value


class Join(KeyedCoProcessFunction):
    process_element1 = process_element2 = lambda self, value, ctx: [value]


class Nowhere(SinkFunction):
    def invoke(self, value, context):
        pass


def numbers(env, name):
    source = NumberSequenceSource(1, 10)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), name)


def word_count(env):
    lines = env.from_collection(["to be or not to be"])
    words = lines.flat_map(str.split).map(lambda word: (word, 1))
    words.key_by(lambda pair: pair[0]).sum(1).print()


def fork_and_side_outputs(env):
    split = numbers(env, "numbers").process(Split()).name("split")
    split.map(same).name("on time").print("main")
    split.get_side_output(LATE).map(same).name("too late").print("late")


def diamond(env):
    env.set_parallelism(2)
    stream = numbers(env, "numbers").map(same).name("top")
    left = stream.rebalance().map(same).name("left")
    right = stream.filter(same).name("right")
    left.union(right).map(same).name("bottom").add_sink(Nowhere()).name("out")


def connected(env):
    env.set_parallelism(2)
    one, two = numbers(env, "one"), env.from_collection([1])
    one.connect(two).map(Both()).name("both").print()
    one.connect(two).key_by(same, same).process(Join()).name("join").print("joined")


def partitionings(env):
    env.set_parallelism(4)
    stream = numbers(env, "numbers")
    for call in ("rebalance", "rescale", "shuffle", "broadcast", "global_", "forward"):
        getattr(stream, call)().map(same).name(call).add_sink(Nowhere()).name(call)
    custom = stream.partition_custom(lambda key, count: key % count, same)
    custom.map(same).name("custom").add_sink(Nowhere()).name("custom")
    stream.key_by(same).map(same).name("keyed").add_sink(Nowhere()).name("keyed")


def settings(env):
    env.set_parallelism(3)
    stream = numbers(env, "numbers").set_parallelism(2)
    stream = stream.map(same).name("named").uid("an-id").set_description("a longer text")
    stream = stream.filter(same).set_parallelism(5).start_new_chain().slot_sharing_group("other")
    stream.key_by(same).reduce(min).disable_chaining().print().set_parallelism(1)


def self_union(env):
    stream = env.from_collection([1, 2])
    stream.union(stream, stream.map(same).name("copy")).print()


def aggregations(env):
    keyed = env.from_collection([("a", 1)]).key_by(0)
    for kind in ("sum", "min", "max", "min_by", "max_by"):
        getattr(keyed, kind)(1).print(kind)
    keyed.reduce(min).print("reduce")


PLANS = [
    word_count,
    fork_and_side_outputs,
    diamond,
    connected,
    partitionings,
    settings,
    self_union,
    aggregations,
]


def typed_chain(env):
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    stream = env.from_collection([("a", 1)], pair).filter(lambda p: p[1] > 0)
    split = stream.process(Split(), pair).name("split")
    split.get_side_output(LATE).print("late")
    split.map(lambda p: p[1], Types.LONG()).print("main")


def deep_chain(env):
    env.set_parallelism(2)
    stream = numbers(env, "numbers")
    for number in range(11):
        stream = stream.flat_map(lambda v: [v]).name(f"flat {number}")
    stream.rebalance().map(same).print()


def reduce_and_go_on(env):
    keyed = env.from_collection([("a", 1)]).key_by("name", Types.STRING())
    reduced = keyed.reduce(lambda a, b: a)
    reduced.map(same).name("exposed").partition_custom(lambda k, n: 0, 1).print()


# Program and level: the first vertex of that level is shown.
CODE = [(word_count, 0), (word_count, 1), (typed_chain, 0), (deep_chain, 0), (reduce_and_go_on, 1)]


def check(name, text):
    path = GOLDEN / name
    if os.environ.get("MILLSTREAM_UPDATE_GOLDEN") == "1":
        path.write_text(text)
    assert text == path.read_text(), f"{name} has changed; if it should, MILLSTREAM_UPDATE_GOLDEN=1"


@pytest.mark.parametrize("program", PLANS, ids=lambda program: program.__name__)
def test_plan(program):
    env = environment()
    program(env)
    plan = env.get_execution_plan()
    check(f"{program.__name__}.json", plan + "\n")
    nodes = json.loads(plan)["nodes"]
    known = {node["id"] for node in nodes}
    assert all(p["id"] in known for node in nodes for p in node.get("predecessors", []))


@pytest.mark.parametrize(("program", "level"), CODE, ids=lambda one: getattr(one, "__name__", one))
def test_generated_code(program, level):
    env = environment()
    program(env)
    check(f"{program.__name__}_{level}.txt", generated(env, level))


def test_there_are_no_other_files():
    wanted = {f"{program.__name__}.json" for program in PLANS}
    wanted |= {f"{program.__name__}_{level}.txt" for program, level in CODE}
    assert {path.name for path in GOLDEN.iterdir() if path.is_file()} == wanted
