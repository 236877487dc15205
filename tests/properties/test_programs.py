"""Random programs give the results of the reference, whatever the parallelism and the epochs.

`MILLSTREAM_EXAMPLES=2000` draws that many programs, new ones each time.
"""

from hypothesis import event, given, note
from hypothesis import strategies as st

from millstream.api.functions import (
    CoProcessFunction,
    KeyedCoProcessFunction,
    MapFunction,
    ProcessFunction,
)
from millstream.api.output_tag import OutputTag
from tests.in_rounds import in_rounds
from tests.properties import reference as ref
from tests.properties.reference import OPEN, Node, Reference
from tests.support import environment, keeping


class Split(ProcessFunction):
    def process_element(self, value, ctx):
        for tag, record in ref.split(value):
            yield record if tag is None else (OutputTag(tag), record)


class Join(CoProcessFunction):
    def process_element1(self, value, ctx):
        return ref.first_input(value)

    def process_element2(self, value, ctx):
        return ref.second_input(value)


class KeyedJoin(KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        yield from ref.with_key(ctx.get_current_key(), value)

    def process_element2(self, value, ctx):
        return ref.with_key(ctx.get_current_key(), value)


class Where(MapFunction):
    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        return value[0], value[1], self.subtask


EXCHANGES = {
    "rebalance": lambda s: s.rebalance(),
    "rescale": lambda s: s.rescale(),
    "shuffle": lambda s: s.shuffle(),
    "broadcast": lambda s: s.broadcast(),
    "global": lambda s: s.global_(),
    "custom": lambda s: s.partition_custom(ref.choose, lambda v: v[1]),
}


def build(env, nodes):
    """The program as a user would write it."""
    streams = []
    for node in nodes:
        inputs = [streams[number] for number in node.inputs]
        keys = [ref.SELECTORS[name] for name in node.selectors]
        match node.kind:
            case "source":
                stream = env.from_collection(node.argument)
            case "union":
                stream = inputs[0].union(*inputs[1:])
            case "exchange":
                stream = EXCHANGES[node.argument](inputs[0])
            case "side":
                stream = inputs[0].get_side_output(OutputTag(node.argument))
            case "map":
                stream = inputs[0].map(ref.MAPS[node.argument])
            case "flat_map":
                stream = inputs[0].flat_map(ref.FLAT_MAPS[node.argument])
            case "filter":
                stream = inputs[0].filter(ref.FILTERS[node.argument])
            case "process":
                stream = inputs[0].process(Split())
            case "where":
                stream = inputs[0].map(Where())
            case "co_process":
                stream = inputs[0].connect(inputs[1]).process(Join())
            case "keyed_co_process":
                stream = inputs[0].connect(inputs[1]).key_by(*keys).process(KeyedJoin())
            case "rolling":
                stream = getattr(inputs[0].key_by(keys[0]), node.argument)(1)
            case "reduce":
                stream = inputs[0].key_by(keys[0]).reduce(ref.REDUCES[node.argument])
            case unknown:
                raise ValueError(unknown)
        if node.parallelism is not None and node.kind not in (*ref.VIEWS, "source"):
            stream.set_parallelism(node.parallelism)
        streams.append(stream)
    return streams


# -- drawing programs ------------------------------------------------------------------------------

RECORDS = st.tuples(st.sampled_from(["a", "b", "ab"]), st.integers(-4, 20), st.integers(0, 5))
ARGUMENTS = {
    "exchange": list(EXCHANGES),
    "map": list(ref.MAPS),
    "flat_map": list(ref.FLAT_MAPS),
    "filter": list(ref.FILTERS),
    "rolling": list(ref.ROLLING),
    "reduce": list(ref.REDUCES),
    "side": ["odd", "b", "nothing"],
}
INPUTS = {"union": 3, "co_process": 2, "keyed_co_process": 2}
SELECTORS = {"rolling": 1, "reduce": 1, "keyed_co_process": 2}
KINDS = [
    "map",
    "flat_map",
    "filter",
    "rolling",
    "reduce",
    "process",
    "side",
    "union",
    "exchange",
    "where",
    "co_process",
    "keyed_co_process",
]


@st.composite
def programs(draw):
    """Nodes, the default parallelism, and the number of records in an epoch."""
    parallelism = draw(st.sampled_from([1, 2, 4]))
    nodes = [
        Node("source", argument=tuple(draw(st.lists(RECORDS, max_size=12))))
        for _ in range(draw(st.integers(1, 3)))
    ]
    for _ in range(draw(st.integers(1, 8))):
        node = draw_node(draw, nodes, Reference(nodes, parallelism))
        if node is not None:
            nodes.append(node)
    return nodes, parallelism, draw(st.sampled_from([None, 1, 2, 5]))


def draw_node(draw, nodes, so_far):
    kind = draw(st.sampled_from(KINDS))
    readable = [
        number
        for number in range(len(nodes))
        if all(so_far.results[read.node].order != OPEN for read in so_far.reads(number))
    ]
    if kind == "side":
        readable = [n for n in readable if nodes[n].kind == "process"]
    if kind == "where":
        custom = {"custom"}
        readable = [n for n in readable if {r.exchange for r in so_far.reads(n)} == custom]
    if not readable:
        return None
    count = draw(st.integers(1, 3)) if kind == "union" else INPUTS.get(kind, 1)
    return Node(
        kind,
        tuple(draw(st.sampled_from(readable)) for _ in range(count)),
        draw(st.sampled_from(ARGUMENTS[kind])) if kind in ARGUMENTS else None,
        tuple(draw(st.sampled_from(list(ref.SELECTORS))) for _ in range(SELECTORS.get(kind, 0))),
        draw(st.none() | st.sampled_from([1, 2, 3])),
    )


@given(programs(), st.data())
def test_programs_do_what_the_reference_says(drawn, data):
    nodes, parallelism, epoch = drawn
    expected = Reference(nodes, parallelism)
    read = {number for node in nodes for number in node.inputs}
    ends = [number for number in range(len(nodes)) if number not in read]
    watched = sorted({*ends, data.draw(st.integers(0, len(nodes) - 1))})
    rounds = data.draw(st.sampled_from([1, 1, 3]))
    note(f"parallelism {parallelism}, epochs of {epoch}, {rounds} rounds, looking at {watched}")

    env = environment(parallelism, epoch)
    streams = build(env, nodes)
    with keeping() as kept:
        for number in watched:
            kept.add(f"{number}", streams[number], expected.parallelism_of(number))
        with in_rounds(rounds):
            env.execute()
        assert watched
        for number in watched:
            node = nodes[number]
            records, order = expected.read(number, expected.parallelism_of(number))
            if number in expected.results:
                order = expected.results[number].order
            event(f"{node.kind}: {order if isinstance(order, str) else 'keyed'}")
            wrong = ref.differences(kept.values(f"{number}"), records, order, node)
            assert wrong is None, f"node {number}, {node}: {wrong}"
