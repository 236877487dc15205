"""Orders and their payments: two streams that belong together, and what to do when one side does not come.

An interval join gives pairs, so an order that is never paid gives nothing. Here a timer speaks for it, a quarter of
an hour after the order. Which of the two arrives first is open, so either waits for the other; the timestamps decide
whether a payment came in time.
"""

from millstream.common import TimestampAssigner, WatermarkStrategy
from millstream.datastream import KeyedCoProcessFunction, StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor

MINUTE = 60_000
# Order, sum or payer, minute.
ORDERS = [("order 1", 20, 0), ("order 2", 35, 2), ("order 3", 8, 5), ("order 4", 12, 40)]
PAYMENTS = [("order 2", "ann", 4), ("order 1", "ben", 19), ("order 4", "cleo", 41)]


class Minute(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2] * MINUTE


class Match(KeyedCoProcessFunction):
    def open(self, ctx):
        self.order = ctx.get_state(ValueStateDescriptor("order"))
        self.payment = ctx.get_state(ValueStateDescriptor("payment"))

    def process_element1(self, order, ctx):
        self.order.update(order)
        yield from self.matched(ctx)

    def process_element2(self, payment, ctx):
        self.payment.update(payment)
        yield from self.matched(ctx)

    def matched(self, ctx):
        order, payment = self.order.value(), self.payment.value()
        if order and payment and payment[2] - order[2] <= 15:
            yield f"{order[0]}: paid by {payment[1]} after {payment[2] - order[2]} min"
            self.order.clear()
            self.payment.clear()
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 15 * MINUTE)

    def on_timer(self, timestamp, ctx):
        order, payment = self.order.value(), self.payment.value()
        if order and (order[2] + 15) * MINUTE == timestamp:
            yield f"{order[0]}: not paid within 15 min"
            self.order.clear()
        if payment and (payment[2] + 15) * MINUTE == timestamp:
            self.payment.clear()  # of no order, or too late for it


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Minute())
orders = env.from_collection(ORDERS).assign_timestamps_and_watermarks(times)
payments = env.from_collection(PAYMENTS).assign_timestamps_and_watermarks(times)
orders.connect(payments).key_by(0, 0).process(Match()).print()
env.execute("unpaid orders")
