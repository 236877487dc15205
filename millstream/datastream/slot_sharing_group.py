"""Slot sharing groups with resources (PyFlink's `slot_sharing_group`).

The name has an effect: operators of different groups are not chained. The resources are kept and can be read back;
how much memory and how many cores a task gets is Spark's to say (`spark.executor.memory`, `spark.task.cpus`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import total_ordering

from millstream.common.compat import no_effect
from millstream.errors import InvalidArgument

__all__ = ["MemorySize", "SlotSharingGroup"]

_SPARK = "resources are Spark's to give: spark.executor.memory, spark.task.cpus"


_UNITS = ("bytes", "kb", "mb", "gb", "tb")


@total_ordering
class MemorySize:
    """A number of bytes.

    >>> MemorySize.of_mebi_bytes(2).get_kibi_bytes()
    2048
    >>> MemorySize.of_mebi_bytes(2) > MemorySize(bytes_size=1024)
    True
    """

    def __init__(self, j_memory_size: None = None, bytes_size: int | None = None) -> None:
        if j_memory_size is not None or bytes_size is None:
            raise InvalidArgument(
                "a MemorySize is made of bytes", hint="MemorySize(bytes_size=1024)"
            )
        if bytes_size < 0:
            raise InvalidArgument("a size must not be negative", got=bytes_size)
        self._bytes = bytes_size

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """So many times 1024 * 1024 bytes."""
        return MemorySize(bytes_size=mebi_bytes << 20)

    def get_bytes(self) -> int:
        """The size in bytes."""
        return self._bytes

    def get_kibi_bytes(self) -> int:
        """The size in whole KiB."""
        return self._bytes >> 10

    def get_mebi_bytes(self) -> int:
        """The size in whole MiB."""
        return self._bytes >> 20

    def get_gibi_bytes(self) -> int:
        """The size in whole GiB."""
        return self._bytes >> 30

    def get_tebi_bytes(self) -> int:
        """The size in whole TiB."""
        return self._bytes >> 40

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemorySize) and self._bytes == other._bytes

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, MemorySize):
            # Not NotImplemented: PyFlink refuses with these words.
            msg = f"Does not support comparison with non-MemorySize {other}"
            raise InvalidArgument(msg, hint="MemorySize(bytes_size=...)")
        return self._bytes < other._bytes

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __str__(self) -> str:
        # As Flink writes it: in the largest unit that divides it, and in bytes what all of them divide.
        unit = next((i - 1 for i in range(1, 5) if self._bytes % (1 << 10 * i)), 0)
        return f"{self._bytes >> 10 * unit} {_UNITS[unit]}"

    __repr__ = __str__


@dataclass(frozen=True)
class SlotSharingGroup:
    """A name, and the resources of a slot if they were given.

    >>> group = SlotSharingGroup.builder("heavy").set_cpu_cores(1.5).set_task_heap_memory_mb(100)
    >>> group.build().get_task_heap_memory()
    100 mb
    """

    name: str
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external_resources: dict[str, float] = field(default_factory=dict, hash=False)

    def get_name(self) -> str:
        """The name of the group."""
        return self.name

    @property
    def has_resources(self) -> bool:
        """True if resources were given."""
        return self.cpu_cores is not None

    def get_cpu_cores(self) -> float | None:
        """Cores, if given."""
        return self.cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        """Heap, if given."""
        return self.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """Memory beside the heap, if given."""
        return self.task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        """Managed memory, if given."""
        return self.managed_memory

    def get_external_resources(self) -> dict[str, float]:
        """Other resources by name."""
        return dict(self.external_resources)

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """A builder of a group."""
        return SlotSharingGroup.Builder(name)

    class Builder:
        """Builds a `SlotSharingGroup`."""

        def __init__(self, name: str) -> None:
            self._name = name
            self._cores: float | None = None
            self._sizes: dict[str, MemorySize] = {}
            self._external: dict[str, float] = {}

        def _set(self, kind: str, size: MemorySize) -> SlotSharingGroup.Builder:
            if not isinstance(size, MemorySize):
                msg = f"the {kind.replace('_', ' ')} is a MemorySize"
                raise InvalidArgument(msg, got=repr(size)[:200])
            if kind == "task_heap_memory" and not size.get_bytes():
                raise InvalidArgument("The task heap memory should be positive.", got=size)
            self._sizes[kind] = size
            return self

        @no_effect(_SPARK)
        def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroup.Builder:
            """Set the number of cores."""
            if not cpu_cores > 0:
                raise InvalidArgument("The cpu cores should be positive.", got=cpu_cores)
            self._cores = float(cpu_cores)
            return self

        @no_effect(_SPARK)
        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the heap's size."""
            return self._set("task_heap_memory", task_heap_memory)

        @no_effect(_SPARK)
        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Heap in MiB."""
            if task_heap_memory_mb <= 0:
                msg = "The task heap memory should be positive."
                raise InvalidArgument(msg, got=task_heap_memory_mb)
            return self._set("task_heap_memory", MemorySize.of_mebi_bytes(task_heap_memory_mb))

        @no_effect(_SPARK)
        def set_task_off_heap_memory(
            self, task_off_heap_memory: MemorySize
        ) -> SlotSharingGroup.Builder:
            """Memory beside the heap."""
            return self._set("task_off_heap_memory", task_off_heap_memory)

        @no_effect(_SPARK)
        def set_task_off_heap_memory_mb(
            self, task_off_heap_memory_mb: int
        ) -> SlotSharingGroup.Builder:
            """Memory beside the heap, in MiB."""
            size = MemorySize.of_mebi_bytes(task_off_heap_memory_mb)
            return self._set("task_off_heap_memory", size)

        @no_effect(_SPARK)
        def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the size of managed memory."""
            return self._set("managed_memory", managed_memory)

        @no_effect(_SPARK)
        def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroup.Builder:
            """Managed memory in MiB."""
            return self._set("managed_memory", MemorySize.of_mebi_bytes(managed_memory_mb))

        @no_effect(_SPARK)
        def set_external_resource(self, name: str, value: float) -> SlotSharingGroup.Builder:
            """Set how much there is of another resource."""
            self._external[name] = value
            return self

        def build(self) -> SlotSharingGroup:
            """The group; cores and heap are given together or not at all (rule 61)."""
            given = bool(self._cores or self._sizes or self._external)
            if given and (self._cores is None or "task_heap_memory" not in self._sizes):
                msg = (
                    "The cpu cores and task heap memory are required when specifying the resource of a slot "
                    "sharing group. You need to explicitly configure them with positive value."
                )
                raise InvalidArgument(msg, group=self._name)
            if not given:
                return SlotSharingGroup(self._name)
            nothing = MemorySize(bytes_size=0)
            beside = {"task_off_heap_memory": nothing, "managed_memory": nothing}
            return SlotSharingGroup(
                self._name,
                self._cores,
                external_resources=dict(self._external),
                **{**beside, **self._sizes},
            )
