"""Orders with the price that held when they were made: a table whose rows change slowly, kept in state.

Prices and orders are two streams, and either may be ahead of the other. So an order waits for a timer of its own
time: when that fires, the watermark of both streams has passed it, and every price from before is there. Prices that
no order can need any more are removed then.
"""

from millstream.common import TimestampAssigner, WatermarkStrategy
from millstream.datastream import KeyedCoProcessFunction, StreamExecutionEnvironment
from millstream.datastream.state import MapStateDescriptor

MINUTE = 60_000
# Goods, price from this minute on.
PRICES = [("oats", 3.00, 0), ("rye", 2.50, 0), ("oats", 3.20, 10), ("oats", 2.90, 30)]
# Goods, kilos, minute.
ORDERS = [("oats", 2, 5), ("oats", 2, 10), ("rye", 4, 12), ("oats", 1, 35), ("corn", 1, 36)]


class Minute(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2] * MINUTE


class Priced(KeyedCoProcessFunction):
    def open(self, ctx):
        self.prices = ctx.get_map_state(MapStateDescriptor("prices"))
        self.orders = ctx.get_map_state(MapStateDescriptor("orders"))

    def process_element1(self, price, ctx):
        self.prices[ctx.timestamp()] = price[1]

    def process_element2(self, order, ctx):
        time = ctx.timestamp()
        self.orders[time] = [*(self.orders[time] or []), order]
        ctx.timer_service().register_event_time_timer(time)

    def on_timer(self, timestamp, ctx):
        begun = sorted(since for since in self.prices if since <= timestamp)
        price = self.prices[begun[-1]] if begun else None
        for goods, kilos, minute in self.orders[timestamp]:
            worth = f"{kilos * price:.2f}" if price else "no price"
            yield f"minute {minute}: {kilos} kg of {goods}, {worth}"
        self.orders.remove(timestamp)
        for since in begun[:-1]:
            self.prices.remove(since)


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Minute())
prices = env.from_collection(PRICES).assign_timestamps_and_watermarks(times)
orders = env.from_collection(ORDERS).assign_timestamps_and_watermarks(times)
prices.connect(orders).key_by(0, 0).process(Priced()).print()
env.execute("price versions")
