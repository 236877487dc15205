"""Enrichment: every order is completed with what a database knows of its customer, with many questions under way.

python examples/async_enrichment.py                              SQLite, asked in threads
python examples/async_enrichment.py "host=... dbname=... user=..."   PostgreSQL, over psycopg's async connections
"""

import asyncio
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from millstream.common import Time
from millstream.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    StreamExecutionEnvironment,
)
from millstream.datastream.async_retry_predicates import has_exception_predicate

CUSTOMERS = [(1, "Ann", "Lyon"), (2, "Ben", "Oslo"), (3, "Cleo", "Bonn")]
# Order, customer.
ORDERS = [("tea", 2), ("ink", 1), ("rope", 9), ("salt", 3), ("oil", 2)]
FIND = "SELECT name, city FROM customers_of_example WHERE id = "


class FromPostgres(AsyncFunction):
    """A connection answers one question at a time, so there are some of them."""

    def __init__(self, dsn, connections=4):
        self.dsn, self.connections = dsn, connections

    async def open(self, ctx):  # type: ignore[override]
        import psycopg

        self.free: asyncio.Queue[psycopg.AsyncConnection] = asyncio.Queue()
        for _ in range(self.connections):
            self.free.put_nowait(await psycopg.AsyncConnection.connect(self.dsn, autocommit=True))

    async def async_invoke(self, order):
        connection = await self.free.get()
        try:
            cursor = await connection.execute(FIND + "%s", [order[1]])
            found = await cursor.fetchone()
        finally:
            self.free.put_nowait(connection)
        return [described(order, found)]

    async def close(self):  # type: ignore[override]
        while not self.free.empty():
            await self.free.get_nowait().close()


class FromSqlite(AsyncFunction):
    """A library that blocks is asked in a thread."""

    def __init__(self, path):
        self.path = path

    def find(self, customer):
        with closing(sqlite3.connect(self.path)) as db:
            return db.execute(FIND + "?", [customer]).fetchone()

    async def async_invoke(self, order):
        return [described(order, await asyncio.to_thread(self.find, order[1]))]


def described(order, found):
    goods, customer = order
    return f"{goods} for {found[0]} in {found[1]}" if found else f"{goods} for nobody: {customer}?"


def fill(db, place):
    db.execute("DROP TABLE IF EXISTS customers_of_example")
    db.execute("CREATE TABLE customers_of_example (id integer PRIMARY KEY, name text, city text)")
    for row in CUSTOMERS:
        db.execute(f"INSERT INTO customers_of_example VALUES ({place}, {place}, {place})", row)
    db.commit()


def main(dsn, folder):
    lookup: AsyncFunction
    if dsn is not None:
        import psycopg

        with psycopg.connect(dsn) as db:
            fill(db, "%s")
        lookup = FromPostgres(dsn)
    else:
        path = str(Path(folder) / "customers.db")
        with closing(sqlite3.connect(path)) as db:
            fill(db, "?")
        lookup = FromSqlite(path)
    env = StreamExecutionEnvironment.get_execution_environment()
    orders = env.from_collection(ORDERS)
    # A question that fails is asked again up to three times; an order has ten seconds in all.
    again = AsyncRetryStrategy.fixed_delay(3, 200, None, has_exception_predicate)
    described_orders = AsyncDataStream.ordered_wait_with_retry(
        orders, lookup, Time.seconds(10), again, capacity=20
    )
    described_orders.set_parallelism(1).print().set_parallelism(1)
    env.execute("async enrichment")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1] if len(sys.argv) > 1 else None, folder)
