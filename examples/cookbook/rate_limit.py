"""A rate limit per client: three requests at once, then one every ten seconds; what is more goes to a side output.

A bucket of tokens per client: it holds three, a request takes one, and every ten seconds one comes back. How many
there are is worked out when a request comes, so that no timer has to fill it. One timer empties the state of clients
that have been away for long enough to have a full bucket.
"""

from millstream.common import TimestampAssigner, Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, OutputTag, StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor

REFUSED = OutputTag("refused")
BURST, MS_PER_TOKEN = 3, 10_000
# Client, second.
REQUESTS = [("ann", s) for s in (0, 1, 2, 3, 12, 13, 60)] + [("ben", 61), ("ben", 62)]


class Second(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1] * 1000


class Limit(KeyedProcessFunction):
    def open(self, ctx):
        self.bucket = ctx.get_state(
            ValueStateDescriptor("bucket", Types.TUPLE([Types.DOUBLE(), Types.LONG()]))
        )

    def process_element(self, request, ctx):
        now = ctx.timestamp()
        tokens, since = self.bucket.value() or (float(BURST), now)
        tokens = min(float(BURST), tokens + (now - since) / MS_PER_TOKEN)
        if tokens < 1:
            yield REFUSED, request
        else:
            tokens -= 1
            yield request
        self.bucket.update((tokens, now))
        ctx.timer_service().register_event_time_timer(now + BURST * MS_PER_TOKEN)

    def on_timer(self, timestamp, ctx):
        bucket = self.bucket.value()
        if bucket is not None and bucket[1] + BURST * MS_PER_TOKEN == timestamp:
            self.bucket.clear()  # nothing since: it is full, as a new one is


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
requests = env.from_collection(REQUESTS).assign_timestamps_and_watermarks(times)
served = requests.key_by(0).process(Limit())
served.print("served")
served.get_side_output(REFUSED).print("refused")
env.execute("rate limit")
