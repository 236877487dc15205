"""Two things in which PyFlink differs from Flink itself; Millstream does what Flink does.

A result of a window has the window's last moment as its timestamp, in PyFlink that of the record that
made it fire. And a record for a side output that nobody reads is gone, in PyFlink it stays in the stream.
"""

from pyflink.common import Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.window import CountTrigger, TumblingEventTimeWindows

UNREAD = OutputTag("unread", Types.STRING())


class SecondField(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Size(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield f"{key} holds {len(list(elements))}"


class WithTime(ProcessFunction):
    def process_element(self, value, ctx):
        yield f"{value} at {ctx.timestamp()}"


class Divide(ProcessFunction):
    def process_element(self, value, ctx):
        if value % 2:
            yield UNREAD, f"odd {value}"
        else:
            yield f"even {value}"


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(SecondField())
    events = env.from_collection([("a", 1_000), ("a", 2_000), ("a", 3_000)], type_info=pair)
    early = (
        events.assign_timestamps_and_watermarks(strategy)
        .key_by(lambda event: event[0], key_type=Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .trigger(CountTrigger.of(2))
        .process(Size(), Types.STRING())
    )
    early.process(WithTime(), Types.STRING()).print("window")
    env.from_collection([1, 2, 3, 4], type_info=Types.INT()).process(Divide()).print("numbers")
    env.execute("differences")


if __name__ == "__main__":
    main()
