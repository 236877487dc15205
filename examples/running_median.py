"""The median per minute: a function that needs all records of a window at once."""

from statistics import median

from millstream.common import TimestampAssigner, WatermarkStrategy
from millstream.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from millstream.datastream.window import TumblingEventTimeWindows

# Server, response time in milliseconds, second.
RESPONSES = [
    ("a", 120, 1),
    ("b", 80, 4),
    ("a", 95, 20),
    ("a", 3000, 41),  # an outlier, which an average would follow
    ("b", 90, 59),
    ("a", 110, 61),
    ("a", 100, 58),  # late, but it belongs to the first minute
    ("b", 70, 75),
    ("a", 130, 90),
]


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2] * 1000


class Median(ProcessWindowFunction):
    def process(self, server, context, responses):
        times = [response[1] for response in responses]
        minute = context.window().start // 60_000
        yield f"server {server}, minute {minute}: median {median(times):g} ms of {len(times)}"


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_bounded_out_of_orderness("5 s").with_timestamp_assigner(Second())
(
    env.from_collection(RESPONSES)
    .assign_timestamps_and_watermarks(times)
    .key_by(0)
    .window(TumblingEventTimeWindows.of("1 min"))
    .process(Median())
    .print()
)
env.execute("running median")
