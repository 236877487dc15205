"""Mean temperature per sensor and ten seconds, of readings that come up to five seconds late."""

from collections.abc import Iterable

from pyflink.common import Duration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    AggregateFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.window import TimeWindow, TumblingEventTimeWindows

READINGS = [
    ("roof", 1_000, 20.0),
    ("cellar", 2_000, 8.0),
    ("roof", 6_000, 22.0),
    ("roof", 4_000, 21.0),
    ("roof", 12_000, 25.0),
    ("cellar", 9_000, 10.0),
    ("cellar", 14_000, 9.0),
    ("roof", 10_000, 24.0),
    ("roof", 27_000, 18.5),
]


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp: int) -> int:
        return value[1]


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] + value[2], accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, a: tuple[float, int], b: tuple[float, int]) -> tuple[float, int]:
        return a[0] + b[0], a[1] + b[1]


class Describe(ProcessWindowFunction):
    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[float]
    ) -> Iterable[tuple]:
        window: TimeWindow = context.window()
        for mean in elements:
            yield key, window.start, window.end, mean


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_seconds(5)
    ).with_timestamp_assigner(EventTime())
    readings = env.from_collection(
        READINGS, type_info=Types.TUPLE([Types.STRING(), Types.LONG(), Types.DOUBLE()])
    )
    means = (
        readings.assign_timestamps_and_watermarks(strategy)
        .key_by(lambda reading: reading[0], key_type=Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .aggregate(
            Mean(),
            window_function=Describe(),
            accumulator_type=Types.TUPLE([Types.DOUBLE(), Types.INT()]),
            output_type=Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.DOUBLE()]),
        )
    )
    means.print()
    env.execute("mean temperature")


if __name__ == "__main__":
    main()
