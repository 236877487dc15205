"""Smoke within ten minutes after a high temperature, per building: two streams, keyed state and event timers.

The order in which two streams arrive says nothing about what happened first. So every event waits in state for a timer
of its own time, and the timers fire in the order of event time. A further timer ends the wait for smoke.
"""

from millstream.common import TimestampAssigner, WatermarkStrategy
from millstream.datastream import KeyedCoProcessFunction, StreamExecutionEnvironment
from millstream.datastream.state import MapStateDescriptor, ValueStateDescriptor

MINUTE = 60_000
TEMPERATURES = [("mill", 0, 21), ("barn", 2, 64), ("mill", 3, 71), ("barn", 20, 66)]
SMOKE = [("mill", 1), ("mill", 9), ("mill", 11), ("barn", 13), ("barn", 28)]


class Minute(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1] * MINUTE


class HotThenSmoke(KeyedCoProcessFunction):
    def open(self, ctx):
        self.waiting = ctx.get_map_state(MapStateDescriptor("waiting"))
        self.hot_since = ctx.get_state(ValueStateDescriptor("hot since"))

    def process_element1(self, reading, ctx):
        if reading[2] > 60:
            self.keep("hot", ctx)

    def process_element2(self, smoke, ctx):
        self.keep("smoke", ctx)

    def keep(self, what, ctx):
        time = ctx.timestamp()
        self.waiting[time] = [*(self.waiting[time] or []), what]
        ctx.timer_service().register_event_time_timer(time)

    def on_timer(self, timestamp, ctx):
        if timestamp == (self.hot_since.value() or 0) + 10 * MINUTE:
            self.hot_since.clear()  # ten minutes without smoke
        events = self.waiting[timestamp] or []
        self.waiting.remove(timestamp)
        if "hot" in events:
            self.hot_since.update(timestamp)
            ctx.timer_service().register_event_time_timer(timestamp + 10 * MINUTE)
        hot_since = self.hot_since.value()
        if "smoke" in events and hot_since is not None:
            self.hot_since.clear()
            hot, smoke = hot_since // MINUTE, timestamp // MINUTE
            yield f"{ctx.get_current_key()}: hot at minute {hot}, smoke at minute {smoke}"


env = StreamExecutionEnvironment.get_execution_environment()
by_minute = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Minute())
temperatures = env.from_collection(TEMPERATURES).assign_timestamps_and_watermarks(by_minute)
smoke = env.from_collection(SMOKE).assign_timestamps_and_watermarks(by_minute)
temperatures.connect(smoke).key_by(0, 0).process(HotThenSmoke()).print()
env.execute("sensor alert")
