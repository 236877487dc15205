"""Walks the tree of a chain and lets each operator write its lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from millstream.api.functions import Function, RuntimeContext
from millstream.checkpoint.statefile import table_name
from millstream.common.typeinfo import TypeInformation
from millstream.graph.job_graph import JobVertex
from millstream.graph.level_plan import Edge
from millstream.graph.operators import CollectOp, FilterOp, PrintOp
from millstream.graph.stream_graph import StreamNode
from millstream.runtime.base.clock import MAX_TIME, NO_TIME
from millstream.runtime.base.contracts import (
    AdoptsWindows,
    CountsLate,
    EpochHook,
    FollowsTime,
    ReadsTime,
    SinkHook,
)
from millstream.runtime.base.in_operator import in_operator
from millstream.runtime.codegen.bad_records import BadRecords, Cursor, is_guarded
from millstream.runtime.codegen.code import Code, Location, Module
from millstream.runtime.codegen.exchange import emit_exchange
from millstream.runtime.codegen.ownership import Kept, emit_own, is_fixed_type, kept_by, may_touch
from millstream.runtime.state.codec import codec_for
from millstream.runtime.state.journal import Journal
from millstream.runtime.state.keyed_state import KeyContext, KeyedStates
from millstream.runtime.state.operator_state import OperatorStates
from millstream.runtime.state.store import StateStore
from millstream.runtime.state.table import Table
from millstream.runtime.time.timers import InternalTimers
from millstream.runtime.time.watermarks import WatermarkStage
from millstream.runtime.wire.output import EdgeWriter
from millstream.runtime.wire.rows import client_edge

__all__ = ["ChainBuilder"]


# Operators compiled one inside the other; each takes three frames of Python's stack.
_MAX_NESTED = 50


class Compilers(Protocol):
    """Who writes the lines of each operator."""

    def compile_source(self, b: ChainBuilder, node: StreamNode, v: str, /) -> None:
        """Lines for a record that a source has read."""

    def compile_operator(
        self, builder: ChainBuilder, node: StreamNode, variable: str, index: int, /
    ) -> None:
        """Write the lines of `node` for a record of input number `index` that is in `variable`."""


class ChainBuilder:
    """Walks the tree of a chain and lets each operator write its lines."""

    def __init__(
        self,
        vertex: JobVertex,
        edges: list[Edge],
        subtask: int,
        store: StateStore,
        make_writer: Callable[[int, str, Edge | None], EdgeWriter],
        job_parameters: dict[str, str],
        compilers: Compilers,
        *,
        stamped: bool = False,
        ask_generators: bool = True,
        share_panes: bool = True,
        batch: bool = False,
        cached_files: dict[str, str] | None = None,
        object_reuse: bool = False,
        carried: Sequence[int] = (),
    ) -> None:
        self.vertex = vertex
        self.compilers = compilers
        # The inputs whose records come with their keys; of the one at hand, the key and its variable.
        self.carried = carried
        self._brought: tuple[Any, str] = (None, "")
        self.object_reuse = object_reuse
        self.ask_generators = ask_generators
        self.share_panes = share_panes
        # In a batch job: one key at a time, and what to call at the end of each.
        self.batch = batch
        self.key_ends: list[Callable[[], None]] = []
        self.subtask = subtask
        self.store = store
        self.code = Code(f"<millstream chain {vertex.name!r} #{vertex.id}>")
        self.functions: list[tuple[StreamNode, Function]] = []
        self.epoch_hooks: dict[int, EpochHook] = {}
        self.sink_hooks: dict[int, SinkHook] = {}
        self.key_contexts: dict[int, KeyContext] = {}
        self.bad_records: dict[int, BadRecords] = {}
        self.cursor = Cursor()
        self.journals: dict[int, Journal] = {}
        for node in vertex.nodes:
            if is_guarded(node):
                self.journals[node.id] = store.journals[node.uid] = Journal()
        # While an operator with an error policy is compiled: its id, and the list that its results go to.
        self._captured: tuple[int, str] | None = None
        self._keyed_states: dict[int, KeyedStates] = {}
        self.writers: dict[int, EdgeWriter] = {}
        self._make_writer = make_writer
        self._job_parameters = job_parameters
        self._cached_files = cached_files or {}
        self.nodes = nodes = {node.id: node for node in vertex.nodes}
        self.edges = edges
        # The variable with the timestamp of the record at hand; empty if records have none here.
        self._stamp = ""
        self.takes_stamps = stamped
        # Operators that watermarks mean something to: what each calls, and whose `watermark` is set.
        self.stages: dict[int, WatermarkStage] = {}
        self.time_hooks: dict[int, list[Callable[[int], None]]] = {}
        self.readers: list[tuple[int, ReadsTime]] = []
        self.timers: list[tuple[StreamNode, InternalTimers]] = []
        self.late: dict[int, CountsLate] = {}
        # By uid, what makes the open windows of a former program those of this one.
        self.adopts: list[tuple[str, AdoptsWindows]] = []
        # Of operators with work under way, from the head down: a turn for it, and the wait for all of it.
        self.polls: list[Callable[[int], None]] = []
        self.settles: list[Callable[[int], None]] = []
        # Functions of the generated code that others call: by name, what takes them once they are there.
        self.entries: dict[str, Callable[[Callable[..., None]], None]] = {}
        self._above = {inner.target: inner.source for inner in vertex.inner}
        # (node, tag) to what reads it: operators of the same chain first, then edges.
        self._children: dict[tuple[int, str | None], list[StreamNode]] = {}
        self._edges: dict[tuple[int, str | None], list[Edge]] = {}
        self._edges_by_node: dict[int, list[Edge]] = {}
        self._readers_by_node: dict[int, dict[int, StreamNode]] = {}
        for inner in vertex.inner:
            child = nodes[inner.target]
            self._children.setdefault((inner.source, inner.tag_id), []).append(child)
            self._readers_by_node.setdefault(inner.source, {})[child.id] = child
        for edge in edges:
            self._edges.setdefault((edge.source_node, edge.tag_id), []).append(edge)
            self._edges_by_node.setdefault(edge.source_node, []).append(edge)
        self._tag_types = {
            (one.source, one.tag_id): one.tag_type
            for one in vertex.inner
            if one.tag_type is not None
        } | {
            (one.source_node, one.tag_id): one.tag_type for one in edges if one.tag_type is not None
        }
        # Operators whose code goes on in a function of its own: name, operator, `_expanding` there.
        self._put_off: list[tuple[str, StreamNode, int, str]] = []
        self._nested = 0
        # Above 0 while one input record can become many, so that lists must be checked as they grow.
        self._expanding = 0
        # Variables whose values are of a declared type that cannot be changed.
        self._fixed: set[str] = set()
        self._kept: dict[int, Kept] = {}

    def generate(self, input_count: int) -> Module:
        """The code of the chain."""
        compile_operator = self.compilers.compile_operator
        names = []
        for index in range(input_count):
            name = f"input_{index}"
            names.append(name)
            with self.code.function(name, "records"):
                variable = self.code.fresh()
                self.code.location = Location(self.vertex.head.id, "read", variable)
                self._stamp = self.code.fresh("t") if self.takes_stamps else ""
                each, self._brought = variable, (None, "")
                if index in self.carried:
                    self._brought = self.vertex.head.operator.keys[index], self.code.fresh("k")
                    each = f"({self._brought[1]}, {variable})"
                if self._stamp:
                    each = f"{each}, {self._stamp}"
                with self.code.block(f"for {each} in records:"):
                    if self.vertex.is_source:
                        self.compilers.compile_source(self, self.vertex.head, variable)
                    else:
                        compile_operator(self, self.vertex.head, variable, index)
        while self._put_off:
            name, node, self._expanding, self._stamp = self._put_off.pop()
            with self.code.function(name, "value, t" if self._stamp else "value"):
                compile_operator(self, node, "value", 0)
        return self.code.finish([*names, *self.entries])

    def brought_key(self, key: Any) -> str | None:
        """The variable of a key that the record at hand has brought along; None if it has not."""
        return self._brought[1] if key is self._brought[0] else None

    # -- time -----------------------------------------------------------------------------------------------

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
        self, hint: str, parameters: str, attach: Callable[[Callable[..., None]], None]
    ) -> Iterator[None]:
        """A function of the generated code that is called from outside, with `t` for the results' timestamp; what it
        is handed may become many records."""
        name = self.code.fresh(hint)
        self.entries[name] = attach
        # It begins afresh, wherever in the code of a record it is written.
        before = self._expanding, self._nested, self._captured
        self._expanding, self._nested, self._captured = 1, 0, None
        with self.code.function(name, parameters), self.stamped_by("t"):
            yield
        self._expanding, self._nested, self._captured = before

    def reads_time(self, node: StreamNode, reader: ReadsTime) -> None:
        """The operator looks at the watermark: `reader.watermark` follows it."""
        if all(known is not reader for _, known in self.readers):
            self.readers.append((node.id, reader))
            self.time_hooks.setdefault(node.id, []).append(_setter(reader))

    def fires(self, node: StreamNode, timers: InternalTimers) -> None:
        """The operator has timers."""
        self.readers.append((node.id, timers))
        self.timers.append((node, timers))
        self.time_hooks.setdefault(node.id, []).append(in_operator(node, timers.advance))
        self.key_ends.append(timers.finish_key)

    def follows(self, node: StreamNode, operator: FollowsTime) -> None:
        """The operator does something when the watermark moves on."""
        self.readers.append((node.id, operator))
        self.time_hooks.setdefault(node.id, []).append(in_operator(node, operator.advance))
        self.key_ends.append(_to_the_end(operator))

    def stage_above(self, node_id: int) -> WatermarkStage | None:
        """Whose watermarks an operator gets; None if they come from outside of the chain."""
        at: int | None = self._above.get(node_id)
        while at is not None:
            if at in self.stages:
                return self.stages[at]
            at = self._above.get(at)
        return None

    def nodes_above(self, node: StreamNode) -> list[StreamNode]:
        """The operators of the chain that a node's records have come through."""
        found: list[StreamNode] = []
        at = self._above.get(node.id)
        while at is not None:
            found.append(self.nodes[at])
            at = self._above.get(at)
        return found

    def edges_of(self, node: StreamNode) -> list[Edge]:
        """The edges that leave a node."""
        return self._edges_by_node.get(node.id, [])

    def children_of(self, node: StreamNode) -> list[StreamNode]:
        """The operators of the chain that read a node."""
        return list(self._readers_by_node.get(node.id, {}).values())

    def at(
        self, node: StreamNode, variable: str, role: str = "run", declared_at: Any = None
    ) -> None:
        """Lines from here on belong to `node`, whose input is in `variable`."""
        self.code.location = Location(node.id, role, variable, declared_at)

    def key_context(self, node: StreamNode, make: type[KeyContext] = KeyContext) -> KeyContext:
        """The current key of a node; generated code sets it before each call."""
        return self.key_contexts.setdefault(node.id, make())

    def context(self, node: StreamNode, keyed: Any = None) -> RuntimeContext:
        """The runtime context for a node's function, with its keyed states or those that are given."""
        keys = self.key_contexts.get(node.id)
        return RuntimeContext(
            node.name,
            self.subtask,
            node.parallelism,
            node.max_parallelism,
            job_parameters=self._job_parameters,
            cached_files=self._cached_files,
            keyed=keyed or self.keyed_states(node, keys),
        )

    def keyed_states(self, node: StreamNode, keys: KeyContext | None) -> KeyedStates:
        """The keyed states of a node, the same object each time."""
        if node.id not in self._keyed_states:
            self._keyed_states[node.id] = KeyedStates(self.store, node.uid, node.name, keys)
        return self._keyed_states[node.id]

    def operator_states(self, node: StreamNode) -> OperatorStates:
        """The operator states of a node."""
        return OperatorStates(
            self.store.operator_state, node.uid, self.store.register, self.journals.get(node.id)
        )

    def bind_function(self, node: StreamNode, function: Any, method: str, hint: str) -> str:
        """Bind a user's function, given as an object with `method` or as a plain callable."""
        if isinstance(function, Function):
            self.opens(node, function)
            return self.code.bind(getattr(function, method), hint)
        return self.code.bind(function, hint)

    def opens(self, node: StreamNode, function: Function) -> None:
        """Have a function opened before the first record and closed after the last."""
        if all(function is not known for _, known in self.functions):
            self.functions.append((node, function))

    def table(self, node: StreamNode, name: str) -> Table:
        """A keyed state of a node that is not a user's function's."""
        self.store.register(node.uid, name, {"kind": "value", "type": None, "ttl": False})
        self.store.own.add(table_name(node.uid, name))
        return self.store.table(table_name(node.uid, name))

    def pane_table(self, node: StreamNode, name: str, value_type: Any) -> Table:
        """A state of all keys by stretches of time."""
        codec = codec_for(value_type)
        described = {"kind": "pane", "type": codec.schema, "ttl": False}
        self.store.register(node.uid, name, described)
        return self.store.table(table_name(node.uid, name), "pane", codec)

    def client_writer(self, node: StreamNode) -> EdgeWriter:
        """The writer for records that go to the driver."""
        return self._writer(client_edge(node.id), node, None)

    def _writer(self, edge_id: int, node: StreamNode, edge: Edge | None) -> EdgeWriter:
        if edge_id not in self.writers:
            self.writers[edge_id] = self._make_writer(edge_id, node.name, edge)
        return self.writers[edge_id]

    def each(self, header: str) -> Any:
        """A loop over an operator's results: one record may become many inside it."""
        return _Expanding(self, header)

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
        code = self.code
        if self._captured is not None and self._captured[0] == node.id:
            # What does not fit is the record's own failure too.
            self._fit(node, variable, tag, fits=fits)
            self._own_output(node, variable, tag, own=own)
            code.line(f"{self._captured[1]}.append(({tag!r}, {variable}))")
            return
        self._fit(node, variable, tag, fits=fits)
        self._own_output(node, variable, tag, own=own)
        children = self._children.get((node.id, tag), [])
        edges = self._edges.get((node.id, tag), [])
        if not children and not edges:
            code.line("pass")
        given, touching = variable, [child for child in children if may_touch(self, child)]
        # The last one that might change the record may have it, if none of the others holds it.
        last = touching[-1] if touching and len(touching) == len(children) and not edges else None
        for child in children:
            changes = child in touching and child is not last
            variable = self.copied(node, given) if changes else given
            if code.deep or self._nested >= _MAX_NESTED:
                name = code.fresh("go_on_")
                self.at(child, variable)
                stamp = f", {self._stamp}" if self._stamp else ""
                code.line(f"{name}({variable}{stamp})")
                self._put_off.append((name, child, self._expanding, "t" if stamp else ""))
            else:
                self._nested += 1
                self.compilers.compile_operator(self, child, variable, 0)
                self._nested -= 1
        variable = given
        for edge in edges:
            writer = self._writer(edge.id, node, edge)
            if code.deep:
                name = code.fresh("send_on_")
                self.at(node, variable, "send")
                code.line(f"{name}({variable}, {self.stamp()})")
                with code.function(name, "value, t"), self.stamped_by("t"):
                    emit_exchange(self, node, edge, writer, "value", self._expanding > 0)
            else:
                emit_exchange(self, node, edge, writer, variable, self._expanding > 0)

    def _fit(self, node: StreamNode, variable: str, tag: str | None, *, fits: bool) -> None:
        """Lines that make a record fit its declared type."""
        code = self.code
        # A filter's records have been checked where they came from.
        declared = self.declared_type(node, tag)
        if declared is not None and (tag is not None or type(node.operator) is not FilterOp):
            check = declared.check_expression(variable)
            if check is not None and not fits:
                self.at(node, variable, "type")
                convert = code.bind(declared.convert, "convert")
                if check == "False":
                    code.line(f"{variable} = {convert}({variable})")
                else:
                    with code.block(f"if not ({check}):"):
                        code.line(f"{variable} = {convert}({variable})")
            if is_fixed_type(declared) and variable != "value":
                self._fixed.add(variable)

    def declared_type(self, node: StreamNode, tag: str | None) -> TypeInformation | None:
        """The type of a node's results, or of those for a side output."""
        return node.output_type if tag is None else self._tag_types.get((node.id, tag))

    def _own_output(self, node: StreamNode, variable: str, tag: str | None, *, own: bool) -> None:
        """Lines that make a record one that only its readers know."""
        if own or self.object_reuse or variable in self._fixed:
            return
        children = self._children.get((node.id, tag), [])
        # What is printed is made a text at once.
        printed = all(isinstance(child.operator, PrintOp) for child in children)
        if printed and (node.id, tag) not in self._edges:
            return
        if node.id not in self._kept:
            self._kept[node.id] = kept_by(node.operator)
        kept = self._kept[node.id]
        if kept is Kept.ANYTHING or (
            kept is Kept.OTHER_RESULTS and any(may_touch(self, child) for child in children)
        ):
            self.at(node, variable, "copy")
            emit_own(self.code, variable)

    def copied(self, node: StreamNode, variable: str) -> str:
        """Lines for a copy of a record that others have as well; the name of its variable."""
        if self.object_reuse or variable in self._fixed:
            return variable
        copy = self.code.fresh()
        self.at(node, variable, "copy")
        self.code.line(f"{copy} = {variable}")
        emit_own(self.code, copy)
        return copy

    @contextmanager
    def capturing(self, node: StreamNode, results: str) -> Iterator[None]:
        """What the node emits meanwhile is appended to a list."""
        before, self._captured = self._captured, (node.id, results)
        yield
        self._captured = before

    def tags_of(self, node: StreamNode) -> list[str]:
        """The side outputs of a node that somebody reads."""
        pairs = [*self._children, *self._edges]
        return sorted({tag for node_id, tag in pairs if node_id == node.id and tag is not None})

    def reaches_user_code(self, node: StreamNode) -> bool:
        """True if a function of the same chain gets the node's records as they are, not as bytes."""
        children = self._children.get((node.id, None), [])
        return any(not isinstance(child.operator, PrintOp | CollectOp) for child in children)

    def append(self, writer: EdgeWriter, index: int, expression: str) -> None:
        """Append to a fixed target's list."""
        code = self.code
        send = code.bind(writer.appends[index], "send")
        code.line(f"{send}({expression})")
        if writer.stamps:
            code.line(f"{code.bind(writer.stamp_appends[index], 'stamp')}({self.stamp()})")
        if self._expanding:
            records = code.bind(writer.lists[index], "list")
            bound = code.bind(writer, "writer")
            with code.block(f"if len({records}) >= {bound}.limit:"):
                code.line(f"{bound}.flush({index})")


def _to_the_end(operator: FollowsTime) -> Callable[[], None]:
    """At the end of a key: all of time passes, and begins again with the next key (rule 60)."""

    def end() -> None:
        operator.advance(MAX_TIME)
        operator.watermark = NO_TIME

    return end


def _setter(reader: ReadsTime) -> Callable[[int], None]:
    def advance(watermark: int) -> None:
        reader.watermark = watermark

    return advance


class _Expanding:
    def __init__(self, builder: ChainBuilder, header: str) -> None:
        self._builder = builder
        self._block = builder.code.block(header)

    def __enter__(self) -> None:
        self._builder._expanding += 1
        self._block.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._block.__exit__(*error)
        self._builder._expanding -= 1
