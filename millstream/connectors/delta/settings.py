"""What a sink into a Delta table is told. Needs no driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millstream.redaction import shown

__all__ = ["DeltaSettings"]

_TARGET = 128 << 20


@dataclass(frozen=True)
class DeltaSettings:
    """What a sink is told.

    >>> DeltaSettings("/data/orders").shown
    '/data/orders'
    """

    uri: str
    options: dict[str, str] = field(default_factory=dict, repr=False, hash=False)
    sink_id: str | None = None
    row_type: Any = field(default=None, hash=False)
    partition_by: tuple[str, ...] = ()
    create: bool = False
    target_bytes: int = _TARGET

    @property
    def shown(self) -> str:
        """The table, as messages name it."""
        return shown(self.uri)
