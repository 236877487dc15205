"""PostgreSQL: an exactly-once sink."""

from millstream.connectors.postgres.sink import (
    PostgresSink,
    PostgresSinkBuilder,
    PostgresTransactionalSink,
    PostgresUpsertSink,
)

__all__ = [
    "PostgresSink",
    "PostgresSinkBuilder",
    "PostgresTransactionalSink",
    "PostgresUpsertSink",
]
