"""Sessions: the clicks of a user belong together until there is none for half a minute.

A session's window ends half a minute after its last click.
"""

from millstream.common import TimestampAssigner, WatermarkStrategy
from millstream.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from millstream.datastream.window import EventTimeSessionWindows

# Who, and in which second; not in order.
CLICKS = [
    ("ann", 0),
    ("ben", 5),
    ("ann", 40),
    ("ann", 20),  # late: it makes one session of two
    ("ben", 34),
    ("ann", 100),
    ("ben", 90),
    ("ann", 105),
]


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1] * 1000


class Session(ProcessWindowFunction):
    def process(self, user, context, clicks):
        window = context.window()
        start, end = window.start // 1000, window.end // 1000
        yield f"{user}: from {start} s to {end} s, clicks: {len(list(clicks))}"


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_bounded_out_of_orderness("20 s").with_timestamp_assigner(Second())
(
    env.from_collection(CLICKS)
    .assign_timestamps_and_watermarks(times)
    .key_by(0)
    .window(EventTimeSessionWindows.with_gap("30 s"))
    .process(Session())
    .print()
)
env.execute("session clicks")
