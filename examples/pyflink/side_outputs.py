"""Splits a stream of readings: numbers go on, what is broken and what is hot goes to two sides."""

from pyflink.common import Types
from pyflink.datastream import OutputTag, ProcessFunction, StreamExecutionEnvironment

BROKEN = OutputTag("broken", Types.STRING())
HOT = OutputTag("hot", Types.TUPLE([Types.STRING(), Types.DOUBLE()]))


class Parse(ProcessFunction):
    def process_element(self, value, ctx: ProcessFunction.Context):
        name, _, text = value.partition("=")
        try:
            degrees = float(text)
        except ValueError:
            yield BROKEN, f"{value!r} is no reading"
            return
        if degrees > 30:
            yield HOT, (name, degrees)
        yield name, degrees


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    texts = env.from_collection(
        ["a=20.5", "b=", "c=31.5", "a=hot", "b=19.25", "c=33"], type_info=Types.STRING()
    )
    readings = texts.process(Parse(), output_type=Types.TUPLE([Types.STRING(), Types.DOUBLE()]))
    readings.print("reading")
    readings.get_side_output(BROKEN).print("broken")
    readings.get_side_output(HOT).map(
        lambda hot: f"{hot[0]} by {hot[1] - 30} degrees", output_type=Types.STRING()
    ).print("too hot")
    env.execute("readings")


if __name__ == "__main__":
    main()
