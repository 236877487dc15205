"""Small things between a task and its state: the choice of the backend, and what is looked at before a restored chain
goes on. Do its operators still ask for what they had, under keys of the same type? What becomes of open windows?"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from millstream.checkpoint.manifest import Manifest
from millstream.errors import MillstreamError, StateMismatch
from millstream.graph.operators import WindowOp
from millstream.runtime.base.text import shorten
from millstream.runtime.state.hash_tables import make_hash_table
from millstream.runtime.state.table import Table
from millstream.runtime.windows.change import is_window_state
from millstream.runtime.wire.keys import canonical, original_key

if TYPE_CHECKING:
    from millstream.runtime.task.chain import Chain
    from millstream.runtime.task.spec import JobSpec

__all__ = [
    "adopt_windows",
    "check_claimed",
    "check_keys",
    "table_maker",
]

# Keys of each state that are looked at to see whether they are of the declared type.
_KEYS = 100


def table_maker(job: JobSpec, owner: str) -> Callable[..., Table]:
    """What makes the tables of a store, by the job's backend."""
    if job.backend == "lmdb":
        from millstream.runtime.state.lmdb.store import LmdbStore

        return LmdbStore(job.local_dir, job.job_id, job.state_dir, owner).table
    return make_hash_table


def check_claimed(chain: Chain, manifest: Manifest) -> None:
    """Every state that an operator had asked for in open() must be asked for again: one that is not was renamed or
    forgotten, and its content would silently be gone."""
    for node in chain.vertex.nodes:
        info = manifest.operators.get(node.uid)
        if info is None:
            continue
        asked = chain.store.registered.get(node.uid, {})
        for name, description in info.states.items():
            if isinstance(node.operator, WindowOp) and is_window_state(name):
                continue  # Window operators go on with each other's state.
            # Broadcast state is known from the start, also where version 0.1.0 took it for asked for late.
            late = description.get("lazy") and description.get("kind") != "operator broadcast"
            if name not in asked and not late:
                raise StateMismatch(
                    f"the state '{name}' of '{node.name}' is not asked for by the program any more",
                    operator=f"{node.name} (uid {node.uid})",
                    state=name,
                    found=f"{description.get('kind')} state '{name}'",
                    wanted=", ".join(f"{s.get('kind')} state '{n}'" for n, s in asked.items())
                    or "no state",
                    hint="give the state its old name; --allowNonRestoredState (-n) leaves it behind",
                )


def adopt_windows(chain: Chain, manifest: Manifest) -> None:
    """Before the first record of a program that may have changed: open windows become those of its operators."""
    for unit in chain.units:
        info = manifest.operators.get(unit.node.uid)
        if info is not None:
            unit.adopt(info.states)
    chain.leave_keys()


def check_keys(chain: Chain) -> None:
    """The keys of restored state must be of the type that the program declares for them: what stands under others can
    never be met again, and would silently be gone."""
    for node in chain.vertex.nodes:
        types = [key.key_type for key in node.operator.keys]
        if not types or None in types:
            continue
        for table in chain.store.tables.values():
            operator, _, state = table.name.rpartition("/")
            if operator != node.uid:
                continue
            for canon in islice(table.keys(), _KEYS):
                bare = canon[0] if type(canon) is tuple else canon
                key = original_key(bare)
                if not any(_stays(key, bare, kind) for kind in types):
                    raise StateMismatch(
                        f"the keys of '{node.name}' were of another type when its state was written",
                        operator=f"{node.name} (uid {node.uid})",
                        state=state,
                        found=f"{type(key).__name__} {shorten(key)}",
                        wanted=" or ".join(dict.fromkeys(map(str, types))),
                        hint="declare the key type as it was, or give the operator another uid; "
                        "--allowNonRestoredState (-n) leaves the state behind",
                    )


def _stays(key: Any, canon: Any, key_type: Any) -> bool:
    """True if the declared type leaves a key what it is."""
    try:
        return bool(canonical(key_type.convert(key)) == canon)
    except (MillstreamError, TypeError, ValueError):
        return False
