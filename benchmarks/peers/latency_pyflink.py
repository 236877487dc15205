"""PyFlink: records from a socket that Flink's own source reads, through one exchange and a keyed function with state.

PyFlink has no sources in Python. This one is Java's, with no Python before it; a line is written when it is due.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latency_workload import KEYS, Delays
from pyflink.common import Configuration, Types
from pyflink.datastream import (
    FlatMapFunction,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.data_stream import DataStream
from pyflink.datastream.state import ValueStateDescriptor

PAIR = Types.TUPLE([Types.INT(), Types.DOUBLE()])


class Counting(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield value


class DelaySink(FlatMapFunction):
    """PyFlink has no Python sinks: a flat map that emits nothing, chained after the count."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        self.delays = Delays(self.folder)

    def flat_map(self, value: Any) -> Iterator[Any]:
        self.delays.add(value[1])
        return iter(())

    def close(self) -> None:
        self.delays.save()


def parsed(line: str) -> tuple[int, float]:
    key, _, due = line.partition(" ")
    return int(key), float(due)


def write_lines(server: socket.socket, rate: int, seconds: float) -> None:
    """Write each line when it is due, for so many seconds, to whoever connects."""
    reader, _ = server.accept()
    reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    began, sent, count = time.time() + 1.0, 0, int(rate * seconds)
    with reader:
        while sent < count and time.time() < began + seconds + 1:
            due = min(count, max(sent, int((time.time() - began) * rate)))
            # Not more at once than the socket takes, so that the end is seen by one who cannot follow.
            due = min(due, sent + 10_000)
            if due > sent:
                lines = (f"{n % KEYS} {began + n / rate!r}\n" for n in range(sent, due))
                reader.sendall("".join(lines).encode())
                sent = due
            time.sleep(0.0005)


def main() -> None:
    args = argparse.ArgumentParser()
    args.add_argument("--rate", type=int, required=True)
    args.add_argument("--seconds", type=float, required=True)
    args.add_argument("--checkpoints", type=float, required=True)
    args.add_argument("--folder", required=True)
    args.add_argument("--execution", choices=["process", "thread"], default="process")
    args.add_argument("--bundle", type=int, default=1000)
    opts = args.parse_args()
    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(
        target=write_lines, args=(server, opts.rate, opts.seconds), daemon=True
    ).start()
    with tempfile.TemporaryDirectory() as checkpoints:
        config = Configuration()
        config.set_string("python.execution-mode", opts.execution)
        # A bundle is handed over when it is full or a millisecond old, which is the least that can be set.
        config.set_string("python.fn-execution.bundle.size", str(opts.bundle))
        config.set_string("python.fn-execution.bundle.time", "1")
        config.set_string("execution.buffer-timeout.interval", "0 ms")
        config.set_string("python.executable", sys.executable)
        config.set_string("python.client.executable", sys.executable)
        config.set_string("python.files", str(Path(__file__).with_name("latency_workload.py")))
        config.set_string("execution.checkpointing.dir", Path(checkpoints).as_uri())
        env = StreamExecutionEnvironment.get_execution_environment(config)
        env.set_parallelism(1)
        env.enable_checkpointing(int(opts.checkpoints * 1000))
        java = env._j_stream_execution_environment
        lines = DataStream(java.socketTextStream("127.0.0.1", server.getsockname()[1]))
        pairs = lines.map(parsed, output_type=PAIR)
        counted = pairs.key_by(lambda pair: pair[0], key_type=Types.INT())
        counted = counted.process(Counting(), output_type=PAIR)
        counted.flat_map(DelaySink(opts.folder), output_type=PAIR).print()
        env.execute("latency")


if __name__ == "__main__":
    main()
