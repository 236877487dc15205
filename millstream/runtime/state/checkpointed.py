"""The contexts of a `CheckpointedFunction`."""

from __future__ import annotations

from typing import Any

from millstream.api.checkpointed import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedStateStore,
)
from millstream.api.functions import RuntimeContext
from millstream.api.state import OperatorStateStore

__all__ = ["InitializationContext", "SnapshotContext"]


class SnapshotContext(FunctionSnapshotContext):
    """For `snapshot_state`."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def get_checkpoint_id(self) -> int:
        return self._epoch


class InitializationContext(FunctionInitializationContext):
    """For `initialize_state`."""

    def __init__(self, restored: bool, states: OperatorStateStore, context: RuntimeContext) -> None:
        self._restored = restored
        self._states = states
        self._context = context

    def is_restored(self) -> bool:
        return self._restored

    def get_operator_state_store(self) -> OperatorStateStore:
        return self._states

    def get_keyed_state_store(self) -> KeyedStateStore:
        # It has the methods; that it does not extend the class keeps the modules in one order.
        store: Any = self._context
        typed: KeyedStateStore = store
        return typed
