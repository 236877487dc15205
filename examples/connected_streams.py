"""Two streams, one function: a stream of rules decides which words of another stream pass.

There is no order between the two inputs of a connected stream, so the function keeps what came too early. It keeps it
in state, which belongs to the current key and is part of every checkpoint; attributes are neither.
"""

from millstream.datastream import KeyedCoProcessFunction, StreamExecutionEnvironment
from millstream.datastream.state import ListStateDescriptor, ValueStateDescriptor


class Gate(KeyedCoProcessFunction):
    def open(self, runtime_context):
        self.allowed = runtime_context.get_state(ValueStateDescriptor("allowed"))
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting"))

    def process_element1(self, word, ctx):
        if self.allowed.value():
            yield f"{word} passes"
        else:
            self.waiting.add(word)

    def process_element2(self, rule, ctx):
        self.allowed.update(True)
        for word in self.waiting.get():
            yield f"{word} passes"
        self.waiting.clear()


env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_collection(["apple", "bread", "avocado", "cheese"])
rules = env.from_collection(["a", "c"])

words.connect(rules).key_by(lambda word: word[0], lambda rule: rule).process(Gate()).print()

env.execute("connected streams")
