"""PostgreSQL as a sink."""

from millstream.connectors.postgres import (
    PostgresSink,
    PostgresSinkBuilder,
    PostgresTransactionalSink,
    PostgresUpsertSink,
)

__all__ = ["PostgresSink", "PostgresSinkBuilder", "PostgresTransactionalSink", "PostgresUpsertSink"]
