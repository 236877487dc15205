"""The demo: a word counter that survives a kill at any moment.

`count_words` is the whole job: text files in, running counts out. `main` writes a text whose counts it knows, starts
the job in a process of its own, kills it again and again (kill -9: Python workers and whole drivers), starts it anew,
and at the end compares what has been counted with what was written.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from millstream.common import Configuration, Encoder, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import (
    BucketAssigner,
    FileSink,
    FileSource,
    StreamFormat,
)


def count_words(folder: Path, bytes_per_epoch: int) -> None:
    """The job. Two lines make it survive: where its checkpoints go, and how often there is one."""
    config = Configuration.from_dict(
        {
            "execution.checkpointing.dir": str(folder / "checkpoints"),
            # A small bite at a time, so that there is time to kill it.
            "millstream.epoch.records": str(bytes_per_epoch),
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(2)
    env.enable_checkpointing(100)  # milliseconds

    text = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(folder / "text")
    ).build()
    counts = (
        FileSink.for_row_format(str(folder / "counts"), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
    (
        env.from_source(text, WatermarkStrategy.no_watermarks(), "text")
        .flat_map(str.split)
        .map(lambda word: (word, 1))
        .key_by(lambda pair: pair[0])
        .sum(1)
        .map(lambda pair: f"{pair[0]} {pair[1]}")
        .sink_to(counts)
    )
    env.execute("word count")


# What follows puts it to the test.
BEGINNINGS = "mil stre wa gra flo tur whe bar oat rye".split()
ENDINGS = "l am ter in der ing low na set rim ket on ba do fel gar hum ist jo ka".split()
# When this part of the text has been counted, who is killed.
KILLS = [(0.1, "worker"), (0.3, "driver"), (0.5, "worker"), (0.7, "driver")]


def write_text(folder: Path, size: int) -> Counter[str]:
    """Files with `size` words, some frequent and some rare; how often each occurs."""
    rng = random.Random(42)
    words = [a + b for a in BEGINNINGS for b in ENDINGS]
    text = rng.choices(words, weights=[1 / n for n in range(1, len(words) + 1)], k=size)
    (folder / "text").mkdir(parents=True)
    for part in range(4):
        mine = text[part::4]
        lines = [" ".join(mine[n : n + 10]) for n in range(0, len(mine), 10)]
        (folder / "text" / f"{part}.txt").write_text("\n".join(lines) + "\n")
    return Counter(text)


def written(folder: Path) -> dict[str, list[int]]:
    """Every count that can be seen, by word. Files whose names begin with a dot are not complete yet."""
    counts: dict[str, list[int]] = defaultdict(list)
    for part in (folder / "counts").glob("[!.]*"):
        for line in part.read_text().splitlines():
            word, count = line.split()
            counts[word].append(int(count))
    return counts


def find_worker(driver: int) -> int | None:
    """A Python worker: a child of Spark's worker daemon, which is a child of the driver's JVM."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
    generation = [driver]
    for _ in ("JVM", "daemon", "worker"):
        generation = [pid for pid, parent in parents.items() if parent in generation]
    return generation[0] if generation else None


def main(words: int, folder: Path) -> int:
    console = Console(highlight=False)
    expected = write_text(folder, words)
    size = sum(file.stat().st_size for file in (folder / "text").iterdir())
    command = [sys.executable, __file__, "--job", str(folder), str(size // 40)]
    started = time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - started:5.1f} s  {text}")

    say(f"a text of {words:,} words, {len(expected)} of them distinct; the job starts on Spark")
    log = (folder / "log").open("w")
    job = subprocess.Popen(command, stdout=log, stderr=log)
    kills = 0
    while job.poll() is None:
        time.sleep(0.2)
        done = sum(map(len, written(folder).values()))
        if kills == len(KILLS) or done <= words * KILLS[kills][0]:
            continue
        what = KILLS[kills][1]
        victim = job.pid if what == "driver" else find_worker(job.pid)
        if victim is None or job.poll() is not None:
            continue
        os.kill(victim, signal.SIGKILL)
        kills += 1
        say(f"{done:9,} words counted: [red]kill -9[/] of {what} {victim}")
        if what == "driver":
            job.wait()
            job = subprocess.Popen(command, stdout=log, stderr=log)
            say(f"{done:9,} words are safe: a new driver goes on from there")
    log.close()
    if job.returncode:
        console.print((folder / "log").read_text(), f"[red]exit code {job.returncode}")
        return 1
    counts = written(folder)
    say(f"{sum(map(len, counts.values())):9,} words counted: the job has ended")
    table = Table("word", "expected", "counted", title="The ten most frequent words")
    for word, count in expected.most_common(10):
        table.add_row(word, f"{count:,}", f"{max(counts[word], default=0):,}")
    console.print(table)
    # A sum that counts a word twice, or not at all, leaves a gap or a repetition behind.
    exact = {word: list(range(1, n + 1)) for word, n in expected.items()}
    equal = exact == {word: sorted(of_word) for word, of_word in counts.items()}
    verdict = "all counts equal" if equal else "[red]the counts differ"
    console.print(f"{words:,} words, {len(expected)} distinct, {kills} kills: {verdict}")
    return 0 if equal and kills >= 3 else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=int, default=200_000)
    parser.add_argument("--job", nargs=2, metavar=("FOLDER", "BYTES"), help="run the job itself")
    given = parser.parse_args()
    if given.job:
        count_words(Path(given.job[0]), int(given.job[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            sys.exit(main(given.words, Path(temporary)))
