"""A day's takings while the day lasts: the window of a day, told every six hours and at its end.

A window fires when it ends. This trigger makes it fire earlier, too, with what is there: a result replaces the one
before.
"""

from millstream.common import TimestampAssigner, WatermarkStrategy
from millstream.common.watermark_strategy import WatermarkGenerator
from millstream.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from millstream.datastream.window import ContinuousEventTimeTrigger, TumblingEventTimeWindows

HOUR = 3_600_000
# Shop, takings, hour.
SALES = [("mill shop", 10 + hour, hour) for hour in range(1, 24, 4)]


class Hour(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2] * HOUR


class AfterEveryRecord(WatermarkGenerator):
    """Says after each record that its time has come. Strategies from the shelf are asked less often: a list as short as
    this one would be over before the first early result."""

    def on_event(self, event, event_timestamp, output):
        output.emit_watermark(event_timestamp)


class Takings(ProcessWindowFunction):
    def process(self, shop, context, totals):
        window = context.window()
        over = context.current_watermark() >= window.max_timestamp()
        for _, total, last in totals:  # a single one, reduce has added them up
            day = f"{shop}, day {window.start // (24 * HOUR) + 1}: {total}"
            yield day if over else f"{day} so far, at {last}:00"


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_generator(AfterEveryRecord).with_timestamp_assigner(Hour())
sales = env.from_collection(SALES).assign_timestamps_and_watermarks(times).key_by(0)
windows = sales.window(TumblingEventTimeWindows.of("1 d"))
windows = windows.trigger(ContinuousEventTimeTrigger.of("6 h"))
windows.reduce(lambda a, b: (a[0], a[1] + b[1], b[2]), Takings()).print()
env.execute("early results")
