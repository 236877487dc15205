"""Quix Streams: a process for each partition in one consumer group, state with changelog topics, commits every second.

Its state is by the Kafka key of a record and of its partition. The input has the right keys in the right partitions, so
nothing is partitioned again, which would be another topic to write and to read.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import Any

from kafka_workload import COMMIT_MS, PARTITIONS, arguments, finished, to_line, to_pair
from quixstreams import Application, State

_IDLE_SECONDS = 5.0


def count(pair: Any, state: State) -> Any:
    """The running sum of a key."""
    total = state.get("total", 0) + pair[1]
    state.set("total", total)
    return (pair[0], total)


def work(servers: str, source: str, target: str, guarantee: Any, folder: str) -> None:
    """One process of the group, until nothing has come for a while."""
    app = Application(
        servers,
        consumer_group=f"group-{target}",
        auto_offset_reset="earliest",
        commit_interval=COMMIT_MS / 1000,
        processing_guarantee=guarantee,
        state_dir=folder,
        loglevel="WARNING",
    )
    frame = app.dataframe(app.topic(source, value_deserializer="bytes"))
    frame = frame.apply(to_pair).apply(count, stateful=True).apply(to_line)
    frame.to_topic(app.topic(target, value_serializer="bytes"))
    app.run(timeout=_IDLE_SECONDS, collect=False)


def main() -> None:
    args = arguments()
    args.add_argument(
        "--guarantee", choices=["exactly-once", "at-least-once"], default="exactly-once"
    )
    args.add_argument("--processes", type=int, default=PARTITIONS)
    args.add_argument("--folder", help="set for the processes that this one starts")
    opts = args.parse_args()
    if opts.folder:
        work(opts.servers, opts.source, opts.target, opts.guarantee, opts.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        running = [
            subprocess.Popen([sys.executable, *sys.argv, "--folder", f"{folder}/{number}"])
            for number in range(opts.processes)
        ]
        codes = [process.wait() for process in running]
    if any(codes):
        sys.exit(f"exit codes {codes}")
    finished("quix")


if __name__ == "__main__":
    main()
