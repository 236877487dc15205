"""Remembers three things about each customer, in keyed state that expires after a day."""

from pyflink.common import Time, Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)

ORDERS = [
    ("ann", "tea", 4),
    ("bob", "milk", 2),
    ("ann", "bread", 3),
    ("ann", "tea", 5),
    ("bob", "eggs", 6),
    ("cid", "tea", 1),
    ("bob", "milk", 2),
]


class Basket(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        ttl = (
            StateTtlConfig.new_builder(Time.days(1))
            .set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)
            .set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)
            .build()
        )
        total = ValueStateDescriptor("total", Types.INT())
        spent = MapStateDescriptor("spent per product", Types.STRING(), Types.INT())
        order = ListStateDescriptor("products in order", Types.STRING())
        for descriptor in (total, spent, order):
            descriptor.enable_time_to_live(ttl)
        self.total = runtime_context.get_state(total)
        self.spent = runtime_context.get_map_state(spent)
        self.order = runtime_context.get_list_state(order)

    def process_element(self, value, ctx: KeyedProcessFunction.Context):
        customer, product, price = value
        self.total.update((self.total.value() or 0) + price)
        known = self.spent.get(product) if self.spent.contains(product) else 0
        self.spent.put(product, known + price)
        self.order.add(product)
        products = "+".join(self.order.get())
        yield f"{customer}: {self.total.value()} in all, {known + price} for {product}, {products}"


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    orders = env.from_collection(
        ORDERS, type_info=Types.TUPLE([Types.STRING(), Types.STRING(), Types.INT()])
    )
    orders.key_by(lambda order: order[0], key_type=Types.STRING()).process(
        Basket(), output_type=Types.STRING()
    ).print()
    env.execute("baskets")


if __name__ == "__main__":
    main()
