"""What a process per subtask comes to: opens, processes and memory.

```
epochs   1,000 epochs at parallelism 4: how often functions were opened, and in how many processes a subtask ran
memory   a gigabyte of `hashmap` state on 4 slots, beside a single dictionary with the same entries
kill     a worker is killed in mid-epoch: whose functions are opened again
```

Usage: python benchmarks/slots.py [--part epochs|memory|kill] [--epochs N] [--keys N] [--quick] [--markdown]
"""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import harness

from millstream.common import Configuration, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, SinkFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.state import ValueStateDescriptor

PARALLELISM = 4
VALUE = 1000


class Keep(KeyedProcessFunction):
    """Keeps a value per key, and writes down where it was opened and where it ran."""

    def __init__(self, folder: str, value: int) -> None:
        self._folder = folder
        self._value = value

    def open(self, runtime_context: Any) -> None:
        self._state = runtime_context.get_state(ValueStateDescriptor("kept"))
        subtask = runtime_context.get_index_of_this_subtask()
        (Path(self._folder) / f"open-{subtask}-{time.time_ns()}").write_text(str(os.getpid()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        number = value[1]
        self._state.update(b"%0*d" % (self._value, number))
        yield number


class Nothing(SinkFunction):
    """Takes records and forgets them."""

    def invoke(self, value: Any, context: Any) -> None:
        return


def start(
    folder: str, keys: int, records: int | None, rate: float | None, epoch: int, value: int
) -> Any:
    config = Configuration()
    config.set_string("spark.master", f"local[{PARALLELISM},3]")
    config.set_string("execution.checkpointing.dir", os.path.join(folder, "checkpoints"))
    config.set_string("spark.driver.memory", "2g")
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(PARALLELISM)
    env.enable_checkpointing(epoch)
    source = DataGeneratorSource(lambda n: (n % keys, n), records, rate)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    kept = stream.key_by(lambda pair: pair[0]).process(Keep(folder, value))
    kept.add_sink(Nothing())
    return env.execute_async("slots")


def opened(folder: str) -> dict[int, list[int]]:
    """By subtask, the processes that its function was opened in, in order."""
    found: dict[int, list[int]] = collections.defaultdict(list)
    for path in sorted(Path(folder).glob("open-*"), key=lambda path: path.name.split("-")[2]):
        # It may just be being written.
        if text := path.read_text():
            found[int(path.name.split("-")[1])].append(int(text))
    return dict(sorted(found.items()))


def proportional_memory(pid: int) -> float:
    """MiB of a process, what it shares with others counted in part."""
    for line in (harness.PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def epochs(count: int, markdown: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        client = start(folder, 1000, None, 2000.0, 20, 8)
        while (metrics := client.get_metrics()) is None or metrics.epoch < count:
            time.sleep(0.1)
        loads, reached = dict(metrics.state_loads), metrics.epoch
        client.cancel().result()
        places = opened(folder)
    rows = [
        [str(subtask), str(len(pids)), str(len(set(pids))), str(loads.get((1, subtask), 0))]
        for subtask, pids in places.items()
    ]
    print(f"\n{reached:,} epochs, parallelism {PARALLELISM}\n")
    print(harness.table(["subtask", "opens", "processes", "state files read back"], rows, markdown))


_DICTIONARY = """
import sys
keys, value = int(sys.argv[1]), int(sys.argv[2])
def size():
    for line in open("/proc/self/smaps_rollup"):
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
before = size()
kept = {n: b"%0*d" % (value, n) for n in range(keys)}
print(size() - before)
"""


def memory(keys: int, markdown: bool) -> None:
    command = [sys.executable, "-c", _DICTIONARY, str(keys), str(VALUE)]
    one = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    with tempfile.TemporaryDirectory() as folder:
        # Twice around: every key is written anew once, and changes are part of what is held.
        client = start(folder, keys, None, 100_000.0, 500, VALUE)
        # What the processes take by themselves, before there is much in them: all of them, not the first alone.
        while len(opened(folder)) < PARALLELISM:
            time.sleep(0.01)
        pids = {found[-1] for found in opened(folder).values()}
        before = sum(proportional_memory(pid) for pid in pids)
        most = 0.0
        while (metrics := client.get_metrics()) is None or metrics.records < 2 * keys:
            now = {pid for found in opened(folder).values() for pid in found}
            most = max(most, sum(proportional_memory(pid) for pid in now if alive(pid)))
            time.sleep(0.5)
        pids = {pid for found in opened(folder).values() for pid in found if alive(pid)}
        held = sum(proportional_memory(pid) for pid in pids)
        client.cancel().result()
        places = opened(folder)
    rows = [
        ["one dictionary in one process", f"{one:,.0f}", "1"],
        ["4 slots, before", f"{before:,.0f}", f"{before / one:.2f}"],
        ["4 slots, at the end", f"{held:,.0f}", f"{(held - before) / one:.2f}"],
        ["4 slots, at most", f"{most:,.0f}", f"{(most - before) / one:.2f}"],
    ]
    print(
        f"\n{keys:,} keys of {VALUE:,} bytes; opens {json.dumps({k: len(v) for k, v in places.items()})}\n"
    )
    print(harness.table(["", "MiB", "growth, of one dictionary's"], rows, markdown))


def alive(pid: int) -> bool:
    return (harness.PROC / str(pid) / "smaps_rollup").exists()


def kill(markdown: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        client = start(folder, 1000, None, 2000.0, 100, 8)
        rows = []
        for turn in range(5):
            before = opened(folder)
            while len(before) < PARALLELISM or (client.get_metrics() or _None).epoch < 20 * (
                turn + 1
            ):
                time.sleep(0.05)
                before = opened(folder)
            victim = turn % PARALLELISM
            os.kill(before[victim][-1], signal.SIGKILL)
            epoch = client.get_metrics().epoch
            while client.get_metrics().epoch < epoch + 10:
                time.sleep(0.05)
            after = opened(folder)
            again = [s for s in after if len(after[s]) > len(before[s])]
            restarts = client.get_metrics().restarts
            rows.append([str(victim), ", ".join(map(str, again)), str(restarts)])
        client.cancel().result()
    print(
        "\n"
        + harness.table(
            ["killed worker of subtask", "opened again", "restarts of the job so far"],
            rows,
            markdown,
        )
    )


class _None:
    epoch = -1


def main() -> None:
    parser = harness.arguments(__doc__ or "")
    parser.add_argument("--part", choices=["epochs", "memory", "kill"])
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    opts = parser.parse_args()
    print(harness.facts())
    if opts.part in (None, "epochs"):
        epochs(50 if opts.quick else opts.epochs, opts.markdown)
    if opts.part in (None, "memory"):
        memory(20_000 if opts.quick else opts.keys, opts.markdown)
    if opts.part in (None, "kill"):
        kill(opts.markdown)


if __name__ == "__main__":
    main()
