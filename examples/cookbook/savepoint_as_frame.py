"""The state of a running job as a frame: stop it with a savepoint, then ask pandas.

State with a declared type is read as it is. Without one it is a pickle, which is only read with `allow_pickle=True`.
`millstream.state.read` gives a Spark frame in the place of pandas'.
"""

import sys
import tempfile
import time
from pathlib import Path

import millstream.state
from millstream.common import Types
from millstream.datastream import KeyedProcessFunction, SourceFunction, StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor

# Customer, what was spent.
ORDERS = [("ann", 20), ("ben", 5), ("ann", 12), ("cleo", 40), ("ben", 8), ("ann", 3)]


class Shop(SourceFunction):
    """Gives the orders and then waits for more, as a shop does."""

    def run(self, ctx):
        for order in ORDERS:
            ctx.collect(order)
        while ctx.is_running():
            time.sleep(0.02)

    def cancel(self):
        pass


class Spent(KeyedProcessFunction):
    def open(self, ctx):
        self.total = ctx.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, order, ctx):
        self.total.update((self.total.value() or 0) + order[1])
        yield order[0], self.total.value()


folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
env = StreamExecutionEnvironment.get_execution_environment()
orders = env.add_source(Shop(), "shop").uid("shop")
orders.key_by(0).process(Spent()).uid("spent").print("spent")
client = env.execute_async("spending")
while (metrics := client.get_metrics()) is None or metrics.records < len(ORDERS):
    time.sleep(
        0.02
    )  # so that the savepoint holds all of them, and this example prints the same each time
path = client.stop_with_savepoint(False, str(folder / "savepoints")).result()

frame = millstream.state.read_pandas(path, "spent", "total")
print(frame.sort_values("value", ascending=False).to_string(index=False))
