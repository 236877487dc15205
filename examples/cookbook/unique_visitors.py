"""How many different visitors a page has in each hour: a set per window, of which only the size goes on.

The set is exact and is kept until its hour is over: fine for some 100,000 visitors per page and hour. Beyond, put a
sketch (HyperLogLog) into the accumulator; nothing else changes.
"""

from millstream.common import TimestampAssigner, WatermarkStrategy
from millstream.datastream import (
    AggregateFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.window import TumblingEventTimeWindows

# Visitor, page, minute.
VISITS = [
    ("ann", "/home", 3),
    ("ben", "/home", 10),
    ("ann", "/home", 15),
    ("ann", "/prices", 16),
    ("cleo", "/home", 59),
    ("ann", "/home", 61),
    ("ann", "/home", 65),
]


class Minute(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2] * 60_000


class Distinct(AggregateFunction):
    def create_accumulator(self):
        return set()

    def add(self, visit, visitors):
        visitors.add(visit[0])
        return visitors

    def get_result(self, visitors):
        return len(visitors)

    def merge(self, a, b):
        return a | b


class WithHour(ProcessWindowFunction):
    def process(self, page, context, counts):
        for count in counts:  # a single one
            yield f"hour {context.window().start // 3_600_000}, {page}: {count}"


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Minute())
visits = env.from_collection(VISITS).assign_timestamps_and_watermarks(times).key_by(lambda v: v[1])
visits.window(TumblingEventTimeWindows.of("1 h")).aggregate(Distinct(), WithHour()).print()
env.execute("unique visitors")
