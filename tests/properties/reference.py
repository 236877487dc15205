"""A second implementation of the semantics: sequential, slow, obviously right. Written from the rules.

A program is a list of nodes, each reading earlier ones by their place in the list. A record is a tuple
`(k, n, t)` of a text and two numbers; every operator makes such records of such records, so that any
operator may follow any other.

What can be promised about a stream's records, and so compared, is its *order*:

    TOTAL    their order is known (one subtask all the way from one source)
    Keyed    the order among records with equal keys is known
    NONE     only which records there are
    OPEN     not even that: a rolling aggregation whose input order is not known; nothing may read it
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.properties.kinds import KEYS

TOTAL, NONE, OPEN = "total", "none", "open"

# -- functions, which the program under test uses too ----------------------------------------------

MAPS = {
    "add": lambda v: (v[0], v[1] + 1, v[2]),
    "rename": lambda v: ("ab"[v[1] % 2], v[1], v[2]),
    "swap": lambda v: (v[0], v[2], v[1]),
}
FLAT_MAPS = {
    "twice": lambda v: [v, (v[0], v[1] + 10, v[2])],
    "some": lambda v: [v] * (v[1] % 3),
    "letters": lambda v: ((letter, v[1], v[2]) for letter in (*v[0], "z")),
}
FILTERS = {
    "even": lambda v: v[1] % 2 == 0,
    "not a": lambda v: v[0] != "a",
    "none": lambda v: False,
}
SELECTORS = {
    "text": lambda v: v[0],
    "parity": lambda v: v[2] % 2,
    "list": lambda v: [v[0], v[2] % 3],
    # Two equal sets need not look the same, and keys are compared by their looks here.
    **{
        kind: (lambda v, spelling=spelling: spelling.write("abc"[v[2] % 3]))  # type: ignore[misc]
        for kind, spelling in KEYS.items()
        if "set" not in kind and kind != "dictionary"
    },
}
REDUCES = {
    # The order of the records shows in the result; the fields that selectors read stay.
    "fold": lambda a, b: (a[0], (2 * a[1] + b[1]) % 1009, a[2]),
    "last": lambda a, b: (a[0], b[1], a[2]),
}
ROLLING = ("sum", "min", "max", "min_by", "max_by")


def split(v: tuple) -> list[tuple[str | None, tuple]]:
    """A process function: (tag or None, record) pairs."""
    results: list[tuple[str | None, tuple]] = []
    if v[1] % 3:
        results.append((None, v))
    if v[1] % 2:
        results.append(("odd", (v[0], -v[1], v[2])))
    if v[0] == "b":
        results.append(("b", v))
    return results


def first_input(v: tuple) -> list[tuple]:
    return [("first", v[1], v[2])]


def second_input(v: tuple) -> list[tuple] | None:
    return None if v[1] % 2 else [("second", v[1], v[2])] * 2


def with_key(key: Any, v: tuple) -> list[tuple]:
    return [(f"key {key}", v[1], v[2])]


def choose(key: int, count: int) -> int:
    return abs(key) % count


# -- programs --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keyed:
    """The order of records with equal keys under a selector is known."""

    selector: str


@dataclass(frozen=True)
class Node:
    """One call: `kind`, the nodes it reads, its function or setting, its parallelism."""

    kind: str
    inputs: tuple[int, ...] = ()
    argument: Any = None
    selectors: tuple[str, ...] = ()
    parallelism: int | None = None


VIEWS = ("union", "exchange", "side")


@dataclass
class Result:
    """An operator's output: its records, what is known of their order, where they are."""

    records: list[tuple]
    order: Any
    parallelism: int
    side: dict[str, list[tuple]] = field(default_factory=dict)


@dataclass(frozen=True)
class Read:
    """A way in which an operator's output is read: which tag, spread how (None: as it comes)."""

    node: int
    tag: str | None = None
    exchange: str | None = None


