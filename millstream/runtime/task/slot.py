"""What a process keeps of a level's subtask from epoch to epoch: its compiled chains, with functions and state."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from millstream.api.source import SourceReader
from millstream.graph.job_graph import JobVertex
from millstream.graph.level_plan import Edge
from millstream.graph.operators import CollectOp, SourceOp
from millstream.graph.partitioning import Strategy
from millstream.redaction import get_logger
from millstream.runtime.codegen.builder import ChainBuilder, ChainSettings
from millstream.runtime.codegen.unit import OperatorUnit
from millstream.runtime.operators.column_exchange import KeyedColumnWriter
from millstream.runtime.operators.feedback import FeedbackReader
from millstream.runtime.operators.registry import make_units
from millstream.runtime.state.store import StateStore
from millstream.runtime.task.chain import Chain
from millstream.runtime.task.dependencies import prepared
from millstream.runtime.task.failure import explain_call
from millstream.runtime.task.spec import JobSpec, VertexSpec, store_name
from millstream.runtime.task.state_access import table_maker
from millstream.runtime.wire.column_output import ColumnWriter
from millstream.runtime.wire.output import EdgeWriter
from millstream.runtime.wire.rows import RowBatch, client_node
from millstream.storage.storage import Storage

__all__ = ["Slot", "SlotKey", "calling", "close_run", "drop_slot", "slot_for"]

_log = get_logger(__name__)

SlotKey = tuple[str, int, int, int]
"""Run, level, source (at level 0, where each runs in tasks of its own) and subtask."""


class Slot:
    """The chains of one level's subtask in this process, kept from epoch to epoch."""

    def __init__(self, job: JobSpec, subtask: int) -> None:
        self.job = job
        self.subtask = subtask
        self.rows = RowBatch()
        self.used = 0.0
        # When a latency marker was made last.
        self.marked = float("-inf")
        # The epoch and the round that the chains have been through, if all of it is in this process alone.
        self.ran: tuple[int, int] | None = None
        self.storage: Storage = job.storage()
        self.chains: dict[int, Chain] = {}
        self.readers: dict[int, SourceReader] = {}
        # By vertex, how far its inputs and generators have come.
        self.times: dict[int, Any] = {}
        # By vertex, the states that its functions asked for in open().
        self.eager: dict[int, dict[str, set[str]]] = {}
        # Elsewhere than on the driver's host the folder never is.
        self._home = job.while_there
        self._was_there = self._home is not None and os.path.exists(self._home)

    @property
    def orphaned(self) -> bool:
        """True if the process that ran the job is known to be gone."""
        return self._was_there and self._home is not None and not os.path.exists(self._home)

    def chain(self, vertex: VertexSpec) -> Chain:
        """The chain of a vertex, compiled on first use; its functions are opened when its state is."""
        if vertex.id not in self.chains:
            self.chains[vertex.id] = self._compile(vertex)
        return self.chains[vertex.id]

    def _compile(self, vertex: VertexSpec) -> Chain:
        job, subtask = self.job, self.subtask
        own, edges = vertex.load()

        def make_writer(edge_id: int, operator: str, edge: Edge | None) -> EdgeWriter:
            by_group = (
                job.batch and edge is not None and edge.partitioning.strategy is Strategy.HASH
            )
            targets = (subtask,) if edge is None else edge.targets_of(subtask)
            if edge is not None and by_group:
                targets = edge.targets_of_groups()
            make: Callable[..., EdgeWriter] = partial(EdgeWriter, edge_id)
            if edge is None and _makes_frame(own, edge_id) and job.columns:
                make = partial(ColumnWriter, edge_id)
            elif edge is not None and edge.columns is not None:
                make = partial(KeyedColumnWriter, edge)
            return make(
                operator,
                targets,
                self.rows,
                broadcast=edge is not None and edge.partitioning.strategy is Strategy.BROADCAST,
                stamped=edge is not None and edge.stamped,
                by_group=by_group,
                waits=edge is not None and edge.waits,
                max_bytes=job.buffer_bytes,
                max_records=min(1024, job.buffer_records) if by_group else job.buffer_records,
                timeout_ms=None
                if job.flow_timeout is None
                else _timeout_of(edge, job.flow_timeout),
            )

        store = StateStore(
            self.storage,
            store_name(own, subtask),
            operators=[node.uid for node in own.nodes],
            make_table=table_maker(job, store_name(own, subtask)),
        )
        settings = ChainSettings(
            batch=job.batch,
            object_reuse=job.object_reuse,
            share_panes=job.share_panes,
            columns=job.columns,
            ask_generators=job.ask_generators,
            stamped=vertex.stamped,
            carried=vertex.carried,
            job_parameters=job.job_parameters,
            cached_files=dict(prepared(job.dependencies).cached),
        )
        builder = ChainBuilder(own, edges, subtask, store, make_writer, settings)
        chain = Chain(builder, make_units(builder), vertex.inputs, vertex.watermarks)
        if vertex.watermarks:
            self.times[vertex.id] = store.operator_state.get(f"{own.head.uid}/#time", "union")
        if job.print_code:
            print(chain.module.source, flush=True)  # noqa: T201 - asked for by an option
        return chain

    def reopen(self, vertex: VertexSpec) -> Chain:
        """A chain in the place of one whose functions are not up to date."""
        chain = self.chains.pop(vertex.id)
        chain.store.close()
        if chain.opened:
            _close_functions(chain)
        return self.chain(vertex)

    def reader(self, chain: Chain) -> SourceReader:
        """The reader of a source's chain."""
        vertex = chain.vertex
        if vertex.id not in self.readers:
            assert isinstance(vertex.head.operator, SourceOp)
            reader = vertex.head.operator.source.create_reader()
            if isinstance(reader, FeedbackReader):
                reader.storage, reader.stamped = self.storage, chain.settings.stamped
            reader.open()
            self.readers[vertex.id] = reader
        return self.readers[vertex.id]

    def close(self) -> None:
        """Close the user's functions; what sinks have open of an epoch that will not end here is taken back."""
        for chain in self.chains.values():
            chain.store.close()
        if self.ran is not None:
            for chain in self.chains.values():
                for unit in chain.units:
                    unit.abort()
        for chain in self.chains.values():
            if chain.opened:
                _close_functions(chain)
        for reader in self.readers.values():
            reader.close()


