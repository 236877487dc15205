"""Windows of so many records: three by three, and the last four after every second record."""

from collections.abc import Iterable

from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment, WindowFunction
from pyflink.datastream.window import CountWindow

SALES = [
    ("tea", 3), ("tea", 4), ("milk", 2), ("tea", 5), ("milk", 6), ("tea", 1),
    ("milk", 1), ("tea", 9), ("milk", 8), ("tea", 2), ("milk", 7), ("tea", 6),
]  # fmt: skip


class Listed(WindowFunction[tuple, tuple, str, CountWindow]):
    def apply(self, key: str, window: CountWindow, inputs: Iterable[tuple]):
        amounts = [amount for _, amount in inputs]
        return [(key, sum(amounts), "+".join(map(str, amounts)))]


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    result = Types.TUPLE([Types.STRING(), Types.INT(), Types.STRING()])
    sales = env.from_collection(SALES, type_info=pair)
    products = sales.key_by(lambda sale: sale[0], key_type=Types.STRING())
    products.count_window(3).reduce(
        lambda one, other: (one[0], one[1] + other[1]), output_type=pair
    ).print("by three")
    products.count_window(4, 2).apply(Listed(), result).print("last four")
    env.execute("sales")


if __name__ == "__main__":
    main()
