"""The three best-selling items of the last ten minutes, every five minutes.

First stage: count each item in sliding windows. Second stage: the counts of one window meet under its end as the key,
wait in state, and are ranked by a timer, which fires when the watermark says that all of them are there.
"""

from millstream.common import TimestampAssigner, WatermarkStrategy
from millstream.datastream import (
    KeyedProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import ListStateDescriptor
from millstream.datastream.window import SlidingEventTimeWindows

# One sale a minute.
ITEMS = "oats rye barley wheat oats corn rye oats wheat corn rye wheat rye corn oats".split()
SALES = [(item, 1, minute) for minute, item in enumerate(ITEMS)]


class Minute(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2] * 60_000


class WithWindow(ProcessWindowFunction):
    def process(self, item, context, totals):
        for _, count, _ in totals:  # a single one, reduce has added them up
            yield context.window().end, item, count


class Top3(KeyedProcessFunction):
    def open(self, ctx):
        self.counts = ctx.get_list_state(ListStateDescriptor("counts"))

    def process_element(self, value, ctx):
        self.counts.add(value[1:])
        ctx.timer_service().register_event_time_timer(ctx.get_current_key())

    def on_timer(self, timestamp, ctx):
        best = sorted(self.counts.get(), key=lambda pair: (-pair[1], pair[0]))[:3]
        self.counts.clear()
        yield f"until minute {timestamp // 60_000}: " + ", ".join(f"{i} {n}" for i, n in best)


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Minute())
sales = env.from_collection(SALES).assign_timestamps_and_watermarks(times).key_by(0)
windows = sales.window(SlidingEventTimeWindows.of("10 min", "5 min"))
counts = windows.reduce(lambda a, b: (a[0], a[1] + b[1], a[2]), WithWindow())
counts.key_by(0).process(Top3()).print()
env.execute("top 3 per window")