class Reference:
    """Runs a program by reading its list from the front."""

    def __init__(self, nodes: list[Node], parallelism: int) -> None:
        self.nodes = nodes
        self.default = parallelism
        self.results: dict[int, Result] = {}
        for number, node in enumerate(nodes):
            if node.kind not in VIEWS:
                parallelism = 1 if node.kind == "source" else node.parallelism or self.default
                run = getattr(self, f"_{node.kind}")
                records, order, *side = run(node, parallelism)
                self.results[number] = Result(records, order, parallelism, *side)

    # -- reading ----------------------------------------------------------------------------------

    def reads(self, number: int) -> list[Read]:
        """Views are not run: they say how the operators behind them are read."""
        node = self.nodes[number]
        if node.kind == "union":
            return [read for one in node.inputs for read in self.reads(one)]
        if node.kind == "exchange":
            # The last call counts, for every branch of a union.
            return [Read(r.node, r.tag, node.argument) for r in self.reads(node.inputs[0])]
        if node.kind == "side":
            return [Read(node.inputs[0], node.argument)]
        return [Read(number)]

    def parallelism_of(self, number: int) -> int:
        """Of an operator; what is only a view has none of its own."""
        result = self.results.get(number)
        return self.default if result is None else result.parallelism

    def read(self, number: int, parallelism: int) -> tuple[list[tuple], Any]:
        """The records that an operator with so many subtasks gets, and their order."""
        records: list[tuple] = []
        reads = self.reads(number)
        order: Any = NONE
        for one in reads:
            result = self.results[one.node]
            found = result.records if one.tag is None else result.side.get(one.tag, [])
            copies = parallelism if one.exchange == "broadcast" else 1
            records += [record for record in found for _ in range(copies)]
            forward = one.exchange is None and result.parallelism == parallelism
            # One receiver gets each sender's records in order; a key has one sender.
            kept = parallelism == 1 or (forward and isinstance(result.order, Keyed))
            if len(reads) == 1 and kept and (one.tag is None or result.order == TOTAL):
                order = result.order
        return records, order

    def read_by_key(self, number: int, selector: str) -> tuple[list[tuple], bool]:
        """What a keyed operator gets, and whether each key's order is known."""
        records: list[tuple] = []
        reads = self.reads(number)
        for one in reads:
            result = self.results[one.node]
            records += result.records if one.tag is None else result.side.get(one.tag, [])
        if len(reads) != 1:
            return records, False
        order = self.results[reads[0].node].order
        by_key = order == Keyed(selector) and reads[0].tag is None
        return records, order == TOTAL or by_key

    # -- operators --------------------------------------------------------------------------------

    def _source(self, node: Node, p: int) -> tuple[list[tuple], Any]:
        return list(node.argument), TOTAL

    def _map(self, node: Node, p: int) -> tuple[list[tuple], Any]:
        records, order = self.read(node.inputs[0], p)
        return [MAPS[node.argument](v) for v in records], order if order == TOTAL else NONE

    def _flat_map(self, node: Node, p: int) -> tuple[list[tuple], Any]:
        records, order = self.read(node.inputs[0], p)
        function = FLAT_MAPS[node.argument]
        return [o for v in records for o in function(v)], order if order == TOTAL else NONE

    def _filter(self, node: Node, p: int) -> tuple[list[tuple], Any]:
        records, order = self.read(node.inputs[0], p)
        return [v for v in records if FILTERS[node.argument](v)], order

    def _process(self, node: Node, p: int) -> tuple[list[tuple], Any, dict[str, list[tuple]]]:
        records, order = self.read(node.inputs[0], p)
        side: dict[str, list[tuple]] = {}
        main = []
        for v in records:
            for tag, out in split(v):
                (main if tag is None else side.setdefault(tag, [])).append(out)
        return main, order if order == TOTAL else NONE, side

    def _where(self, node: Node, p: int) -> tuple[list[tuple], Any]:
        """A map behind `partition_custom` by n: each record with the subtask it went to."""
        records, order = self.read(node.inputs[0], p)
        return [(v[0], v[1], choose(v[1], p)) for v in records], order if order == TOTAL else NONE

    def _co_process(self, node: Node, p: int) -> tuple[list[tuple], Any]:
        one, _ = self.read(node.inputs[0], p)
        two, _ = self.read(node.inputs[1], p)
        outs = [out for v in one for out in first_input(v)]
        return outs + [out for v in two for out in second_input(v) or []], NONE

    def _keyed_co_process(self, node: Node, p: int) -> tuple[list[tuple], Any]:
        outs = []
        for number, selector in zip(node.inputs, node.selectors, strict=True):
            records, _ = self.read_by_key(number, selector)
            outs += [out for v in records for out in with_key(SELECTORS[selector](v), v)]
        return outs, NONE

    def _rolling(self, node: Node, p: int) -> tuple[list[tuple], Any]:
        def combine(so_far: tuple, v: tuple) -> tuple:
            old, new = so_far[1], v[1]
            match node.argument:
                case "sum":
                    return so_far[0], old + new, so_far[2]
                case "min":
                    return so_far[0], min(old, new), so_far[2]
                case "max":
                    return so_far[0], max(old, new), so_far[2]
                case "min_by":
                    return v if new < old else so_far
                case "max_by":
                    return v if new > old else so_far
            raise AssertionError(node.argument)

        return self._fold(node, p, combine)

    def _reduce(self, node: Node, p: int) -> tuple[list[tuple], Any]:
        return self._fold(node, p, REDUCES[node.argument])

    def _fold(self, node: Node, p: int, combine: Any) -> tuple[list[tuple], Any]:
        (selector,) = node.selectors
        records, known = self.read_by_key(node.inputs[0], selector)
        state: dict[str, tuple] = {}
        outs = []
        for v in records:
            key = repr(SELECTORS[selector](v))
            state[key] = combine(state[key], v) if key in state else v
            outs.append(state[key])
        if not known:
            return outs, OPEN
        total = p == 1 and self.results[self.reads(node.inputs[0])[0].node].order == TOTAL
        return outs, TOTAL if total else Keyed(selector)


def differences(got: list[tuple], expected: list[tuple], order: Any, node: Node) -> str | None:
    """What is wrong with the records of a stream; None if nothing is."""
    if order == TOTAL:
        return None if got == expected else f"{got} is not {expected}"
    if order == OPEN:
        return _final_differences(got, expected, node)
    if Counter(got) != Counter(expected):
        return f"too many: {Counter(got) - Counter(expected)}, missing: {Counter(expected) - Counter(got)}"
    if isinstance(order, Keyed):
        select = SELECTORS[order.selector]
        for key in {repr(select(v)) for v in expected}:
            one, two = ([v for v in vs if repr(select(v)) == key] for vs in (got, expected))
            if one != two:
                return f"key {key}: {one} is not {two}"
    return None


def _final_differences(got: list[tuple], expected: list[tuple], node: Node) -> str | None:
    """Of a rolling aggregation over records in any order: how many, and where each key ends up."""
    select = SELECTORS[node.selectors[0]]

    def by_key(records: list[tuple]) -> dict[str, tuple[int, int | None]]:
        # The aggregated number does not depend on the order; other fields do.
        last = {repr(select(v)): v[1] for v in records}
        counts = Counter(repr(select(v)) for v in records)
        final = node.kind == "rolling"
        return {key: (counts[key], last[key] if final else None) for key in counts}

    one, two = by_key(got), by_key(expected)
    return None if one == two else f"count and last value by key: {one} is not {two}"
