"""Shortest paths by iteration: a town that learns of a shorter way tells its neighbours, until nobody learns anything.

What a town tells goes round: it is fed back to the beginning of the loop and processed in the following epoch. The
job ends when nothing is fed back any more.
"""

from millstream.common import Types
from millstream.datastream import KeyedProcessFunction, OutputTag, StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor

# The roads of each town, with their lengths.
ROADS = {
    "mill": {"bridge": 7, "lock": 1},
    "lock": {"bridge": 4, "weir": 9},
    "bridge": {"weir": 2, "harbour": 12},
    "weir": {"harbour": 3, "mill": 8},
    "harbour": {"mill": 20},
}
NEWS = OutputTag("news")


class Town(KeyedProcessFunction):
    """Gets (town, distance) and keeps the shortest distance."""

    def open(self, runtime_context):
        self.shortest = runtime_context.get_state(ValueStateDescriptor("shortest", Types.LONG()))

    def process_element(self, value, ctx):
        town, distance = value
        known = self.shortest.value()
        if known is not None and known <= distance:
            return
        self.shortest.update(distance)
        yield town, distance
        for neighbour, length in ROADS[town].items():
            yield NEWS, (neighbour, distance + length)


env = StreamExecutionEnvironment.get_execution_environment()
loop = env.from_collection([("mill", 0)]).iterate()
distances = loop.key_by(0).process(Town())
loop.close_with(distances.get_side_output(NEWS))

# A town's later distances are shorter.
for town, distance in sorted(dict(distances.execute_and_collect("shortest paths")).items()):
    print(f"{town}: {distance}")
