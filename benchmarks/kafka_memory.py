"""The memory of driver and workers while a job reads Kafka and writes it exactly once, 10 million records behind.

    make bench BENCH=benchmarks/kafka_memory.py

Twice: all of it in one epoch (a bounded source, so that one commit writes everything), and in epochs of a second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import harness
from kafka import create, fill, read
from memory import watch

from millstream.common import ByteArraySchema, Configuration, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from millstream.testing import kafka_broker

sys.path.insert(0, str(harness.PEERS))
from kafka_workload import PARTITIONS, to_line, to_pair
from millstream_kafka import sink

LIMIT_MIB = 500
SERVERS = "MILLSTREAM_BENCH_SERVERS"


def job(servers: str, folder: str, one_epoch: bool) -> None:
    """From topic to topic through an exchange."""
    config = Configuration.from_dict(
        {"execution.checkpointing.dir": folder, "spark.master": f"local[{PARTITIONS}]"}
    )
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(PARTITIONS)
    source = KafkaSource.builder().set_bootstrap_servers(servers).set_topics("in")
    source.set_value_only_deserializer(ByteArraySchema())
    end = KafkaOffsetsInitializer.latest()
    if one_epoch:
        source.set_bounded(end)
    else:
        env.enable_checkpointing(1000)
        source.set_unbounded(end)
    (
        env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "in")
        .rebalance()
        .map(lambda value: to_line(to_pair(value)))
        .sink_to(sink(servers, "one" if one_epoch else "many"))
    )
    env.execute("kafka to kafka")


def main() -> None:
    parser = harness.arguments(__doc__ or "")
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--job", choices=["one", "many"], help="for the benchmark itself")
    opts = parser.parse_args()
    if opts.job:
        with tempfile.TemporaryDirectory() as folder:
            job(os.environ[SERVERS], str(Path(folder, "state")), opts.job == "one")
        return
    records = 100_000 if opts.quick else opts.records
    facts = harness.facts()
    rows = []
    with kafka_broker() as servers:
        os.environ[SERVERS] = servers
        fill(servers, "in", records)
        create(servers, "one", "many")
        for kind in ("one", "many"):
            began = time.monotonic()
            command = [sys.executable, __file__, "--job", kind]
            process = harness.start(command, subprocess.DEVNULL, None)
            try:
                workers = watch(process)
            finally:
                harness.end(process)
            took = time.monotonic() - began
            count, _, _ = read(servers, kind)
            if process.returncode or count != records:
                sys.exit(f"the job failed: exit code {process.returncode}, {count:,} records")
            peaks = {
                role: max((w.peak for w in workers if w.role == role), default=0.0)
                for role in ("driver", "worker")
            }
            rows.append(
                [
                    "one epoch" if kind == "one" else "epochs of 1 s",
                    f"{took:.0f}",
                    *(f"{peaks[role]:,.0f}" for role in ("driver", "worker")),
                    "yes" if max(peaks.values()) < LIMIT_MIB else "no",
                ]
            )
    print(f"Memory of a job from Kafka to Kafka, {records:,} records of 100 bytes. {facts}\n")
    header = ["job", "seconds", "driver MiB", "largest worker MiB", f"below {LIMIT_MIB} MiB"]
    print(harness.table(header, rows, opts.markdown))


if __name__ == "__main__":
    main()
