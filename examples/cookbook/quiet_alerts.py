"""Alerts that nobody mutes: the first one of a machine at once, then at most one summary every ten minutes.

The first alert begins ten quiet minutes, in which further ones are counted. At their end there is a summary and
another ten begin; with nothing to tell, the machine is forgotten, and its next alert is a first one again. A timer
ends them, or an alert that comes before it: watermarks are behind the records.
"""

from millstream.common import TimestampAssigner, Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor

MINUTE = 60_000
# Machine, what, minute.
ALERTS = [("press", "hot", m) for m in (0, 1, 2, 7, 12, 45)] + [("saw", "jammed", 46)]
QUIET = ValueStateDescriptor("quiet", Types.TUPLE([Types.LONG(), Types.INT()]))


class Minute(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2] * MINUTE


class Summarize(KeyedProcessFunction):
    def open(self, ctx):
        self.quiet = ctx.get_state(QUIET)  # until when, and how many came meanwhile

    def process_element(self, alert, ctx):
        yield from self.ended(ctx.timestamp(), ctx)
        quiet = self.quiet.value()
        if quiet is not None:
            self.quiet.update((quiet[0], quiet[1] + 1))
        else:
            yield f"minute {alert[2]}: {alert[0]} is {alert[1]}"
            self.begin(ctx.timestamp(), ctx)

    def on_timer(self, timestamp, ctx):
        return self.ended(timestamp, ctx)

    def begin(self, now, ctx):
        self.quiet.update((now + 10 * MINUTE, 0))
        ctx.timer_service().register_event_time_timer(now + 10 * MINUTE)

    def ended(self, now, ctx):
        while (quiet := self.quiet.value()) is not None and quiet[0] <= now:
            self.quiet.clear()
            if quiet[1]:
                yield f"minute {quiet[0] // MINUTE}: {ctx.get_current_key()}, {quiet[1]} more"
                self.begin(quiet[0], ctx)


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Minute())
alerts = env.from_collection(ALERTS).assign_timestamps_and_watermarks(times)
alerts.key_by(0).process(Summarize()).print()
env.execute("quiet alerts")
