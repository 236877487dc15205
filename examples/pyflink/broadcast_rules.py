"""Payments are judged by limits that arrive on another stream, as broadcast state.

There is no order between the two streams, so a payment waits in keyed state for a timer: event
time does not move before the stream of limits has ended.
"""

from pyflink.common import Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedBroadcastProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.state import ListStateDescriptor, MapStateDescriptor

LIMITS = [("EUR", 100), ("USD", 120), ("EUR", 90)]
PAYMENTS = [
    ("ann", "EUR", 95, 1_000),
    ("bob", "USD", 95, 2_000),
    ("ann", "EUR", 12, 3_000),
    ("bob", "USD", 130, 4_000),
    ("cid", "GBP", 999, 5_000),
]
limits_state = MapStateDescriptor("limits", Types.STRING(), Types.INT())


class PaymentTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[3]


class Judge(KeyedBroadcastProcessFunction):
    def open(self, runtime_context):
        kind = Types.TUPLE([Types.STRING(), Types.STRING(), Types.INT(), Types.LONG()])
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", kind))

    def process_element(self, value, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext):
        self.waiting.add(value)
        ctx.timer_service().register_event_time_timer(ctx.timestamp())

    def process_broadcast_element(self, value, ctx: KeyedBroadcastProcessFunction.Context):
        currency, limit = value
        ctx.get_broadcast_state(limits_state).put(currency, limit)

    def on_timer(self, timestamp, ctx: KeyedBroadcastProcessFunction.OnTimerContext):
        limits = ctx.get_broadcast_state(limits_state)
        for name, currency, amount, time in self.waiting.get():
            if time != timestamp:
                continue
            limit = limits.get(currency)
            if limit is None:
                yield f"{name}: no limit for {currency}"
            elif amount > limit:
                yield f"{name}: {amount} {currency} is over the limit of {limit}"
            else:
                yield f"{name}: {amount} {currency} passes"


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    limits = env.from_collection(
        LIMITS, type_info=Types.TUPLE([Types.STRING(), Types.INT()])
    ).broadcast(limits_state)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(PaymentTime())
    payments = env.from_collection(
        PAYMENTS,
        type_info=Types.TUPLE([Types.STRING(), Types.STRING(), Types.INT(), Types.LONG()]),
    ).assign_timestamps_and_watermarks(strategy)
    keyed = payments.key_by(lambda payment: payment[0], key_type=Types.STRING())
    keyed.connect(limits).process(Judge(), output_type=Types.STRING()).print()
    env.execute("limits")


if __name__ == "__main__":
    main()
