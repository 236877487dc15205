"""Bytewax: its own Kafka connector, recovery on, epochs of a second. Its sink is at least once."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import bytewax.operators as op
from bytewax._bytewax import cluster_main, init_db_dir
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.recovery import RecoveryConfig
from bytewax_keyed_count import RunningSum
from kafka_workload import COMMIT_MS, arguments, finished, to_line, to_pair


def flow(servers: str, source: str, target: str, batch: int) -> Dataflow:
    """The dataflow."""
    made = Dataflow("kafka")
    # What a batch produces must fit into the client's queue: its sink does not wait for room.
    room = {"queue.buffering.max.messages": "1000000"}
    read = KafkaSource([servers], [source], tail=False, batch_size=batch)
    messages = op.input("in", made, read)
    pairs = op.map("pair", messages, lambda message: to_pair(message.value))
    sums = op.stateful_batch("sum", pairs, RunningSum)
    lines = op.map("line", sums, lambda pair: KafkaSinkMessage(None, to_line(pair)))
    op.output("out", lines, KafkaSink([servers], target, add_config=room))
    return made


def ports(count: int) -> list[int]:
    """Free ones of this machine."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return found


def main() -> None:
    args = arguments()
    args.add_argument("--batch", type=int, default=20_000)
    args.add_argument("--workers", type=int, default=1, help="threads of a process")
    args.add_argument("--processes", type=int, default=1)
    args.add_argument("--recovery", help="set for the processes that this one starts")
    args.add_argument("--addresses", default="")
    args.add_argument("--number", type=int, default=0)
    opts = args.parse_args()
    if not opts.recovery:
        with tempfile.TemporaryDirectory() as recovery:
            init_db_dir(Path(recovery), opts.workers * opts.processes)
            found = ports(opts.processes) if opts.processes > 1 else []
            addresses = ",".join(f"127.0.0.1:{port}" for port in found)
            command = [sys.executable, *sys.argv, "--recovery", recovery, "--addresses", addresses]
            running = [
                subprocess.Popen([*command, "--number", str(number)])
                for number in range(opts.processes)
            ]
            codes = [process.wait() for process in running]
        if any(codes):
            sys.exit(f"exit codes {codes}")
        finished("bytewax")
        return
    cluster_main(
        flow(opts.servers, opts.source, opts.target, opts.batch),
        opts.addresses.split(",") if opts.addresses else [],
        opts.number,
        epoch_interval=timedelta(milliseconds=COMMIT_MS),
        recovery_config=RecoveryConfig(opts.recovery),
        worker_count_per_proc=opts.workers,
    )


if __name__ == "__main__":
    main()
