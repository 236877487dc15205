"""The demo: count hashtags in a stream of messages, live, on Spark.

A generator makes 200,000 messages at 20,000 a second; the counts are checked against a plain Python loop.
"""

import argparse
import random
import sys
import time
from collections import Counter

from rich.console import Console
from rich.table import Table

from millstream.common import WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource, seeded

TAGS = ["#python", "#spark", "#flink", "#streams", "#windows", "#state", "#watermarks", "#mill"]


def message(n: int, rng: random.Random) -> str:
    words = rng.choices(TAGS, weights=range(len(TAGS), 0, -1), k=rng.randint(0, 3))
    return f"message {n}: " + " and ".join(words)


def hashtags(text: str) -> list[tuple[str, int]]:
    return [(word, 1) for word in text.split() if word.startswith("#")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rate", type=float, default=20_000)
    options = parser.parse_args()
    generate = seeded(message, seed=42)

    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    source = DataGeneratorSource(generate, options.messages, options.rate)
    counts = (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "messages")
        .flat_map(hashtags)
        .key_by(lambda pair: pair[0])
        .sum(1)
    )

    latest: Counter[str] = Counter()
    console, updates, shown = Console(), 0, time.monotonic()
    console.print("counting hashtags on Spark; the first results take a few seconds")
    with counts.execute_and_collect("hashtag count") as results:
        for tag, count in results:
            latest[tag] = count
            updates += 1
            if time.monotonic() - shown > 1:
                shown = time.monotonic()
                top = ", ".join(f"{tag} {n:,}" for tag, n in latest.most_common(3))
                console.print(f"{updates:>9,} hashtags so far: {top}", highlight=False)

    expected = Counter(tag for n in range(options.messages) for tag, _ in hashtags(generate(n)))
    table = Table("hashtag", "counted", "expected", title=f"{options.messages:,} messages")
    for tag, count in expected.most_common():
        table.add_row(tag, f"{latest[tag]:,}", f"{count:,}")
    console.print(table)
    console.print("every count is exact" if latest == expected else "[red]the counts differ")
    return 0 if latest == expected else 1


if __name__ == "__main__":
    sys.exit(main())
