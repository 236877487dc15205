"""Runs the cases in `cases/`: they prove the rules of docs/semantics.md and are named by the numbers of these.

A case is a text of options (`name: value`) and indented blocks:

    # Rule 38. A comment.
    parallelism: 1 2 4        the default; 1 3 for a case with a scripted input
    epochs: 1 3 whole         the default; records in an epoch
    order: any                the default; `same`: as written; `by EXPR`: as written among equal EXPR of v
    mode: BATCH               the default is STREAMING; AUTOMATIC is possible too
    spark: yes                it is run on Spark too

    input words:              a stream `words`, read from a collection; one expression per line
      "to"
    input clicks:             or: a scripted stream
      ("a", 1) @1000          a record with a timestamp
      watermark 999           a watermark, in this place
      clock +5s               processing time goes on; it begins at 0. Such a case needs `epochs: 1`
      idle                    the stream is not to be waited for
      wait                    nothing; with `epochs: 1`, inputs go on line by line together
    define:                   Python, for functions
    program:                  Python; `env`, the inputs and all public names are there, what `script.py` has for
      counts = words.map(lambda w: (w, 1)).key_by(0).sum(1)     programs, the parallelism `p`, an empty `folder`
    expect counts:            the records of that stream or list, one expression per line; `*` unpacks
      ("to", 1)
      ("be", 1) @1000         with `@`: its timestamp too, `@none` if it has none; then every line has one
    print:                    or: what the job prints
      2> to
    error: CODE               or: the error, and what its text must hold
      part of the text
"""

import itertools
import re
from collections import Counter
from pathlib import Path

import pytest

from millstream import datastream
from millstream.common import watermark_strategy
from millstream.common.execution_mode import RuntimeExecutionMode
from millstream.common.restart_strategy import RestartStrategies
from millstream.common.time import Duration, Time
from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.connectors.number_seq import NumberSequenceSource
from millstream.datastream import DataStream, KeyedStream, state, window
from millstream.errors import MillstreamError
from millstream.runtime.base import clock
from millstream.runtime.state import ttl
from millstream.testing import scripted
from tests.conformance import script
from tests.support import environment, keeping

CASES = sorted((Path(__file__).parent / "cases").glob("*.case"))
NAMES = {name: getattr(datastream, name) for name in datastream.__all__} | {
    "NumberSequenceSource": NumberSequenceSource,
    "Row": Row,
    "RowKind": RowKind,
    "Types": Types,
    "no_watermarks": watermark_strategy.WatermarkStrategy.no_watermarks(),
    "Duration": Duration,
    "RestartStrategies": RestartStrategies,
    "Time": Time,
    **{name: getattr(state, name) for name in state.__all__},
    **{name: getattr(window, name) for name in window.__all__},
    **{name: getattr(watermark_strategy, name) for name in watermark_strategy.__all__},
    **script.FOR_PROGRAMS,
    "scripted": scripted,
}


@pytest.fixture(autouse=True)
def real_clock(monkeypatch):
    """Cases about time-to-live and `clock` steps set the clock; afterwards it is the real one again."""
    monkeypatch.setattr(ttl, "now", ttl.now)
    monkeypatch.setattr(clock, "now", clock.now)
    script.set_clock(0)
    script.LOG.clear()


