"""An input that falls silent: how `with_idleness` keeps windows on time, and what happens without it.

Two inputs tick ten times a second; windows of one second count the ticks of both. After two seconds the second input
says nothing for four seconds, and does not end. The watermark of two inputs is the smaller one: without idleness it
stands still until the silent input speaks again, and so do the results.
"""

import time

from millstream.common import Configuration, WatermarkStrategy
from millstream.datastream import (
    ProcessAllWindowFunction,
    SourceFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.window import TumblingEventTimeWindows


class Ticks(SourceFunction):
    def __init__(self, silent_from, silent_until):
        self.silent = range(silent_from, silent_until)

    def run(self, ctx):
        started = time.time()
        while ctx.is_running():
            now = time.time()
            if int(now - started) not in self.silent:
                ctx.collect_with_timestamp("tick", int(now * 1000))
            time.sleep(0.1)

    def cancel(self):
        pass


class Count(ProcessAllWindowFunction):
    def process(self, context, ticks):
        late_by = context.current_processing_time() - context.window().end
        yield len(list(ticks)), late_by / 1000


def run(name, times, silent_until=6):
    print(name)
    inputs = [env.add_source(Ticks(0, 0), "one"), env.add_source(Ticks(2, silent_until), "two")]
    one, two = (ticks.assign_timestamps_and_watermarks(times) for ticks in inputs)
    windows = one.union(two).window_all(TumblingEventTimeWindows.of("1 s"))
    with windows.process(Count()).execute_and_collect(name) as results:  # its end cancels the job
        for number in range(1, 7):
            count, delay = next(results)
            print(f"  window {number}: {count} ticks, {delay:.1f} s after its end", flush=True)


config = Configuration.from_dict({"millstream.epoch.interval": "200 ms"})
env = StreamExecutionEnvironment.get_execution_environment(config)
plain = WatermarkStrategy.for_monotonous_timestamps()
run("both tick, while Spark starts", plain, silent_until=0)
run("one is silent, with idleness", plain.with_idleness("500 ms"))
run("one is silent, without idleness", plain)
