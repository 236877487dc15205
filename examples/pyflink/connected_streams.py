"""Matches orders with their payments, which come on another stream, before or after them."""

from pyflink.common import Types
from pyflink.datastream import (
    CoMapFunction,
    KeyedCoProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ReducingStateDescriptor, ValueStateDescriptor

ORDERS = [(1, "tea"), (2, "milk"), (3, "bread"), (4, "eggs")]
PAYMENTS = [(3, 4.5), (1, 2.0), (4, 1.5), (1, 0.5)]


class Match(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.order = runtime_context.get_state(ValueStateDescriptor("order", Types.STRING()))
        self.paid = runtime_context.get_reducing_state(
            ReducingStateDescriptor("paid", lambda a, b: a + b, Types.DOUBLE())
        )
        self.payments = runtime_context.get_state(ValueStateDescriptor("payments", Types.INT()))

    def process_element1(self, value, ctx: KeyedCoProcessFunction.Context):
        self.order.update(value[1])
        yield from self.complete(ctx.get_current_key())

    def process_element2(self, value, ctx: KeyedCoProcessFunction.Context):
        self.paid.add(value[1])
        self.payments.update((self.payments.value() or 0) + 1)
        yield from self.complete(ctx.get_current_key())

    def complete(self, number: int):
        # Order 1 is paid in two parts.
        expected = 2 if number == 1 else 1
        if self.order.value() is not None and self.payments.value() == expected:
            yield f"order {number}, {self.order.value()}: paid {self.paid.get()}"


class Label(CoMapFunction):
    def map1(self, value):
        return f"order {value[0]} is for {value[1]}"

    def map2(self, value):
        return f"payment for {value[0]}"


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    orders = env.from_collection(ORDERS, type_info=Types.TUPLE([Types.INT(), Types.STRING()]))
    payments = env.from_collection(PAYMENTS, type_info=Types.TUPLE([Types.INT(), Types.DOUBLE()]))
    both = orders.connect(payments)
    both.map(Label(), output_type=Types.STRING()).print("seen")
    both.key_by(lambda order: order[0], lambda payment: payment[0], Types.INT()).process(
        Match(), output_type=Types.STRING()
    ).print("matched")
    env.execute("orders and payments")


if __name__ == "__main__":
    main()