class Case:
    """A parsed case."""

    def __init__(self, path):
        self.path = path
        self.options = {}
        self.blocks = {}
        block = None
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.startswith("  ") and block is not None:
                self.blocks[block][1].append(line[2:])
            elif found := re.fullmatch(r"(\w+(?: \w+)?): *(.*)", line):
                name, self.options[found[1]] = found[1], found[2]
                block = name
                self.blocks[block] = (number, [])
            elif line.strip() and not line.startswith("#"):
                raise ValueError(f"{path.name}:{number}: what is this? {line!r}")
            elif block is not None and not line:
                self.blocks[block][1].append("")
        unknown = {name.split()[0] for name in self.blocks} - {
            "parallelism", "epochs", "order", "input", "define", "program", "expect",
            "print", "error", "spark", "mode",
        }  # fmt: skip
        assert not unknown, f"{path.name}: unknown {unknown}"

    def lines(self, name):
        """The lines of a block that are not empty."""
        return [line for line in self.blocks[name][1] if line.strip()]

    def of_kind(self, kind):
        """The names after a word: of inputs, of expectations."""
        return [name.split()[1] for name in self.blocks if name.split()[0] == kind]

    def run_block(self, name, scope):
        """Execute Python; its lines keep their numbers in the file, so that errors point there."""
        if name in self.blocks:
            number, lines = self.blocks[name]
            exec(compile("\n" * number + "\n".join(lines), str(self.path), "exec"), scope)

    def values(self, name, scope):
        """The values of a block of expressions."""
        return [value for line in self.lines(name) for value in eval(f"[{line},]", scope)]

    def script(self, name, scope):
        """The values or the entries of a block that may say something of time."""
        return script.parse(self.lines(name), scope)

    @property
    def mode(self):
        """The mode that the case runs in."""
        return RuntimeExecutionMode[self.options.get("mode", "STREAMING")]

    @property
    def on_time(self):
        """If an input is scripted, as far as its text tells."""
        lines = [line for name in self.of_kind("input") for line in self.lines(f"input {name}")]
        return any(
            re.search(r" @\S+$|^watermark |watermark\(|^clock |^wait$", line) for line in lines
        )

    @property
    def moves_clock(self):
        """If the clock is the case's own."""
        lines = [line for name in self.of_kind("input") for line in self.lines(f"input {name}")]
        return any(line.startswith("clock ") for line in lines)

    def stamps(self, name):
        """If an expectation says timestamps."""
        return any(re.search(r" @\S+$", line) for line in self.lines(f"expect {name}"))

    def expected(self, name, scope):
        """What is expected of a stream or list."""
        if not self.stamps(name):
            return self.values(f"expect {name}", scope)
        entries = self.script(f"expect {name}", scope)
        return [(entry.value, entry.timestamp) for entry in entries]

    def variants(self):
        """All pairs of parallelism and epoch size."""
        default = "1 3" if self.on_time else "1 2 4"
        parallelism = self.options.get("parallelism", default).split()
        default = "1 3 whole" if self.mode is RuntimeExecutionMode.STREAMING else "whole"
        epochs = self.options.get("epochs", default).split()
        for p, epoch in itertools.product(parallelism, epochs):
            yield int(p), None if epoch == "whole" else int(epoch)


def program_of(case, env, p, folder):
    scope = {**NAMES, "__name__": "a_case", "env": env, "p": p, "folder": str(folder)}
    case.run_block("define", scope)
    for name in case.of_kind("input"):
        scope[name] = script.source(env, case.script(f"input {name}", scope))
    case.run_block("program", scope)
    return scope


def exact(value):
    """A text that tells 1 from 1.0 from True, inside of containers too."""
    return f"{type(value).__name__} {value!r}"


def compare(case, got, expected):
    order = case.options.get("order", "any")
    if order == "same":
        assert [exact(v) for v in got] == [exact(v) for v in expected]
    else:
        assert Counter(map(exact, got)) == Counter(map(exact, expected))
    if order.startswith("by "):
        for key in {repr(eval(order[3:], {"v": v})) for v in expected}:
            one, two = (
                [exact(v) for v in values if repr(eval(order[3:], {"v": v})) == key]
                for values in (got, expected)
            )
            assert one == two


def run(case, p, epoch, capsys, folder):
    env = environment(p, epoch).set_runtime_mode(case.mode)
    if case.moves_clock:
        clock.now = script.now
    with keeping() as kept:
        scope = program_of(case, env, p, folder)
        streams = [name for name in case.of_kind("expect") if isinstance(scope[name], DataStream)]
        for name in streams:
            stream = scope[name]
            if case.stamps(name):
                stream = script.stamped(stream)
            # A sink beside its operator, so that the records are as the operator left them.
            alike = getattr(stream._transformation, "parallelism", None)
            kept.add(name, stream, None if isinstance(stream, KeyedStream) else alike)
        if streams or env._sinks:
            env.execute(case.path.stem)
        for name in case.of_kind("expect"):
            expected = case.expected(name, scope)
            compare(case, kept.values(name) if name in streams else scope[name], expected)
    if "print" in case.blocks:
        compare(case, capsys.readouterr().out.splitlines(), case.lines("print"))


def params():
    for path in CASES:
        case = Case(path)
        for p, epoch in case.variants():
            name = f"{path.stem}-p{p}-{epoch or 'whole'}"
            yield pytest.param(case, p, epoch, id=name)


@pytest.mark.parametrize(("case", "p", "epoch"), list(params()))
def test_case(case, p, epoch, capsys, tmp_path):
    if "error" not in case.blocks:
        run(case, p, epoch, capsys, tmp_path)
        return
    with pytest.raises(MillstreamError) as caught:
        run(case, p, epoch, capsys, tmp_path)
    assert caught.value.code == case.options["error"]
    for part in case.lines("error"):
        assert part in str(caught.value)
