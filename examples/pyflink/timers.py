"""Sums what each account receives per minute, with timers of its own instead of windows."""

from pyflink.common import Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TimeDomain,
)
from pyflink.datastream.state import MapStateDescriptor

MINUTE = 60_000
TRANSFERS = [
    ("savings", 10, 1_000),
    ("wages", 700, 2_500),
    ("savings", 5, 59_999),
    ("savings", 7, 60_000),
    ("wages", 1, 130_000),
    ("savings", 8, 185_000),
]


class TransferTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class PerMinute(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.sums = runtime_context.get_map_state(
            MapStateDescriptor("sums", Types.LONG(), Types.INT())
        )

    def process_element(self, value, ctx: KeyedProcessFunction.Context):
        end = ctx.timestamp() // MINUTE * MINUTE + MINUTE - 1
        self.sums.put(end, (self.sums.get(end) or 0) + value[1])
        timers = ctx.timer_service()
        timers.register_event_time_timer(end)
        # A timer that is deleted again never fires.
        timers.register_event_time_timer(end + 1)
        timers.delete_event_time_timer(end + 1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext):
        assert ctx.time_domain() == TimeDomain.EVENT_TIME
        total = self.sums.get(timestamp)
        self.sums.remove(timestamp)
        yield ctx.get_current_key(), timestamp, total


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(TransferTime())
    transfers = env.from_collection(
        TRANSFERS, type_info=Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
    )
    transfers.assign_timestamps_and_watermarks(strategy).key_by(
        lambda transfer: transfer[0], key_type=Types.STRING()
    ).process(
        PerMinute(), output_type=Types.TUPLE([Types.STRING(), Types.LONG(), Types.INT()])
    ).print()
    env.execute("per minute")


if __name__ == "__main__":
    main()
