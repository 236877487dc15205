"""Counts words as they come: one line for every word, with its count so far."""

from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment

LINES = [
    "the mill turns while the stream runs",
    "the stream runs dry and the mill stands",
    "rain fills the stream",
]


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    lines = env.from_collection(LINES, type_info=Types.STRING())
    counts = (
        lines.flat_map(lambda line: line.split(), output_type=Types.STRING())
        .map(lambda word: (word, 1), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
        .key_by(lambda pair: pair[0], key_type=Types.STRING())
        .reduce(lambda one, other: (one[0], one[1] + other[1]))
    )
    counts.print()
    env.execute("word count")


if __name__ == "__main__":
    main()
