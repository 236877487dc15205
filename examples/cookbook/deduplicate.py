"""Events that may be delivered twice, each passed on once: an event's id is remembered for an hour.

The timestamps decide what is a copy; a timer frees the state, so that it does not grow for ever. The price: a copy
that comes more than an hour after the first one is taken for a new event.
"""

from millstream.common import TimestampAssigner, Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor

MINUTE = 60_000
# Id, what, and in which minute.
EVENTS = [
    ("e1", "order 17 placed", 0),
    ("e2", "order 18 placed", 2),
    ("e1", "order 17 placed", 3),  # sent again: no answer had come
    ("e3", "order 17 paid", 40),
    ("e2", "order 18 placed", 61),  # 59 minutes later: still known
    ("e1", "order 17 placed", 75),  # more than an hour later: forgotten
]


class Minute(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2] * MINUTE


class FirstOfEachId(KeyedProcessFunction):
    def open(self, ctx):
        self.known_until = ctx.get_state(ValueStateDescriptor("known until", Types.LONG()))

    def process_element(self, event, ctx):
        known_until = self.known_until.value()
        if known_until is None or ctx.timestamp() > known_until:
            self.known_until.update(ctx.timestamp() + 60 * MINUTE)
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + 60 * MINUTE)
            yield f"minute {event[2]}: {event[1]}"

    def on_timer(self, timestamp, ctx):
        if self.known_until.value() == timestamp:  # else the event came anew, and has another timer
            self.known_until.clear()


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Minute())
events = env.from_collection(EVENTS).assign_timestamps_and_watermarks(times)
events.key_by(lambda event: event[0]).process(FirstOfEachId()).print()
env.execute("deduplicate")
