"""Split a stream: good readings go on, broken ones leave through a side output."""

from millstream.common import Types
from millstream.datastream import OutputTag, ProcessFunction, StreamExecutionEnvironment

BROKEN = OutputTag("broken", Types.STRING())


class Parse(ProcessFunction):
    def process_element(self, value, ctx):
        name, _, reading = value.partition("=")
        try:
            yield name, float(reading)
        except ValueError:
            yield BROKEN, value


env = StreamExecutionEnvironment.get_execution_environment()
lines = env.from_collection(["a=20.5", "b=", "a=21.0", "c=hot", "b=19.5"])
readings = lines.process(Parse()).name("parse")

readings.key_by(lambda r: r[0]).max(1).print("hottest")
readings.get_side_output(BROKEN).print("broken")

env.execute("side outputs")
