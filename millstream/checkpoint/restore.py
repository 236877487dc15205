"""From a checkpoint or savepoint to a job that may look different: which state goes where, or why it does not fit.

Operators are found by uid. If every store is laid out as it was, the job goes on with the files as they are. If not
(another parallelism, other chains, another folder), each new store begins with *parents*: the old stores of its
operators, of which it takes its own key groups and its share of operator state (Flink's `StateAssignmentOperation`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from millstream.checkpoint.coordinator import Layout
from millstream.checkpoint.manifest import Manifest, OperatorInfo, Parent, StoreState
from millstream.errors import StateMismatch

__all__ = ["check_fits", "fits_as_is", "restored_manifest", "without_sinks"]

_ALLOW = "--allowNonRestoredState (-n) leaves it behind"


def check_fits(
    manifest: Manifest, layout: Layout, *, where: str, allow_non_restored: bool = False
) -> None:
    """Raise a `StateMismatch` if the program lacks an operator that has state, or a sink that has output to commit, or
    has other key groups."""
    if not allow_non_restored:
        _check_sinks(manifest, layout, where)
    stateful = {
        uid: info
        for uid, info in manifest.operators.items()
        if info.states or uid in manifest.offsets or manifest.feedback.get(uid)
    }
    missing = {uid: info for uid, info in stateful.items() if uid not in layout.operators}
    if missing and not allow_non_restored:
        foreign = len(missing) == len(stateful)
        problem = (
            f"nothing of {where} belongs to this program"
            if foreign
            else f"{where} has state of operators that the program does not have"
        )
        raise StateMismatch(
            problem,
            job=manifest.job_name,
            operator=_listed(missing),
            found=_listed(stateful),
            wanted=_listed(layout.operators),
            hint=f"give the operators the uids they had; {_ALLOW}",
        )
    for uid, info in stateful.items():
        now = layout.operators.get(uid)
        keyed = [
            n for n, s in info.states.items() if not str(s.get("kind")).startswith("operator ")
        ]
        if now is not None and keyed and now.max_parallelism != info.max_parallelism:
            raise StateMismatch(
                f"the maximum parallelism of '{now.name}' has changed, so its keys are in other groups",
                operator=f"{now.name} (uid {uid})",
                state=", ".join(keyed),
                found=info.max_parallelism,
                wanted=now.max_parallelism,
                hint=f"call set_max_parallelism({info.max_parallelism}); it can only change with new state"
                if now.parallelism <= info.max_parallelism
                else f"start with a parallelism of at most {info.max_parallelism}; it is for the life of the state",
            )


def without_sinks(manifest: Manifest, layout: Layout) -> list[str]:
    """The sinks, by uid, that have output to commit and are not in the program."""
    return [uid for uid, made in manifest.committables.items() if made and uid not in layout.sinks]


def _check_sinks(manifest: Manifest, layout: Layout, where: str) -> None:
    missing = without_sinks(manifest, layout)
    if not missing:
        return
    raise StateMismatch(
        f"{where} has output to commit, of a sink that the program does not have",
        job=manifest.job_name,
        operator=_listed(_of(manifest.operators, missing)),
        found=_listed(_of(manifest.operators, manifest.committables)),
        wanted=_listed(_of(layout.operators, sorted(layout.sinks))),
        hint="give the sink the uid it had, or start the program as it was once more, so that it commits; "
        "--allowNonRestoredState (-n) gives the output up",
    )


def _of(operators: dict[str, OperatorInfo], uids: Iterable[str]) -> dict[str, OperatorInfo]:
    unknown = OperatorInfo(name="sink", parallelism=1, max_parallelism=1)
    return {uid: operators.get(uid, unknown) for uid in uids}


def fits_as_is(manifest: Manifest, layout: Layout) -> bool:
    """True if every store is where it was, with the same operators and key groups."""
    for name, store in manifest.stores.items():
        now = layout.stores.get(name)
        if now is None or (
            (now.subtask, now.parallelism, now.max_parallelism)
            != (store.subtask, store.parallelism, store.max_parallelism)
            or set(now.operators) != set(store.operators)
        ):
            return False
    return True


def restored_manifest(
    manifest: Manifest, layout: Layout, *, epoch: int, root: str = ""
) -> Manifest:
    """The manifest that a job of another layout begins with. `root` is where the files are, empty for the job's
    own folder."""
    stores = {}
    for name, template in layout.stores.items():
        operators = set(template.operators)
        parents = [
            parent
            for parent in _parents(manifest.stores.values(), root)
            if operators & set(parent.operators)
        ]
        if parents:
            stores[name] = msgspec.structs.replace(template, parents=parents)
    operators_now = {
        uid: OperatorInfo(
            name=info.name,
            parallelism=info.parallelism,
            max_parallelism=info.max_parallelism,
            states=manifest.operators[uid].states if uid in manifest.operators else {},
        )
        for uid, info in layout.operators.items()
    }
    return msgspec.structs.replace(
        manifest,
        epoch=epoch,
        job_id=layout.job_id,
        job_name=layout.job_name,
        stores=stores,
        operators=operators_now,
        offsets={
            uid: positions for uid, positions in manifest.offsets.items() if uid in layout.operators
        },
        times={uid: times for uid, times in manifest.times.items() if uid in layout.operators},
        feedback={
            uid: files for uid, files in manifest.feedback.items() if uid in layout.operators
        },
        committables={
            uid: made for uid, made in manifest.committables.items() if uid in layout.sinks
        },
        origin=manifest.made,
        savepoint=False,
        ended=False,
        extra={} if root else manifest.extra,
    )


def _parents(stores: Collection[StoreState], root: str) -> list[Parent]:
    """The stores as parents. If they were restored themselves and have written nothing yet, their own parents are. If
    some have written, all were opened, and the others had nothing to keep: what their parents hold is out of date."""
    written = {frozenset(store.operators) for store in stores if store.segments}
    parents: dict[tuple[str, int, int, tuple[str, ...]], Parent] = {}
    for store in stores:
        if store.segments:
            own = Parent(
                root=root,
                subtask=store.subtask,
                parallelism=store.parallelism,
                operators=store.operators,
                segments=store.segments,
            )
            several = [own]
        elif frozenset(store.operators) in written:
            continue
        else:
            # Their files are relative to where the checkpoint was found, if not elsewhere already.
            several = [
                msgspec.structs.replace(parent, root=parent.root or root)
                for parent in store.parents
            ]
        for parent in several:
            key = (parent.root, parent.subtask, parent.parallelism, tuple(parent.operators))
            parents[key] = parent
    return list(parents.values())


def _listed(operators: dict[str, OperatorInfo]) -> str:
    parts = [
        f"'{info.name}' (uid {uid}" + (f": {', '.join(info.states)})" if info.states else ")")
        for uid, info in operators.items()
    ]
    return "\n".join(parts) or "none"
