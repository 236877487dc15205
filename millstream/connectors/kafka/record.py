"""A record as Kafka has it."""

from __future__ import annotations

from typing import Any, NamedTuple

from millstream.v import keep, kept

__all__ = ["KafkaRecord"]


class KafkaRecord(NamedTuple):
    """Key, value and headers as they are on the broker, and where they stand there.

    >>> KafkaRecord("orders", 0, 41, 1700000000000, b"ann", b"3").offset
    41
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@kept
def _record(*parts: Any) -> KafkaRecord:
    return KafkaRecord(*parts)


keep(KafkaRecord, tuple, _record)
