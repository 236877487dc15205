"""Fraud: a thief tries a card with a small amount and takes a large one within the next minute.

State remembers when the small payment was made. The timestamps decide whether the large one came in time; the timer
frees the state of cards that nobody tried.
"""

from millstream.common import TimestampAssigner, Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor

# Card, amount, second.
PAYMENTS = [
    ("card 1", 0.50, 0),
    ("card 2", 0.90, 5),
    ("card 1", 900.00, 30),  # within a minute
    ("card 3", 750.00, 40),  # nothing small before
    ("card 2", 12.00, 50),  # neither small nor large: another payment in between
    ("card 2", 800.00, 55),
    ("card 3", 0.10, 60),
    ("card 3", 600.00, 121),  # more than a minute later
    ("card 1", 0.20, 200),
    ("card 1", 501.00, 260),  # exactly a minute
]


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2] * 1000


class Detector(KeyedProcessFunction):
    def open(self, ctx):
        self.tried = ctx.get_state(ValueStateDescriptor("tried", Types.LONG()))

    def process_element(self, payment, ctx):
        card, amount, second = payment
        tried = self.tried.value()
        if tried is not None:
            if amount > 500 and ctx.timestamp() <= tried + 60_000:
                yield f"{card}: {amount:.2f} at second {second}, tried at second {tried // 1000}"
            ctx.timer_service().delete_event_time_timer(tried + 60_000)
            self.tried.clear()
        if amount < 1:
            self.tried.update(ctx.timestamp())
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + 60_000)

    def on_timer(self, timestamp, ctx):
        self.tried.clear()


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
payments = env.from_collection(PAYMENTS).assign_timestamps_and_watermarks(times)
payments.key_by(0).process(Detector()).print()
env.execute("fraud detection")
