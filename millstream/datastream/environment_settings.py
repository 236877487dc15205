"""Settings of `StreamExecutionEnvironment` that have no effect here, and are accepted for Flink's programs.

Each is kept in the environment and can be read back.
"""

from __future__ import annotations

from typing import Any, TypeVar

from millstream.common import options
from millstream.common.compat import no_effect
from millstream.common.configuration import Configuration
from millstream.datastream.checkpointing_mode import CheckpointingMode
from millstream.datastream.slot_sharing_group import SlotSharingGroup
from millstream.errors import InvalidArgument, UnsupportedOperation

__all__ = ["AcceptedSettings"]

Env = TypeVar("Env", bound="AcceptedSettings")

_DEFAULT_LOCAL = 4


class AcceptedSettings:
    """A part of `StreamExecutionEnvironment`."""

    _configuration: Configuration

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """What checkpoints guarantee."""
        return CheckpointingMode(options.get(self._configuration, options.CHECKPOINTING_MODE))

    @no_effect("resources are Spark's to give: spark.executor.memory, spark.task.cpus")
    def register_slot_sharing_group(self: Env, slot_sharing_group: SlotSharingGroup) -> Env:
        """Keep the resources of a group."""
        if not isinstance(slot_sharing_group, SlotSharingGroup):
            msg = "register_slot_sharing_group needs a SlotSharingGroup"
            raise InvalidArgument(msg, got=type(slot_sharing_group).__name__)
        self.__dict__.setdefault("_slot_groups", {})[slot_sharing_group.name] = slot_sharing_group
        return self

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """True: chaining does not look at the max parallelism."""
        return True

    @no_effect("the default parallelism comes from parallelism.default")
    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Keep a number."""
        self.__dict__["_local_parallelism"] = parallelism

    @no_effect("the default parallelism comes from parallelism.default")
    def get_default_local_parallelism(self) -> int:
        """That number."""
        found: int = self.__dict__.get("_local_parallelism", _DEFAULT_LOCAL)
        return found

    @no_effect("every checkpoint holds only what has changed since the last one")
    def enable_changelog_state_backend(self: Env, enabled: bool) -> Env:
        """Keep the choice."""
        self.__dict__["_changelog"] = enabled
        return self

    @no_effect("every checkpoint holds only what has changed since the last one")
    def is_changelog_state_backend_enabled(self) -> bool | None:
        """That choice, None if there was none."""
        return self.__dict__.get("_changelog")

    @no_effect("an epoch's border is aligned by construction")
    def is_unaligned_checkpoints_enabled(self) -> bool:
        """What the checkpoint configuration says."""
        return bool(options.get(self._configuration, options.CHECKPOINTING_UNALIGNED))

    @no_effect("an epoch's border is aligned by construction")
    def is_force_unaligned_checkpoints(self) -> bool:
        """False."""
        return False

    def create_input(self, input_format: Any, type_info: Any = None) -> Any:
        """A source written in Java."""
        msg = "create_input reads a Java InputFormat, and no Java library is used here"
        raise UnsupportedOperation(
            msg, hint="use from_source with a FileSource or a Source of yours"
        )
