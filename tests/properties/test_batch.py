"""Random programs give the same final results in BATCH as in STREAMING, and as the reference (rules 47, 60).

What may be compared: inputs within their bound, where nothing is late; and one split in the order of time, where the
order of a key's records is the same in both modes, so that triggers and evictors which look at the order agree too.
Left out is what rule 60 makes different: timers set by timers, and with them continuous triggers. A rolling aggregation
gives many results in STREAMING: the last one of each key counts, and nothing may read them.
"""

import tempfile
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from millstream.common.execution_mode import RuntimeExecutionMode
from millstream.graph.operators import CollectOp
from tests.properties import reference, test_programs
from tests.properties import test_time_programs as timed
from tests.properties import time_reference as ref
from tests.properties.reference import OPEN, SELECTORS, Reference
from tests.properties.time_reference import Program, Timers, Window
from tests.support import environment, keeping

BATCH, STREAMING = RuntimeExecutionMode.BATCH, RuntimeExecutionMode.STREAMING
# What key groups may take in memory; with little of it most of them are taken apart on disk.
MEMORY = st.sampled_from([None, None, 1, 200, 2000])


def options(memory):
    return {} if memory is None else {"millstream__sort__memory": f"{memory} b"}


# -- over time -------------------------------------------------------------------------------------


@st.composite
def in_order(draw):
    """One split in the order of time, all at even times; some records announce what is before them."""
    moves = st.tuples(timed.LETTERS, st.integers(0, 9), st.integers(0, 3), st.booleans())
    records = []
    time = 2 * draw(st.integers(-5, 5))
    for key, number, step, marks in draw(timed.few_or_many(moves)):
        time += 2 * step
        records.append((key, number, time, time - 1 if marks else None))
    return tuple(records)


@st.composite
def ordered_windows(draw):
    """Any window whose firings do not hang on timers that timers set."""
    window = draw(timed.windows(exact=True))
    while "continuous" in str(window.trigger) or window.assigner[0] == "dynamic":
        window = draw(timed.windows(exact=True))
    if window.assigner[0] == "session":
        # No record is exactly a gap behind another: those join only if no watermark came between.
        window = Window(("session", 2 * window.assigner[1] - 1), *list(vars(window).values())[1:])
    return window


@st.composite
def over_time(draw):
    ordered = draw(st.booleans())
    if draw(st.integers(0, 3)):
        stage = draw(ordered_windows() if ordered else timed.windows(exact=False))
    else:
        # What a record takes back has not fired before it came, in any mode.
        gone = draw(st.none() | st.integers(0, 6)) if ordered else None
        stage = Timers(draw(st.integers(0, 6)), gone, counts=False)
    if ordered:
        disorder, sources = None, (draw(in_order()),)
    else:
        disorder = draw(st.sampled_from([0, 2, 6, 10]))
        sources = tuple(draw(timed.within_bound(disorder)) for _ in range(draw(st.integers(1, 3))))
    steps = draw(st.lists(st.sampled_from([*ref.MAPS, *ref.FILTERS]), max_size=2))
    # A window that fires early gives results that are not in the order of time.
    then = draw(st.none() | timed.then(stage, False)) if punctual(stage) else None
    return Program(sources, disorder, tuple(steps), False, stage, then)


def punctual(stage):
    return isinstance(stage, Timers) or stage.trigger in (None, ("event",))


def run_over_time(mode, program, parallelism, epoch, style=timed.PLAIN, **settings):
    results: list = []
    late: list = []
    with tempfile.TemporaryDirectory() as folder:
        settings["execution__checkpointing__dir"] = folder
        env = environment(parallelism, epoch, **settings).set_runtime_mode(mode)
        main, side = timed.build(env, program, None, style)
        main._sink("results", CollectOp(results.extend))
        if side is not None:
            side._sink("late", CollectOp(late.extend))
        env.execute("job")
    return Counter(results), Counter(late)


PARALLELISM = st.sampled_from([1, 2, 3])


@pytest.mark.timeout(1800)
@given(
    over_time(), PARALLELISM, PARALLELISM, st.sampled_from([None, 1, 2, 5]), MEMORY, st.booleans()
)
def test_programs_over_time_give_the_same(program, one, other, epoch, memory, in_batches):
    event(timed.label(program.stage) if isinstance(program.stage, Window) else "timers")
    event(f"in order: {program.disorder is None}, then: {program.then is not None}")
    streaming = run_over_time(STREAMING, program, one, epoch)
    style = replace(timed.PLAIN, batches=(3, "arrow")) if in_batches else timed.PLAIN
    batch = run_over_time(BATCH, program, other, None, style, **options(memory))
    assert batch == streaming
    expected = ref.run(program)
    assert batch == (Counter(expected.results), Counter(expected.late))


# -- without time ----------------------------------------------------------------------------------


@st.composite
def without_time(draw):
    """A program of the other property test in which nothing reads a rolling aggregation."""
    parallelism = draw(st.sampled_from([1, 2, 4]))
    sources = st.lists(test_programs.RECORDS, max_size=12)
    nodes = [
        reference.Node("source", argument=tuple(draw(sources)))
        for _ in range(draw(st.integers(1, 3)))
    ]
    rolling: set[int] = set()
    for _ in range(draw(st.integers(1, 8))):
        node = test_programs.draw_node(draw, nodes, Reference(nodes, parallelism))
        if node is None or rolling & set(node.inputs):
            continue
        if node.kind in ("rolling", "reduce"):
            rolling.add(len(nodes))
        nodes.append(node)
    return nodes, parallelism


def run_without_time(mode, nodes, parallelism, epoch, places, **settings):
    env = environment(parallelism, epoch, **settings).set_runtime_mode(mode)
    streams = test_programs.build(env, nodes)
    expected = Reference(nodes, parallelism)
    with keeping() as kept:
        for number in places:
            kept.add(f"{number}", streams[number], expected.parallelism_of(number))
        env.execute()
        return {number: kept.values(f"{number}") for number in places}


def final(records, node, known):
    """The last result of each key; of one whose input comes in any order, what does not depend on it."""
    select = SELECTORS[node.selectors[0]]
    last = {repr(select(v)): v for v in records}
    if known:
        return last
    return {key: v[1] if node.kind == "rolling" else None for key, v in last.items()}


@pytest.mark.timeout(1800)
@given(without_time(), st.sampled_from([None, 1, 2, 5]), MEMORY)
def test_programs_without_time_give_the_same(drawn, epoch, memory):
    nodes, parallelism = drawn
    read = {number for node in nodes for number in node.inputs}
    ends = [number for number in range(len(nodes)) if number not in read]
    note(f"parallelism {parallelism}, epochs of {epoch}, looking at {ends}")
    expected = Reference(nodes, parallelism)
    streaming = run_without_time(STREAMING, nodes, parallelism, epoch, ends)
    batch = run_without_time(BATCH, nodes, parallelism, None, ends, **options(memory))
    assert ends
    for number in ends:
        node = nodes[number]
        rolling = node.kind in ("rolling", "reduce")
        known = number in expected.results and expected.results[number].order != OPEN
        event(f"{node.kind}: {'known' if known else 'any'} order")
        if not rolling:
            assert Counter(batch[number]) == Counter(streaming[number]), f"node {number}, {node}"
            continue
        results = final(batch[number], node, known)
        assert len(batch[number]) == len(results), "one result for each key"
        assert results == final(streaming[number], node, known), f"node {number}, {node}"
