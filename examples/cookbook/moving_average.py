"""Moving averages: the mean of the last three minutes, every minute.

Windows overlap, so each reading counts in three of them. A window keeps a sum and a number, not its readings; the
second function only adds what the first cannot know: key and window.
"""

from millstream.common import TimestampAssigner, WatermarkStrategy
from millstream.datastream import (
    AggregateFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.window import SlidingEventTimeWindows

# Sensor, degrees, second.
OVEN = [("oven", 180 + 4 * n, 180 + 20 * n) for n in range(12)]
READINGS = [*OVEN, ("cellar", 9, 210), ("cellar", 11, 280)]


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2] * 1000


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, reading, accumulator):
        return accumulator[0] + reading[1], accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


class WithWindow(ProcessWindowFunction):
    def process(self, sensor, context, means):
        window = context.window()
        for mean in means:  # a single one
            yield f"{sensor}, minute {window.start // 60_000} to {window.end // 60_000}: {mean:.1f}"


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_bounded_out_of_orderness("4 min").with_timestamp_assigner(Second())
readings = env.from_collection(READINGS).assign_timestamps_and_watermarks(times).key_by(0)
windows = readings.window(SlidingEventTimeWindows.of("3 min", "1 min"))
windows.aggregate(Mean(), WithWindow()).print()
env.execute("moving average")
