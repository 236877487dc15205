"""Event time against processing time: the points of a mobile game, per minute.

Ann plays in a train. From minute 1 to minute 4 it is in a tunnel: what she does there arrives when it comes out.
Windows by arrival see a break and then a burst; windows by event time see the game as it was played.
"""

from millstream.common import TimestampAssigner, WatermarkStrategy
from millstream.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from millstream.datastream.window import TumblingEventTimeWindows

# Who, how many points, the second in which it happened, the second in which it arrived.
EVENTS = [
    ("ann", 5, 10, 11),
    ("ben", 3, 20, 21),
    ("ann", 2, 50, 51),
    ("ben", 4, 130, 131),
    ("ann", 7, 70, 241),
    ("ann", 8, 135, 241),
    ("ann", 1, 190, 242),
    ("ann", 9, 250, 251),
    ("ben", 2, 255, 256),
]


class Field(TimestampAssigner):
    def __init__(self, index):
        self.index = index

    def extract_timestamp(self, value, record_timestamp):
        return value[self.index] * 1000


class Labelled(ProcessWindowFunction):
    def __init__(self, label):
        self.label = label

    def process(self, player, context, elements):
        (total,) = elements
        yield self.label, player, context.window().start // 60_000, total[1]


def points_per_minute(label, index):
    times = WatermarkStrategy.for_bounded_out_of_orderness("5 min").with_timestamp_assigner(
        Field(index)
    )
    minutes = events.assign_timestamps_and_watermarks(times).key_by(0)
    windows = minutes.window(TumblingEventTimeWindows.of("1 min"))
    return windows.reduce(lambda a, b: (a[0], a[1] + b[1], *b[2:]), Labelled(label))


env = StreamExecutionEnvironment.get_execution_environment()
events = env.from_collection(EVENTS)
both = points_per_minute("arrived", 3).union(points_per_minute("happened", 2))
points = {tuple(key): total for *key, total in both.execute_and_collect("game in the tunnel")}

print("player  minute  arrived  happened")
for player, minute in sorted({key[1:] for key in points}):
    arrived, happened = (points.get((by, player, minute), 0) for by in ("arrived", "happened"))
    print(f"{player:6}  {minute:6}  {arrived:7}  {happened:8}")
