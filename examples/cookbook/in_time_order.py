"""Records put into the order of their time, per key: each waits until none before it can be missing.

The watermark is three seconds behind, and so is the output. What comes later still goes to a side output.
"""

from millstream.common import TimestampAssigner, WatermarkStrategy
from millstream.common.watermark_strategy import WatermarkGenerator
from millstream.datastream import KeyedProcessFunction, OutputTag, StreamExecutionEnvironment
from millstream.datastream.state import MapStateDescriptor

LATE = OutputTag("late")
# Tram, stop, second.
STOPS = [
    ("tram 4", "Mill", 2),
    ("tram 4", "Weir", 5),
    ("tram 4", "Bridge", 4),
    ("tram 4", "Harbour", 12),
    ("tram 4", "Market", 6),  # more than three seconds late
]


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2] * 1000


class ThreeSecondsBehind(WatermarkGenerator):
    """As `for_bounded_out_of_orderness("3 s")`, but after every record: so it is seen which one is late."""

    latest = 0

    def on_event(self, event, event_timestamp, output):
        self.latest = max(self.latest, event_timestamp)
        output.emit_watermark(self.latest - 3001)


class Sort(KeyedProcessFunction):
    def open(self, ctx):
        self.waiting = ctx.get_map_state(MapStateDescriptor("waiting"))

    def process_element(self, stop, ctx):
        time = ctx.timestamp()
        if time <= ctx.timer_service().current_watermark():
            yield LATE, stop
        else:
            self.waiting[time] = [*(self.waiting[time] or []), stop]
            ctx.timer_service().register_event_time_timer(time)

    def on_timer(self, timestamp, ctx):
        yield from self.waiting[timestamp]
        self.waiting.remove(timestamp)


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_generator(ThreeSecondsBehind).with_timestamp_assigner(Second())
stops = env.from_collection(STOPS).assign_timestamps_and_watermarks(times).key_by(0).process(Sort())
stops.map(lambda stop: f"{stop[0]} at {stop[1]}, second {stop[2]}").print()
stops.get_side_output(LATE).print("late")
env.execute("in time order")
