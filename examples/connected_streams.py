"""Two streams, one function: a stream of rules decides which words of another stream pass.

There is no order between the two inputs of a connected stream, so the function keeps what came too early.
"""

from millstream.datastream import KeyedCoProcessFunction, StreamExecutionEnvironment


class Gate(KeyedCoProcessFunction):
    def open(self, runtime_context):
        self.allowed, self.waiting = set(), {}

    def process_element1(self, word, ctx):
        key = ctx.get_current_key()
        if key in self.allowed:
            yield f"{word} passes"
        else:
            self.waiting.setdefault(key, []).append(word)

    def process_element2(self, rule, ctx):
        key = ctx.get_current_key()
        self.allowed.add(key)
        for word in self.waiting.pop(key, []):
            yield f"{word} passes"


env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_collection(["apple", "bread", "avocado", "cheese"])
rules = env.from_collection(["a", "c"])

words.connect(rules).key_by(lambda word: word[0], lambda rule: rule).process(Gate()).print()

env.execute("connected streams")
