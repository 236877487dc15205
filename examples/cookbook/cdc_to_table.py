"""Changes of a database (CDC) applied to a table elsewhere: inserts, updates and deletes, each row as it was last.

Changes may come twice or overtaken: keyed state has the number of the last one and drops what is not newer. The sink
is at-least-once; its statements overwrite, so that one that comes again changes nothing. SQLite stands for the table
here. For a server there is `PostgresSink.build_upsert`, which takes no deletes: give it a column that says so.
"""

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from millstream.common import Types
from millstream.datastream import KeyedProcessFunction, SinkFunction, StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor

# Number in the log, operation (c, u, d), customer, city.
CHANGES = [
    (101, "c", "ann", "Lyon"),
    (102, "c", "ben", "Oslo"),
    (104, "u", "ann", "Bonn"),
    (103, "u", "ann", "Paris"),  # overtaken
    (105, "d", "ben", None),
    (102, "c", "ben", "Oslo"),  # sent again, after the delete
    (106, "c", "cleo", "Rome"),
]
PATH = str(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "customers.db")


class Newer(KeyedProcessFunction):
    def open(self, ctx):
        self.last = ctx.get_state(ValueStateDescriptor("last", Types.LONG()))

    def process_element(self, change, ctx):
        if change[0] > (self.last.value() or 0):
            self.last.update(change[0])
            yield change


class Apply(SinkFunction):
    def invoke(self, change, context):
        _, operation, customer, city = change
        with closing(sqlite3.connect(PATH)) as table, table:
            if operation == "d":
                table.execute("DELETE FROM customers WHERE name = ?", [customer])
            else:
                table.execute("REPLACE INTO customers VALUES (?, ?)", [customer, city])


with closing(sqlite3.connect(PATH)) as table:
    table.execute("CREATE TABLE customers (name text PRIMARY KEY, city text)")
env = StreamExecutionEnvironment.get_execution_environment()
changes = env.from_collection(CHANGES).key_by(lambda change: change[2])
changes.process(Newer()).uid("newer").add_sink(Apply())
env.execute("customers")
with closing(sqlite3.connect(PATH)) as table:
    print(*table.execute("SELECT name, city FROM customers ORDER BY name"), sep="\n")
