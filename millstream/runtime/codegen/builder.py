"""Walks the tree of a chain and lets the unit of each operator write its lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from millstream.api.functions import Function
from millstream.common.constants import NO_TIME
from millstream.graph.job_graph import JobVertex
from millstream.graph.level_plan import Edge
from millstream.graph.operators import BatchesOp, FilterOp, Key, Operator, PrintOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.codegen.bad_records import Cursor
from millstream.runtime.codegen.code import Code, Location, Module
from millstream.runtime.codegen.counting import Counting
from millstream.runtime.codegen.exchange import emit_exchange
from millstream.runtime.codegen.ownership import Kept, emit_own, is_fixed_type, kept_by, may_touch
from millstream.runtime.codegen.tree import ChainTree
from millstream.runtime.state.store import StateStore
from millstream.runtime.wire.output import EdgeWriter
from millstream.runtime.wire.rows import client_edge

__all__ = ["Captured", "ChainBuilder", "ChainSettings", "WritesLines"]


# Operators written one inside the other; each takes three frames of Python's stack.
_MAX_NESTED = 50

MakeWriter = Callable[[int, str, Edge | None], EdgeWriter]
"""Makes the writer of an edge, given its number, the name of the operator that sends, and the edge."""


class WritesLines(Protocol):
    """What the builder asks of an operator's unit ([`unit.py`](unit.py))."""

    @property
    def gives_one(self) -> bool:
        """True if the operator gives one record for each that it takes."""

    def write(self, record: str, index: int, /) -> None:
        """Write the lines for a record of input number `index`, which is in the variable `record`."""

    def write_entries(self) -> None:
        """Write the functions that the operator calls itself, for a result of its timers or windows."""

    def opens(self, function: Function, /) -> None:
        """Have a function opened before the first record and closed after the last."""


@dataclass(frozen=True)
class ChainSettings:
    """What the job says about all its chains, and about this one."""

    batch: bool = False
    """One key at a time, each to its end."""
    object_reuse: bool = False
    """Nothing is copied between operators."""
    share_panes: bool = True
    """Sliding windows keep one value per pane, not per window."""
    ask_generators: bool = True
    """Generators of watermarks are asked after every chunk of records."""
    stamped: bool = False
    """Records come with their timestamps."""
    columns: bool = True
    """Operators that can take columns get them."""
    carried: Sequence[int] = ()
    """The inputs whose records come with their keys."""
    job_parameters: Mapping[str, str] = field(default_factory=dict)
    cached_files: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Captured:
    """The results of an operator with an error policy, until it is known that their record is a good one."""

    node: int
    results: str
    """The variable of the list that they are appended to."""
    stamp: str
    """The variable with their timestamp, which may be the operator's doing; empty if they have none."""


