"""Late records: a first result, then corrections, and a side output for what is too late even for those.

The generator here says after every record how far time has come, so that it can be seen which record is late.
"""

from millstream.common import TimestampAssigner, Types, WatermarkStrategy
from millstream.common.watermark_strategy import WatermarkGenerator
from millstream.datastream import OutputTag, ProcessWindowFunction, StreamExecutionEnvironment
from millstream.datastream.window import TumblingEventTimeWindows

TOO_LATE = OutputTag("too late", Types.TUPLE([Types.STRING(), Types.INT()]))

# What, and in which second.
VOTES = [
    ("yes", 1),
    ("yes", 4),
    ("yes", 12),  # the first window is complete: its first result
    ("yes", 7),  # late, allowed: a correction
    ("yes", 31),  # the second window is complete; the first one has been kept for long enough
    ("yes", 2),  # too late
    ("yes", 15),  # the second window is kept until 40
    ("yes", 41),
    ("yes", 19),  # too late
]


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1] * 1000


class AfterEveryRecord(WatermarkGenerator):
    latest = 0

    def on_event(self, event, event_timestamp, output):
        self.latest = max(self.latest, event_timestamp)
        output.emit_watermark(self.latest - 1)


class Count(ProcessWindowFunction):
    def process(self, vote, context, votes):
        window = context.window()
        yield f"{window.start // 1000} s to {window.end // 1000} s: {len(list(votes))} {vote}"


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_generator(AfterEveryRecord).with_timestamp_assigner(Second())
results = (
    env.from_collection(VOTES)
    .assign_timestamps_and_watermarks(times)
    .key_by(0)
    .window(TumblingEventTimeWindows.of("10 s"))
    .allowed_lateness("20 s")
    .side_output_late_data(TOO_LATE)
    .process(Count())
)
results.print("result")
results.get_side_output(TOO_LATE).print("too late")
env.execute("late corrections")
