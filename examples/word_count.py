"""Word count over a text: the 15 lines of the README."""

from millstream.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)

text = ["the mill grinds grain", "the water turns the mill"]

(
    env.from_collection(text)
    .flat_map(str.split)
    .map(lambda word: (word, 1))
    .key_by(lambda pair: pair[0])
    .sum(1)
    .print()
)

env.execute("word count")
