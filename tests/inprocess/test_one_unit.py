"""An operator that several places of the code lead to is still one operator."""

from millstream.api.async_functions import AsyncFunction
from millstream.api.functions import KeyedProcessFunction, MapFunction
from millstream.common import Time, WatermarkStrategy
from millstream.datastream import AsyncDataStream
from tests.support import collect, environment, keeping

OPENED: list[str] = []


class NowAndAtTheEnd(KeyedProcessFunction):
    """Emits each record when it comes and once more when time ends: at two places of the generated code."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value)
        yield "element"

    def on_timer(self, timestamp, ctx):
        yield "timer"


def twice(env):
    stamped = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Itself())
    source = env.from_collection([7]).assign_timestamps_and_watermarks(stamped)
    return source.key_by(lambda v: 0).process(NowAndAtTheEnd())


class Itself:
    def extract_timestamp(self, value, record_timestamp):
        return value


class Asks(AsyncFunction):
    def open(self, runtime_context):
        OPENED.append("open")

    async def async_invoke(self, value):
        return [value, value]


def test_an_asynchronous_function_behind_timers_and_elements_is_opened_once():
    OPENED.clear()
    asked = AsyncDataStream.ordered_wait(twice(environment()), Asks(), Time.seconds(9))
    assert collect(asked) == ["element", "element", "timer", "timer"]
    assert OPENED == ["open"]


class Where(MapFunction):
    def open(self, runtime_context):
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        return self.subtask


def test_rebalance_takes_turns_over_timers_and_elements():
    env = environment()
    with keeping() as kept:
        kept.add("where", twice(env).rebalance().map(Where()).set_parallelism(2))
        env.execute()
        assert sorted(kept.values("where")) == [0, 1]
