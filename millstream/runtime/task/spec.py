"""The shape in which workers get a job."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field

from millstream.graph.job_graph import JobVertex
from millstream.graph.level_plan import Edge
from millstream.runtime.task.dependencies import Dependencies
from millstream.runtime.time.valve import InputEdge
from millstream.storage.open import open_storage
from millstream.storage.seal import Seal
from millstream.storage.storage import Storage

__all__ = ["EdgeTarget", "JobSpec", "LevelSpec", "VertexSpec", "store_name"]


@dataclass(frozen=True)
class VertexSpec:
    """A vertex as shipped; `splits` if it reads a source by splits. `body` is unpickled anew by each
    subtask, which so gets functions of its own."""

    id: int
    parallelism: int
    inputs: int
    splits: bool
    body: bytes
    stamped: bool = False
    watermarks: tuple[InputEdge, ...] = ()
    # The inputs whose records come with their keys.
    carried: tuple[int, ...] = ()

    def load(self) -> tuple[JobVertex, list[Edge]]:
        """The vertex and the edges that leave it."""
        # Each operator and each edge is a pickle of its own: an object that the user gave to two of them
        # becomes two, as it would in two vertices.
        vertex_id, nodes, inner, edges = pickle.loads(self.body)
        vertex = JobVertex(vertex_id, tuple(pickle.loads(node) for node in nodes), inner)
        return vertex, [pickle.loads(edge) for edge in edges]


@dataclass(frozen=True)
class EdgeTarget:
    """Where buffers of an edge are consumed."""

    level: int
    vertex: int
    input_index: int
    # Read before the other input of an epoch (rule 50).
    first: bool = False


@dataclass(frozen=True)
class LevelSpec:
    """The vertices that run in one stage, and how many tasks it has."""

    vertices: tuple[VertexSpec, ...]
    parallelism: int


@dataclass(frozen=True)
class JobSpec:
    """Everything a worker needs. `run_id` is new each time a job is started, also after a failure. Epoch numbers
    begin at `first_epoch`, which is the engine's micro-batch `first_batch`; the state before it is that of checkpoint
    `base_epoch`, none if that is None."""

    run_id: str
    job_id: str
    state_dir: str
    durable: bool
    first_epoch: int
    first_batch: int
    base_epoch: int | None
    restored: bool
    strict: bool
    backend: str
    local_dir: str | None
    levels: tuple[LevelSpec, ...]
    targets: dict[int, EdgeTarget]
    python_path: tuple[str, ...]
    buffer_bytes: int
    buffer_records: int
    sort_memory: int
    job_parameters: dict[str, str]
    print_code: bool
    dependencies: Dependencies = field(default_factory=Dependencies)
    ask_generators: bool = True
    share_panes: bool = True
    columns: bool = True
    object_reuse: bool = False
    batch: bool = False
    # Rows come to a level in order.
    presorted: bool = False
    # Nobody completes its epochs, so none goes on from the one before.
    untracked: bool = False
    # Classes of the program that cannot be imported, by name, for keys that come out of state.
    classes: bytes = b""
    # A folder that is there, on the driver's host, for as long as the process that runs the job.
    while_there: str | None = None
    # How many seconds apart a source makes latency markers; 0 for none.
    latency_interval: float = 0.0
    # Where records flow through all levels at once: after how many milliseconds the driver gets its rows, -1 for when
    # there are many. Else Spark hands a level's rows on when the level is done: to send them early would gain nothing,
    # and would make the order of buffers depend on the clock.
    flow_timeout: int | None = None
    # Where each process finds the key that state is signed with.
    key_file: str | None = None

    def storage(self) -> Storage:
        """The job's folder, in any process."""
        storage = open_storage(self.state_dir, durable=self.durable, seal=Seal.of(self.key_file))
        if self.durable:
            # Its driver holds the lease there.
            storage.expect()
        return storage


def store_name(vertex: JobVertex, subtask: int) -> str:
    """The name of the state of a vertex's subtask, the same in every run."""
    return f"{vertex.head.uid}/{subtask}"
