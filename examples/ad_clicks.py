"""Which clicks came of which impression of an ad: an interval join of two streams.

A click belongs to an impression of the same ad and user if it came within ten minutes of it. Clicks arrive in any order
with regard to impressions; the join keeps either side just as long as the other may still come. What was shown and
clicked in each hour then is a join by window, of counts.
"""

from millstream.common import TimestampAssigner, WatermarkStrategy
from millstream.datastream import ProcessJoinFunction, StreamExecutionEnvironment
from millstream.datastream.window import TumblingEventTimeWindows

MINUTE = 60_000

# Who saw or clicked which ad, and in which minute.
IMPRESSIONS = [("ann", "tea", 0), ("ben", "tea", 3), ("ann", "rye", 8), ("ann", "tea", 61)]
CLICKS = [("ann", "tea", 4), ("ben", "tea", 13), ("ann", "rye", 19), ("ann", "tea", 62)]


class Minute(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2] * MINUTE


class Attribute(ProcessJoinFunction):
    def process_element(self, impression, click, ctx):
        delay = (ctx.get_right_timestamp() - ctx.get_left_timestamp()) // MINUTE
        yield f"{click[0]} clicked on {click[1]} after {delay} min"


def person_and_ad(event):
    return event[:2]


def per_hour(stream):
    ones = stream.map(lambda event: (event[1], 1)).key_by(0)
    return ones.window(TumblingEventTimeWindows.of("1 h")).sum(1)


env = StreamExecutionEnvironment.get_execution_environment()
times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Minute())
impressions = env.from_collection(IMPRESSIONS).assign_timestamps_and_watermarks(times)
clicks = env.from_collection(CLICKS).assign_timestamps_and_watermarks(times)

left, right = impressions.key_by(person_and_ad), clicks.key_by(person_and_ad)
left.interval_join(right).between("0 min", "10 min").process(Attribute()).print()

shown, clicked = per_hour(impressions), per_hour(clicks)
both = shown.join(clicked).where(0).equal_to(0).window(TumblingEventTimeWindows.of("1 h"))
both.apply(lambda s, c: f"{s[0]}: shown {s[1]}, clicked {c[1]}").print("hour")
env.execute("ad clicks")
