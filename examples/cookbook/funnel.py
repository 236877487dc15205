"""A funnel: how many visits of a day came to each step of view, cart, address, paid.

A visit is a session: it ends after half an hour without an event. Its events may come in any order, so they are
sorted by their own time before the steps are followed. What came after a step that is missing does not count.
"""

from collections import Counter

from millstream.common import TimestampAssigner, WatermarkStrategy
from millstream.datastream import (
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows

STEPS = ["view", "cart", "address", "paid"]
# Who, what, and in which minute of the day.
EVENTS = [
    ("ann", "view", 0),
    ("ben", "view", 1),
    ("ann", "address", 4),
    ("ann", "cart", 3),  # came late
    ("ann", "paid", 6),
    ("cleo", "cart", 10),  # never viewed anything: a bookmark
    ("ben", "cart", 12),
    ("dan", "view", 20),
    ("ben", "view", 90),  # another visit
]


class Minute(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2] * 60_000


class StepsOfVisit(ProcessWindowFunction):
    def process(self, user, context, events):
        reached = 0
        for _, what, _ in sorted(events, key=lambda event: event[2]):
            reached += reached < len(STEPS) and what == STEPS[reached]
        yield reached


class Count(ProcessAllWindowFunction):
    def process(self, context, visits):
        counts = Counter(step for reached in visits for step in STEPS[:reached])
        yield ", ".join(f"{step} {counts[step]}" for step in STEPS)


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_bounded_out_of_orderness("5 min").with_timestamp_assigner(Minute())
events = env.from_collection(EVENTS).assign_timestamps_and_watermarks(times).key_by(0)
visits = events.window(EventTimeSessionWindows.with_gap("30 min")).process(StepsOfVisit())
visits.window_all(TumblingEventTimeWindows.of("1 d")).process(Count()).print()
env.execute("funnel")
