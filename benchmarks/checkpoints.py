"""What checkpoints cost: throughput with and without, bytes and time by changed keys, recovery time by size of state.

python benchmarks/checkpoints.py overhead --rounds 5     one Spark session, alternating runs
python benchmarks/checkpoints.py incremental
python benchmarks/checkpoints.py recovery --largest 1000
python benchmarks/checkpoints.py run --interval 1000     one run, for a profile
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from typing import Any

from millstream.checkpoint.manifest import StoreState
from millstream.common import WatermarkStrategy
from millstream.common.configuration import Configuration
from millstream.datastream import SinkFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.runtime.state.store import StateStore, extend_segments
from millstream.storage.open import open_storage

KEYS = 1_000_000


class Nothing(SinkFunction):
    """Takes records and forgets them."""

    def invoke(self, value: Any, context: Any) -> None:
        return


def run_count(records: int, interval: int | None, folder: str | None) -> float:
    """Seconds for a keyed count over a million keys."""
    config = Configuration()
    if folder is not None:
        config.set_string("execution.checkpointing.dir", folder)
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(2)
    if interval is not None:
        env.enable_checkpointing(interval)
    source = DataGeneratorSource(lambda n: ((n * 7919) % KEYS, 1), records, None)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream.key_by(lambda pair: pair[0]).sum(1).add_sink(Nothing())
    started = time.perf_counter()
    client = env.execute_async("count")
    if interval is None:
        client.get_job_execution_result().result()
        return time.perf_counter() - started
    # Epochs grow to their length; what comes before the first third of the records is warm-up. A run of so few epochs
    # that none ends in the middle third is counted whole.
    at, seen = started, 0
    while not client.get_job_status().result().is_terminal_state():
        metrics = client.get_metrics()
        middle = range(records // 3, records * 2 // 3)
        if metrics is not None and seen == 0 and metrics.records in middle:
            at, seen = time.perf_counter(), metrics.records
        time.sleep(0.005)
    return (time.perf_counter() - at) * records / (records - seen)


def overhead(rounds: int, records: int) -> None:
    run_count(200_000, None, None)
    kinds = {"none": (None, False), "1 s": (1000, True), "10 s": (10_000, True)}
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(rounds + 1):
        for kind, (interval, durable) in kinds.items():
            folder = tempfile.mkdtemp() if durable else None
            took = run_count(records, interval, folder)
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            if number:
                seconds[kind].append(took)
            print(f"round {number} {kind}: {records / took:,.0f} records/s", flush=True)
    base = statistics.median(seconds["none"])
    print("\n| checkpoints every | records/s (median) | min | max | of the rate without |")
    print("|---|---|---|---|---|")
    for kind, times in seconds.items():
        rates = sorted(records / one for one in times)
        share = base / statistics.median(times)
        print(
            f"| {kind} | {statistics.median(rates):,.0f} | {rates[0]:,.0f} | {rates[-1]:,.0f} | {share:.0%} |"
        )


def store_in(folder: str) -> StateStore:
    return StateStore(open_storage(folder), "op/0", operators=["op"])


def version(segments: list[Any], attempt: str) -> StoreState:
    return StoreState(
        subtask=0,
        parallelism=1,
        max_parallelism=128,
        operators=["op"],
        segments=segments,
        attempt=attempt,
    )


def incremental() -> None:
    print("\n| keys changed of 1,000,000 | time to write | bytes | time per key |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        store = store_in(folder)
        table = store.table("op/count")
        store.open(None)
        table.changes.update((key, ("key", key)) for key in range(KEYS))
        segments = extend_segments([], store.snapshot(0, "a0"))
        for epoch, share in enumerate((0.001, 0.01, 0.1, 1.0), 1):
            times = []
            size, changed = 0, int(KEYS * share)
            for again in range(5):
                number = epoch * 10 + again
                store.open(version(segments, store.attempt))
                table.changes.update(
                    (key * (KEYS // changed), ("key", number)) for key in range(changed)
                )
                started = time.perf_counter()
                file = store.snapshot(number, f"a{number}")
                times.append(time.perf_counter() - started)
                assert file is not None
                size = file.size
                segments = extend_segments(segments, file)
            took = statistics.median(times)
            print(
                f"| {changed:,} ({share:.1%}) | {took * 1000:.1f} ms | {size:,} | {took / changed * 1e6:.2f} us |"
            )


def recovery(largest: int) -> None:
    print("\n| state | keys | read back (hashmap) | MB/s |")
    print("|---|---|---|---|")
    size = 1
    while size <= largest:
        with tempfile.TemporaryDirectory() as folder:
            store = store_in(folder)
            table = store.table("op/value")
            store.open(None)
            count = size * 10_000
            table.changes.update((key, b"%096d" % key) for key in range(count))
            file = store.snapshot(0, "a0")
            assert file is not None
            del store, table
            again = store_in(folder)
            again.table("op/value")
            started = time.perf_counter()
            again.open(version([file], ""))
            took = time.perf_counter() - started
            print(
                f"| {file.size / 1e6:,.0f} MB | {count:,} | {took:.2f} s | {file.size / 1e6 / took:,.0f} |",
                flush=True,
            )
            del again
        size *= 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["overhead", "incremental", "recovery", "run"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=12_000_000)
    parser.add_argument("--largest", type=int, default=1000)
    parser.add_argument("--interval", type=int, help="milliseconds; none without")
    options = parser.parse_args()
    if options.what == "overhead":
        overhead(options.rounds, options.records)
    elif options.what == "run":
        with tempfile.TemporaryDirectory() as folder:
            durable = None if options.interval is None else folder
            seconds = run_count(options.records, options.interval, durable)
        told = {"system": "millstream", "records": options.records, "seconds": seconds}
        print(json.dumps(told), flush=True)
    elif options.what == "incremental":
        incremental()
    else:
        recovery(options.largest)


if __name__ == "__main__":
    main()
