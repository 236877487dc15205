"""Compaction of a store's segments as a Spark job of one task, beside the epochs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from millstream.checkpoint.statefile import StateFile
from millstream.runtime.state.store import compact
from millstream.runtime.task.spec import JobSpec
from millstream.storage.open import open_storage
from millstream.storage.seal import Seal

__all__ = ["run_compaction"]


def run_compaction(
    session: SparkSession, spec: JobSpec, store: str, segments: Sequence[StateFile]
) -> StateFile:
    """Compact on whatever slot is free."""
    root, durable, key_file = spec.state_dir, spec.durable, spec.key_file

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            storage = open_storage(root, durable=durable, seal=Seal.of(key_file))
            file = compact(storage, store, segments, uuid.uuid4().hex[:16])
            yield pa.RecordBatch.from_pydict({"file": [msgspec.json.encode(file)]})

    rows = session.range(0, 1, 1, 1).mapInArrow(work, "file binary").collect()
    return msgspec.json.decode(rows[0].file, type=StateFile)
