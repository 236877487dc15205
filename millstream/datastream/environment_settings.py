"""Settings of `StreamExecutionEnvironment` that have no effect here, and are accepted for Flink's programs.

Each is kept in the environment and can be read back.
"""

from __future__ import annotations

from typing import TypeVar

from millstream.common import options
from millstream.common.compat import no_effect
from millstream.common.configuration import Configuration
from millstream.datastream.checkpoint_config import CheckpointConfig
from millstream.datastream.checkpointing_mode import CheckpointingMode
from millstream.datastream.slot_sharing_group import SlotSharingGroup
from millstream.errors import InvalidArgument

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
        groups = self.__dict__.setdefault("_slot_groups", {})
        # As in Flink: a group without resources says nothing.
        if slot_sharing_group.has_resources:
            groups[slot_sharing_group.name] = slot_sharing_group
        return self

    def _meet_slot_sharing_group(self, group: SlotSharingGroup) -> None:
        """An operator names a group with its resources."""
        groups = self.__dict__.setdefault("_slot_groups", {})
        if group.has_resources and groups.setdefault(group.name, group) != group:
            raise InvalidArgument(
                f"The slot sharing group {group.name} has been configured with two different resource spec.",
                first=groups[group.name],
                second=group,
            )

    def get_slot_sharing_groups(self) -> dict[str, SlotSharingGroup]:
        """The groups whose resources are known, by name.

        >>> from millstream.datastream import SlotSharingGroup, StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> heavy = SlotSharingGroup.builder("heavy").set_cpu_cores(2).set_task_heap_memory_mb(100)
        >>> list(env.register_slot_sharing_group(heavy.build()).get_slot_sharing_groups())
        ['heavy']
        """
        return dict(self.__dict__.get("_slot_groups", {}))

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """What the option says; chaining does not look at the max parallelism."""
        return options.get(self._configuration, options.CHAINING_DIFFERENT_MAX)

    @no_effect("the default parallelism comes from parallelism.default")
    def set_default_local_parallelism(self, parallelism: int) -> None:
        """Keep the parallelism of local environments."""
        self.__dict__["_local_parallelism"] = parallelism

    @no_effect("the default parallelism comes from parallelism.default")
    def get_default_local_parallelism(self) -> int:
        """The parallelism of local environments that was set, else 4."""
        parallelism: int = self.__dict__.get("_local_parallelism", _DEFAULT_LOCAL)
        return parallelism

    @no_effect("every checkpoint holds only what has changed since the last one")
    def enable_changelog_state_backend(self: Env, enabled: bool) -> Env:
        """Keep whether changes of state are to be logged."""
        self._configuration.set_boolean(options.STATE_CHANGELOG.key, enabled)
        return self

    @no_effect("every checkpoint holds only what has changed since the last one")
    def is_changelog_state_backend_enabled(self) -> bool | None:
        """Whether changes of state were asked to be logged, None if nobody has said."""
        if self._configuration.contains_key(options.STATE_CHANGELOG.key):
            return options.get(self._configuration, options.STATE_CHANGELOG)
        return None

    @no_effect("an epoch's border is aligned by construction")
    def is_unaligned_checkpoints_enabled(self) -> bool:
        """What the checkpoint configuration says."""
        return CheckpointConfig(self._configuration).is_unaligned_checkpoints_enabled()

    @no_effect("an epoch's border is aligned by construction")
    def is_force_unaligned_checkpoints(self) -> bool:
        """What the checkpoint configuration says."""
        return CheckpointConfig(self._configuration).is_force_unaligned_checkpoints()
