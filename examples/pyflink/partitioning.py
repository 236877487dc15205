"""Who gets which record: custom partitions, rescale, rebalance, broadcast and a union of it all."""

from pyflink.common import Types, WatermarkStrategy
from pyflink.datastream import (
    MapFunction,
    Partitioner,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.number_seq import NumberSequenceSource


class ByRemainder(Partitioner):
    def partition(self, key: int, num_partitions: int) -> int:
        return key % num_partitions


class WithSubtask(MapFunction):
    def __init__(self, label: str):
        self.label = label

    def open(self, runtime_context: RuntimeContext):
        self.index = runtime_context.get_index_of_this_subtask()
        self.number = runtime_context.get_number_of_parallel_subtasks()

    def map(self, value):
        return f"{self.label} {value} in {self.index} of {self.number}"


class Named(MapFunction):
    def __init__(self, label: str):
        self.label = label

    def map(self, value):
        return f"{self.label} {value}"


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    numbers = env.from_source(
        NumberSequenceSource(1, 8), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
    )
    custom = numbers.partition_custom(ByRemainder(), lambda number: number // 2).map(
        WithSubtask("custom"), output_type=Types.STRING()
    )
    everywhere = (
        numbers.filter(lambda number: number > 6)
        .broadcast()
        .map(WithSubtask("broadcast"), output_type=Types.STRING())
    )
    spread = numbers.rescale().map(Named("rescaled"), output_type=Types.STRING())
    shuffled = numbers.shuffle().map(Named("shuffled"), output_type=Types.STRING())
    balanced = numbers.rebalance().map(Named("balanced"), output_type=Types.STRING())
    custom.union(everywhere, spread, shuffled, balanced).print()
    env.execute("partitioning")


if __name__ == "__main__":
    main()
