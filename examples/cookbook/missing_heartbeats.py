"""Machines that fall silent: told when a heartbeat is missing for 30 seconds, and when the machine is back.

Each beat sets a timer and takes back the one before. Time is event time: it passes while any machine speaks, and at
the end of a list, as here. If all machines fall silent at once, nothing is told. Timers of the clock notice that, too
(`register_processing_time_timer`), but also every pause of the input itself.
"""

from millstream.common import TimestampAssigner, Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor

LIMIT = 30_000
# Machine, second.
BEATS = [("pump", s) for s in range(0, 120, 10)] + [("fan", s) for s in (0, 10, 20, 70, 80)]


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1] * 1000


class Watch(KeyedProcessFunction):
    def open(self, ctx):
        self.due = ctx.get_state(ValueStateDescriptor("due", Types.LONG()))
        self.lost = ctx.get_state(ValueStateDescriptor("lost", Types.BOOLEAN()))

    def process_element(self, beat, ctx):
        due = self.due.value()
        if due is not None:
            ctx.timer_service().delete_event_time_timer(due)
            if ctx.timestamp() > due:  # the watermark, and so the timer, has not come so far
                yield from self.on_timer(due, ctx)
        if self.lost.value():
            yield f"second {beat[1]}: {beat[0]} is back"
            self.lost.clear()
        self.due.update(ctx.timestamp() + LIMIT)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + LIMIT)

    def on_timer(self, timestamp, ctx):
        self.due.clear()
        self.lost.update(True)
        yield f"second {timestamp // 1000}: nothing from {ctx.get_current_key()} for 30 s"


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
beats = env.from_collection(sorted(BEATS, key=lambda beat: beat[1]))
beats.assign_timestamps_and_watermarks(times).key_by(0).process(Watch()).print()
env.execute("missing heartbeats")
