"""Orders in many currencies, enriched with rates that every subtask has: broadcast state.

Orders are partitioned by their number, so each subtask may meet any currency and needs all rates. Rates and orders that
are there at the same moment meet (rule 50); but a rate may come later than orders that need it, so an order without one
waits in keyed state until its rate is there.
"""

from millstream.datastream import KeyedBroadcastProcessFunction, StreamExecutionEnvironment
from millstream.datastream.state import MapStateDescriptor, ValueStateDescriptor

RATES = MapStateDescriptor("rates")
WAITING = ValueStateDescriptor("waiting")

ORDERS = [(1, 20, "EUR"), (2, 30, "CHF"), (3, 5000, "JPY"), (4, 8, "CHF"), (5, 7, "EUR")]
IN_EURO = [("EUR", 1.0), ("CHF", 1.05), ("JPY", 0.006)]


class ToEuro(KeyedBroadcastProcessFunction):
    def open(self, ctx):
        self.waiting = ctx.get_state(WAITING)

    def process_element(self, order, ctx):
        rate = ctx.get_broadcast_state(RATES).get(order[2])
        if rate is None:
            self.waiting.update(order)
        else:
            yield self.converted(order, rate)

    def process_broadcast_element(self, rate, ctx):
        ctx.get_broadcast_state(RATES).put(*rate)
        results = []

        def convert(number, waiting):
            order = waiting.value()
            if order is not None and order[2] == rate[0]:
                waiting.clear()
                results.append(self.converted(order, rate[1]))

        ctx.apply_to_keyed_state(WAITING, convert)
        return results

    @staticmethod
    def converted(order, rate):
        return f"order {order[0]}: {order[1]} {order[2]} = {order[1] * rate:.2f} EUR"


env = StreamExecutionEnvironment.get_execution_environment()
orders = env.from_collection(ORDERS).key_by(lambda order: order[0])
rates = env.from_collection(IN_EURO).broadcast(RATES)
orders.connect(rates).process(ToEuro()).print()
env.execute("enrich by broadcast")