def _makes_frame(vertex: JobVertex, edge_id: int) -> bool:
    """True of the edge to the driver of records that a frame is made of."""
    node = next(node for node in vertex.nodes if node.id == client_node(edge_id))
    return isinstance(node.operator, CollectOp) and node.operator.schema is not None


def _timeout_of(edge: Edge | None, default: int) -> int:
    return default if edge is None else edge.buffer_timeout


def _close_functions(chain: Chain) -> None:
    chain.leave_keys()
    for unit in chain.with_functions:
        with calling(unit, "close()"):
            unit.close()


@contextlib.contextmanager
def calling(unit: OperatorUnit[Any], call: str) -> Iterator[None]:
    """Around a call that is about no record: what fails is the operator's failure."""
    try:
        yield
    except Exception as error:
        raise explain_call(error, unit.node, call) from error


# All slots of this process, for a worker serves every job of its executor.
_slots: dict[SlotKey, Slot] = {}
_IDLE_SECONDS = 600.0
_LOOK_EVERY = 5.0
_looked = 0.0


def slot_for(job: JobSpec, level: int, source: int, subtask: int) -> Slot:
    """This process's slot. Those of other runs that have not been used for long are closed."""
    key = (job.run_id, level, source, subtask)
    now = time.monotonic()
    _close_ended(now)
    if key not in _slots:
        idle = {k[0] for k, slot in _slots.items() if now - slot.used > _IDLE_SECONDS}
        for run in idle - {k[0] for k, slot in _slots.items() if now - slot.used <= _IDLE_SECONDS}:
            close_run(run)
        _slots[key] = Slot(job, subtask)
    _slots[key].used = now
    return _slots[key]


def _close_ended(now: float) -> None:
    """Close the slots of jobs whose processes were here and are gone. Their workers serve others, maybe for weeks."""
    global _looked
    if now - _looked < _LOOK_EVERY:
        return
    _looked = now
    for run in {key[0] for key, slot in _slots.items() if slot.orphaned}:
        try:
            close_run(run)
        except Exception:
            # Of a function of a job that is over: none of the business of the job that runs now.
            _log.warning("closing a job that has ended failed", exc_info=True)


def drop_slot(key: SlotKey) -> Slot | None:
    """Forget a slot, which is given back to be closed; None if there is none."""
    return _slots.pop(key, None)


def close_run(run_id: str) -> None:
    """Close all slots of a run."""
    for key in [key for key in _slots if key[0] == run_id]:
        _slots.pop(key).close()
