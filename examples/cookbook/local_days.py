"""Totals by the calendar day of a time zone, which may have 23 or 25 hours.

Windows of a day have 24 hours and an offset that does not change, so they are wrong for a day in which clocks are
changed. Here the local date is a part of the key, and a timer at the next local midnight tells the total.
"""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from millstream.common import TimestampAssigner, Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor

PARIS = ZoneInfo("Europe/Paris")
# Moment (UTC), kilos. On 29 March 2026 clocks in Paris go from 2:00 to 3:00.
DELIVERIES = [
    ("2026-03-28T22:30", 5),
    ("2026-03-28T23:30", 7),  # half past midnight in Paris: the 29th
    ("2026-03-29T21:30", 9),
    ("2026-03-29T22:30", 2),  # the 30th, as of an hour that the 29th did not have
]


def moment(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def local_date(delivery):
    return moment(delivery[0]).astimezone(PARIS).date()


class Moment(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return int(moment(value[0]).timestamp() * 1000)


class Total(KeyedProcessFunction):
    def open(self, ctx):
        self.kilos = ctx.get_state(ValueStateDescriptor("kilos", Types.LONG()))

    def process_element(self, delivery, ctx):
        self.kilos.update((self.kilos.value() or 0) + delivery[1])
        tomorrow = ctx.get_current_key() + timedelta(days=1)
        midnight = datetime.combine(tomorrow, time(), PARIS)
        ctx.timer_service().register_event_time_timer(int(midnight.timestamp() * 1000) - 1)

    def on_timer(self, timestamp, ctx):
        yield f"{ctx.get_current_key()}: {self.kilos.value()} kg"
        self.kilos.clear()


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Moment())
deliveries = env.from_collection(DELIVERIES).assign_timestamps_and_watermarks(times)
deliveries.key_by(local_date).process(Total()).print()
env.execute("local days")
