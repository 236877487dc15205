"""The Kafka workload, shared by every peer so that all run the same Python functions.

A record of 100 bytes that begins with its key -> ``(key, 1)`` -> running count per key -> ``b"key count"``.
"""

from __future__ import annotations

import argparse
import json

from workload import Pair, digest

KEYS = 10_000
PARTITIONS = 2
COMMIT_MS = 1_000  # the checkpoint interval of the systems that have one


def record(number: int) -> tuple[bytes, bytes]:
    """Key and value of an input record; the keys of a partition are in no other."""
    key = f"{number % KEYS:08d}".encode()
    return key, key + b"x" * 92


def to_pair(value: bytes) -> Pair:
    """The map function. Keys are strings: Bytewax takes nothing else."""
    return (value[:8].decode(), 1)


def to_line(pair: Pair) -> bytes:
    """An output record."""
    return f"{pair[0]} {pair[1]}".encode()


def expected_digest(records: int) -> str:
    """The right hash for so many input records, by arithmetic."""
    counts = {
        record(k)[0].decode(): (records - k + KEYS - 1) // KEYS for k in range(min(KEYS, records))
    }
    return digest(counts, records, sum(c * (c + 1) // 2 for c in counts.values()))


def arguments() -> argparse.ArgumentParser:
    """What every peer is told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, required=True)
    parser.add_argument("--servers", required=True)
    parser.add_argument("--source", required=True, help="the topic to read to its end")
    parser.add_argument("--target", required=True, help="the topic to write")
    return parser


def finished(system: str) -> None:
    """The JSON line. Results, and when they came, are read from the topic."""
    print(json.dumps({"system": system}), flush=True)