class ChainBuilder:
    """A chain in the making. It knows where in the code it is; what is to be written there, the units know."""

    def __init__(
        self,
        vertex: JobVertex,
        edges: list[Edge],
        subtask: int,
        store: StateStore,
        make_writer: MakeWriter,
        settings: ChainSettings,
    ) -> None:
        self.vertex = vertex
        self.tree = ChainTree(vertex, edges)
        self.subtask = subtask
        self.store = store
        self.settings = settings
        self.code = Code(
            f"<millstream chain {vertex.name!r} #{vertex.id}>",
            f"{vertex.name}, subtask {subtask + 1} of {vertex.parallelism}",
        )
        self.cursor = Cursor()
        self.writers: dict[int, EdgeWriter] = {}
        self._make_writer = make_writer
        self._units: Mapping[int, WritesLines] = {}
        self.counting = Counting(self.tree, lambda node: True)
        # Functions of the generated code that others call: by name, what takes them once they are there.
        self.entries: dict[str, Callable[[Callable[..., None]], None]] = {}
        # What writes functions beside those of the units, once the units have written theirs.
        self.further: list[Callable[[], None]] = []
        # Operators whose code goes on in a function of its own: its name, the operator, `_expanding`, stamped or not.
        self._put_off: list[tuple[str, StreamNode, int, bool]] = []

        # Where the code is at. The variable with the timestamp of the record at hand; empty if it has none.
        self._stamp = ""
        # The key that the record at hand has brought along, and its variable.
        self._brought: tuple[Key | None, str] = (None, "")
        # While an operator with an error policy is written: where its results go.
        self._captured: Captured | None = None
        self._nested = 0
        # Above 0 while one input record can become many, so that lists must be checked as they grow.
        self._expanding = 0
        # Variables whose values are of a declared type that cannot be changed.
        self._fixed: set[str] = set()
        self._kept: dict[int, Kept] = {}

    def generate(self, input_count: int, units: Mapping[int, WritesLines]) -> Module:
        """The code of the chain: a function per input, those that operators call, and where the code is deep, more."""
        self._units = units
        self.counting = Counting(self.tree, lambda node: units[node.id].gives_one)
        head = self.vertex.head
        names = [f"input_{index}" for index in range(input_count)]
        for index, name in enumerate(names):
            with self.code.function(name, "records"):
                record = each = self.code.fresh()
                self.code.location = Location(head.id, "read", record)
                self._brought = (None, "")
                if index in self.settings.carried:
                    self._brought = head.operator.keys[index], self.code.fresh("key")
                    each = f"({self._brought[1]}, {record})"
                stamp = self.code.fresh("timestamp") if self.settings.stamped else ""
                if stamp:
                    each = f"{each}, {stamp}"
                with self.code.block(f"for {each} in records:"), self.stamped_by(stamp):
                    units[head.id].write(record, index)
        self._brought = (None, "")
        for unit in units.values():
            unit.write_entries()
        for write in self.further:
            write()
        while self._put_off:
            name, node, self._expanding, stamped = self._put_off.pop()
            record = self.code.fresh()
            stamp = self.code.fresh("timestamp") if stamped else ""
            with (
                self.code.function(name, f"{record}, {stamp}" if stamp else record),
                self.stamped_by(stamp),
            ):
                units[node.id].write(record, 0)
        for edge in self.tree.out_edges:
            # A side output that nothing is ever put into has no lines, but its readers wait for marks.
            self._writer(edge.id, self.tree.nodes[edge.source_node], edge)
        return self.code.finish([*names, *self.entries])

    # -- the record at hand ---------------------------------------------------------------------------------

    def at(
        self, node: StreamNode, variable: str, role: str = "run", declared_at: Any = None
    ) -> None:
        """Lines from here on belong to `node`, whose input is in `variable`."""
        self.code.location = Location(node.id, role, variable, declared_at)

    def brought_key(self, key: Key) -> str | None:
        """The variable of a key that the record at hand has brought along; None if it has not."""
        return self._brought[1] if key is self._brought[0] else None

    def stamp(self) -> str:
        """The timestamp of the record at hand, as an expression."""
        return self._stamp or str(NO_TIME)

    @property
    def stamped(self) -> bool:
        """True if the record at hand has a timestamp."""
        return bool(self._stamp)

    @contextmanager
    def stamped_by(self, variable: str) -> Iterator[None]:
        """Records have their timestamp in another variable."""
        before, self._stamp = self._stamp, variable
        yield
        self._stamp = before

    @contextmanager
    def entry(
        self, hint: str, parameter: str, attach: Callable[[Callable[..., None]], None]
    ) -> Iterator[str]:
        """A function of the generated code that is called from outside, with what it is about, whose variable this
        gives, and the timestamp of the results. What it is handed may become many records."""
        name, about, stamp = (
            self.code.name(hint),
            self.code.fresh(parameter),
            self.code.fresh("timestamp"),
        )
        self.entries[name] = attach
        # It begins afresh, wherever in the code of a record it is written.
        before = self._expanding, self._nested, self._captured, self.code.location
        self._expanding, self._nested, self._captured = 1, 0, None
        with self.code.function(name, f"{about}, {stamp}"), self.stamped_by(stamp):
            yield about
        self._expanding, self._nested, self._captured, self.code.location = before

    @contextmanager
    def capturing(self, node: StreamNode, results: str) -> Iterator[Captured]:
        """What the node emits meanwhile is appended to a list."""
        captured = Captured(node.id, results, self._stamp)
        before, self._captured = self._captured, captured
        yield captured
        self._captured = before

    @contextmanager
    def each(self, header: str) -> Iterator[None]:
        """A loop over an operator's results: one record may become many inside it."""
        self._expanding += 1
        with self.code.block(header):
            yield
        self._expanding -= 1

    # -- handing on -----------------------------------------------------------------------------------------

    def emit(
        self,
        node: StreamNode,
        variable: str,
        tag: str | None = None,
        *,
        own: bool = False,
        fits: bool = False,
    ) -> None:
        """Hand a node's output on to everything that reads it; `own` says that nobody else knows it, `fits` that it has
        been made to fit its declared type."""
        self._fit(node, variable, tag, fits=fits)
        self._own_output(node, variable, tag, own=own)
        if self._captured is not None and self._captured.node == node.id:
            # What does not fit is the record's own failure too.
            self.code.line(f"{self._captured.results}.append(({tag!r}, {variable}))")
            self._captured.stamp = self._stamp
            return
        counter = self.counting.counter(node, tag)
        if counter is not None:
            self.code.line(f"{self.code.bind(counter, 'count')}()")
        children, edges = self.tree.children(node, tag), self.tree.edges(node, tag)
        if not children and not edges:
            self.code.line("pass")
        touching = [child for child in children if may_touch(self.tree, child)]
        # The last one that might change the record may have it, if none of the others holds it.
        last = touching[-1] if touching and len(touching) == len(children) and not edges else None
        for child in children:
            copies = child in touching and child is not last
            self._hand_to(child, self.copied(node, variable) if copies else variable)
        for edge in edges:
            self._send(node, edge, variable)

    def hand_on(self, node: StreamNode, reader: StreamNode | Edge, variable: str) -> None:
        """Hand a record to one of those that read a node's output."""
        if isinstance(reader, Edge):
            self._send(node, reader, variable)
        else:
            self._hand_to(reader, variable)

    def _hand_to(self, child: StreamNode, variable: str) -> None:
        if not self.code.deep and self._nested < _MAX_NESTED:
            self._nested += 1
            self._units[child.id].write(variable, 0)
            self._nested -= 1
            return
        name = self.code.name("go_on")
        self.at(child, variable)
        self.code.line(
            f"{name}({variable}, {self._stamp})" if self._stamp else f"{name}({variable})"
        )
        self._put_off.append((name, child, self._expanding, self.stamped))

    def _send(self, node: StreamNode, edge: Edge, variable: str) -> None:
        writer = self._writer(edge.id, node, edge)
        if not self.code.deep:
            emit_exchange(self, node, edge, writer, variable, self._expanding > 0)
            return
        name, record, stamp = (
            self.code.name("send_on"),
            self.code.fresh(),
            self.code.fresh("timestamp"),
        )
        self.at(node, variable, "send")
        self.code.line(f"{name}({variable}, {self.stamp()})")
        with self.code.function(name, f"{record}, {stamp}"), self.stamped_by(stamp):
            emit_exchange(self, node, edge, writer, record, self._expanding > 0)

    def _fit(self, node: StreamNode, variable: str, tag: str | None, *, fits: bool) -> None:
        """Lines that make a record fit its declared type."""
        declared = self.tree.declared_type(node, tag)
        # A filter's records have been checked where they came from.
        if declared is None or (tag is None and _filters(node.operator)):
            return
        check = declared.check_expression(variable)
        if check is not None and not fits:
            code = self.code
            self.at(node, variable, "type")
            convert = code.bind(declared.convert, "convert")
            if check == "False":
                code.line(f"{variable} = {convert}({variable})")
            else:
                with code.block(f"if not ({check}):"):
                    code.line(f"{variable} = {convert}({variable})")
        if is_fixed_type(declared):
            self._fixed.add(variable)

    def _own_output(self, node: StreamNode, variable: str, tag: str | None, *, own: bool) -> None:
        """Lines that make a record one that only its readers know."""
        if own or self.settings.object_reuse or variable in self._fixed:
            return
        children = self.tree.children(node, tag)
        # What is printed is made a text at once.
        printed = all(isinstance(child.operator, PrintOp) for child in children)
        if printed and not self.tree.edges(node, tag):
            return
        if node.id not in self._kept:
            self._kept[node.id] = kept_by(node.operator)
        kept = self._kept[node.id]
        if kept is Kept.ANYTHING or (
            kept is Kept.OTHER_RESULTS and any(may_touch(self.tree, child) for child in children)
        ):
            self.at(node, variable, "copy")
            emit_own(self.code, variable)

    def copied(self, node: StreamNode, variable: str) -> str:
        """Lines for a copy of a record that others have as well; the name of its variable."""
        if self.settings.object_reuse or variable in self._fixed:
            return variable
        copy = self.code.fresh("copy")
        self.at(node, variable, "copy")
        self.code.line(f"{copy} = {variable}")
        emit_own(self.code, copy)
        return copy

    # -- functions and edges --------------------------------------------------------------------------------

    def bind_function(self, node: StreamNode, function: Any, method: str, hint: str) -> str:
        """Bind a user's function, given as an object with `method` or as a plain callable."""
        if isinstance(function, Function):
            self.opens(node, function)
            return self.code.bind(getattr(function, method), hint)
        return self.code.bind(function, hint)

    def opens(self, node: StreamNode, function: Function) -> None:
        """Have a function of a node opened before the first record and closed after the last."""
        self._units[node.id].opens(function)

    def client_writer(self, node: StreamNode) -> EdgeWriter:
        """The writer for records that go to the driver."""
        return self._writer(client_edge(node.id), node, None)

    def writer_of(self, node: StreamNode, edge: Edge) -> EdgeWriter:
        """The writer for records that a node sends along an edge."""
        return self._writer(edge.id, node, edge)

    def _writer(self, edge_id: int, node: StreamNode, edge: Edge | None) -> EdgeWriter:
        if edge_id not in self.writers:
            self.writers[edge_id] = self._make_writer(edge_id, node.name, edge)
        return self.writers[edge_id]

    def append(self, writer: EdgeWriter, index: int, expression: str) -> None:
        """Append to a fixed target's list."""
        code = self.code
        code.line(f"{code.bind(writer.appends[index], 'send')}({expression})")
        if writer.stamps:
            code.line(f"{code.bind(writer.stamp_appends[index], 'stamp')}({self.stamp()})")
        if self._expanding:
            records = code.bind(writer.lists[index], "buffer")
            sender = code.bind(writer, "writer")
            with code.block(f"if len({records}) >= {sender}.limit:"):
                code.line(f"{sender}.flush({index})")


def _filters(operator: Operator) -> bool:
    """True if what an operator gives are records that it got."""
    return isinstance(operator, FilterOp) or (
        isinstance(operator, BatchesOp) and operator.kind == "filter"
    )
