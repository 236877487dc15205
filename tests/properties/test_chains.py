"""The generated code of random chains does what a slow interpreter of the same chain does (`tests/oracle.py`).

`MILLSTREAM_EXAMPLES=2000` draws that many chains, new ones each time.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from millstream.errors import MillstreamError
from millstream.runtime.codegen.code import Code
from tests import oracle
from tests.properties import chains
from tests.properties.chains import EDGES, FOLDS, KEYS, End, Head, Op, Program, Runs

EXCHANGES = st.one_of(
    st.builds(End, st.just("exchange"), st.sampled_from(sorted(EDGES)), st.integers(1, 3)),
    st.builds(End, st.just("key"), st.sampled_from(sorted(KEYS)), st.integers(1, 3)),
    st.builds(End, st.just("fold"), st.sampled_from(sorted(FOLDS)), st.integers(1, 3)),
    st.just(End("forward")),
)
SINKS = st.sampled_from([End(kind) for kind in ("print", "collect", "sink function", "sink")])
# Letters have a text that tells of the code, and what goes to this side output is shorter.
ENDS = {
    "main": st.one_of(SINKS, EXCHANGES),
    "bad": st.sampled_from([End("collect"), End("exchange", "rebalance", 2)]),
    "typed": st.one_of(
        SINKS, st.just(End("exchange", "global", 2)), st.just(End("key", "field", 2))
    ),
}


@st.composite
def readers(draw: Any, kind: str, policy: str, kinds: list[str], depth: int) -> Any:
    """What reads the outputs of an operator."""
    outputs = ["main", *chains.SIDES.get(kind, ()), *(["bad"] if policy == "letters" else [])]
    chosen = [draw(st.sampled_from(outputs)) for _ in range(draw(st.integers(1, 3)))]
    made = []
    for output in chosen:
        if depth == 0 or output in ("bad", "typed") or draw(st.booleans()):
            made.append((output, draw(ENDS.get(output, ENDS["main"]))))
        else:
            made.append((output, draw(operators(kinds, depth - 1))))
    return tuple(made)


@st.composite
def operators(draw: Any, kinds: list[str], depth: int, first: list[str] | None = None) -> Op:
    """An operator and all that comes behind it; `first` are those that it may be."""
    kind = draw(st.sampled_from(first or kinds))
    policy = draw(st.sampled_from(["skip", "letters"])) if kind.startswith("fail") else "fail"
    return Op(kind, policy, draw(readers(kind, policy, kinds, depth)))


FIRST = {
    "source": ["source"],
    "stamped source": ["source"],
    "one": [*chains.PURE, *chains.SPOILING, *chains.FAILING],
    "two": [*chains.TWO_INPUTS],
    "keyed": [*chains.KEYED, *chains.KEYED_SPOILING, *chains.KEYED_FAILING],
    "two keyed": [*chains.TWO_KEYED],
    "windows": [*chains.WINDOWS, "fail window"],
}
"""The operators that a chain may begin with, by what comes to it."""


@st.composite
def programs(draw: Any, heads: tuple[str, ...]) -> Program:
    """A chain and its settings."""
    reuse, batch = draw(st.booleans()), draw(st.booleans())
    # What others see of records that are changed is open if records are not copied.
    banned = {*chains.SPOILING, *chains.KEYED_SPOILING, *chains.FAILING} if reuse else set()
    kind = draw(st.sampled_from(heads))
    kinds = [one for one in FIRST["one"] if one not in banned]
    first = [one for one in FIRST[kind] if one not in banned]
    tree = draw(operators(kinds, 2, first))
    parallelism = draw(st.integers(1, 3))
    return Program(
        Head(
            "keyed" if kind == "windows" else kind,
            draw(st.sampled_from(sorted(KEYS))),
            draw(st.sampled_from(sorted(chains.STRATEGIES))),
        ),
        tree,
        parallelism,
        draw(st.integers(0, parallelism - 1)),
        batch,
        reuse,
        tree.kind in FIRST["windows"] or draw(st.booleans()),
        draw(st.sampled_from([1, 2, 8192])),
    )


@st.composite
def steps(draw: Any, program: Program) -> list[Any]:
    """Buffers of records, with watermarks between them."""
    inputs = 2 if program.head.kind.startswith("two") else 1
    kinds = draw(st.lists(st.sampled_from(sorted(chains.KINDS)), min_size=1, max_size=2))
    made: list[Any] = []
    watermark = draw(st.integers(-5, 10))
    for _ in range(draw(st.integers(1, 5))):
        records = []
        for _ in range(draw(st.integers(0, 6))):
            time = draw(st.integers(watermark - 25, watermark + 20))
            text, number = draw(st.sampled_from("abc")), draw(st.integers(0, 7))
            make = chains.KINDS[draw(st.sampled_from(kinds))]
            records.append((make(text, number, time, [number]), time))
        made.append(("records", (draw(st.integers(0, inputs - 1)), records)))
        if program.head.kind != "source" and program.timed and not program.batch:
            watermark += draw(st.integers(1, 15))
            made.append(("watermark", watermark))
    return made


def runs_alike(
    program: Program, given_steps: list[Any], show: Callable[[str], None] = lambda code: None
) -> Runs:
    """Run a chain both ways and compare; `show` gets the generated code."""
    runs = Runs(program)
    expected, found = runs.oracle(given_steps), runs.real(given_steps)
    show(runs.chain.module.source)
    for what in {**expected, **found}:
        assert found.get(what) == expected.get(what), what
    return runs


def check(data: Any, *heads: str) -> None:
    program = data.draw(programs(heads))
    runs = runs_alike(program, data.draw(steps(program)), note)
    event(f"{program.head.kind}, {'in order' if runs.ordered else 'in some order'}")


@given(st.data())
def test_chains_without_keys_do_what_the_oracle_says(data: Any) -> None:
    check(data, "source", "stamped source", "one", "two")


@given(st.data())
def test_chains_with_keys_do_what_the_oracle_says(data: Any) -> None:
    check(data, "keyed", "two keyed")


@given(st.data())
def test_chains_with_windows_do_what_the_oracle_says(data: Any) -> None:
    check(data, "windows")


def test_the_oracle_knows_nothing_of_generated_code() -> None:
    tree = ast.parse(Path(oracle.__file__).read_text())
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [
        a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names
    ]
    theirs = (
        "millstream.runtime.codegen",
        "millstream.runtime.operators",
        "millstream.runtime.windows",
    )
    assert [module for module in modules if module.startswith(theirs)] == []


# -- what if it were wrong ---------------------------------------------------------------------------------


def chain(kind: str, *readers: Any, head: Head | None = None, **settings: Any) -> Program:
    """A program by hand: an operator, and what reads its main output, or (output, reader)."""
    every = tuple(one if isinstance(one, tuple) else ("main", one) for one in readers)
    policy = "skip" if kind.startswith("fail") else "fail"
    return Program(head or Head("one"), Op(kind, policy, every), **settings)


def records(*times: int) -> Any:
    """A buffer of records with these times and numbers that grow, of one key and another."""
    made = [(("a", n, time, [n]), time) for n, time in enumerate(times)]
    return "records", (0, [*made, (("b", 8, times[-1], []), times[-1])])


COLLECT = End("collect")
BY_KEY = Head("keyed")
STEPS = [records(1, 2, 9, 4), ("watermark", 13), records(3, 14, 17), ("watermark", 22), records(8)]

# Bugs in generated code: lines as they should be, as they are written instead, and a chain that shows it.
BUGS: dict[str, tuple[str, str, Program]] = {
    "the wrong field is the key": (
        r"(key\d*) = (\w+)\[0\]",
        r"\1 = \2[1]",
        chain("plain", End("key", "field", 3)),
    ),
    "keys are not made canonical": (
        r"(\w+) = canonical_\d+\(\1\)",
        r"\1 = repr(\1)",
        chain("plain", End("key", "pair", 3)),
    ),
    "keys do not travel along": (
        r"(append\d*)\(\(key\d*, (\w+)\)\)",
        r"\1((None, \2))",
        chain("plain", End("key", "carried", 3)),
    ),
    "records are not copied": (
        r"(\w+) = copied_\d+\(\1\)",
        "pass",
        chain("plain", Op("change object", "fail", (("main", COLLECT),)), End("forward")),
    ),
    "all records go to the first target": (
        r"(target\d*) = pick_\d+\(\)",
        r"\1 = 0",
        chain("plain", End("exchange", "rebalance", 3)),
    ),
    "timestamps are those of others": (
        r"(stamp_?\d*)\((timestamp\d*)\)",
        r"\1(\2 + 1)",
        chain("plain", End("forward"), timed=True),
    ),
    "a function does not learn the time": (
        r"context_\d+\.time = .*",
        "pass",
        chain("split", COLLECT, timed=True),
    ),
    "a side output is lost": (
        r"if (tag\d*) == 'side':",
        r"if \1 == 'other':",
        chain("split", ("side", COLLECT)),
    ),
    "types are not fitted": (
        r"(\w+) = convert_\d+\(\1\)",
        "pass",
        chain("typed list", COLLECT),
    ),
    "no result is a result": (
        r"if (mapped\d*) is not None:",
        "if True:",
        chain("both", COLLECT, head=Head("two")),
    ),
    "watermarks stand still": (
        r"stage_\d+\.max = .*",
        "pass",
        chain("source", End("forward"), head=Head("source", strategy="monotonous")),
    ),
    "records are not combined": (
        r"numbers_\d+\[.*",
        "pass",
        chain("plain", End("fold", "count", 3), batch=True),
    ),
    "state is not written": (
        r"new_values_\d+\[\w+\] = isolate.*",
        "pass",
        chain("reduce", COLLECT, head=BY_KEY),
    ),
    "the key at hand is another one": (
        r"(\w+)\.canon = \w+",
        r"\1.canon = 'a'",
        chain("count keys", COLLECT, head=BY_KEY),
    ),
    "bad records leave traces": (
        r"journal_\d+\.undo\(\)",
        "pass",
        chain("fail keyed", COLLECT, head=BY_KEY),
    ),
    "bad records give results": (
        r"bad_\d+\.take\(.*\)",
        "for _, result in results: send_1(result)",
        chain("fail flat map", COLLECT),
    ),
    "late records are dropped": (
        r"late_or_again_\d+\(.*",
        "pass",
        chain("tumbling", ("late", COLLECT), head=BY_KEY, timed=True),
    ),
    "records are in the pane before": (
        r"pane_start\d* \+= \d+",
        "pass",
        chain("sliding cut", COLLECT, head=BY_KEY, timed=True),
    ),
    "sessions do not go on": (
        r"session\d*\[1\] = end\d*",
        "pass",
        chain("session", End("forward"), head=BY_KEY, timed=True),
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_in_generated_code_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong, program = BUGS[name]
    given_steps = STEPS if program.timed else [one for one in STEPS if one[0] == "records"]
    runs_alike(program, given_steps)
    line, written = Code.line, []

    def write(self: Code, text: str) -> None:
        planted = re.sub(f"^{right}$", wrong, text)
        written.append(planted != text)
        line(self, planted)

    monkeypatch.setattr(Code, "line", write)
    with pytest.raises((AssertionError, MillstreamError)):
        runs_alike(program, given_steps)
    assert any(written), "generated code has no such line any more"
