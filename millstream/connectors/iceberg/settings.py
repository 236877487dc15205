"""What a sink into an Iceberg table is told. Needs no driver."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["IcebergSettings"]

_TARGET = 128 << 20


@dataclass(frozen=True)
class IcebergSettings:
    """What a sink is told. The catalogue's properties may hold secrets, and are not shown."""

    catalog: str
    properties: dict[str, str] = field(repr=False, hash=False)
    table: str = ""
    sink_id: str | None = None
    row_type: Any = field(default=None, hash=False)
    partition_by: tuple[str, ...] = ()
    create: bool = False
    target_bytes: int = _TARGET
