"""Files in which a task leaves the records of an epoch until the driver commits them.

A file is blocks: the length of each in 4 bytes, then msgpack of its columns (topics, keys, values, headers, partitions,
timestamps). A column that is the same for all records is that one value. Written and read block by block, so that an
epoch may be larger than memory. What the committable says of a file, its size and digest, is checked while it is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import msgspec

from millstream.connectors.kafka.serialize import KafkaProducerRecord
from millstream.errors import SinkError
from millstream.storage.open import open_storage
from millstream.storage.storage import Storage, shown_root

__all__ = ["Block", "StagedFile", "StagedRecords", "folder_of", "read_blocks"]

_encode = msgspec.msgpack.Encoder().encode


class Block(msgspec.Struct, array_like=True):
    """Some records, by column."""

    count: int
    topics: str | list[str]
    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    headers: list[list[tuple[str, bytes | None]]] | None = None
    partitions: list[int] | None = None
    timestamps: list[int] | None = None


_decode = msgspec.msgpack.Decoder(Block).decode


@dataclass(frozen=True)
class StagedRecords:
    """A staged file: the committable. There is no secret in it.

    >>> staged = StagedRecords(
    ...     "/state/job", "staged/1f/000000000007-0-a1", 7, 0, 3, 120, "9c", "orders"
    ... )
    >>> StagedRecords.decode(staged.encode()) == staged
    True
    """

    root: str
    name: str
    epoch: int
    subtask: int
    records: int
    size: int
    digest: str
    topic: str

    def encode(self) -> bytes:
        """The committable that names a staged file."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(committable: bytes) -> StagedRecords:
        """What `encode` wrote."""
        return StagedRecords(**json.loads(committable))


def folder_of(job_id: str, sink: str) -> str:
    """Where a job's sink stages, below the job's folder.

    >>> folder_of("4f2a", "orders")
    'staged/fecd8b183f7a'
    """
    return f"staged/{hashlib.sha256(f'{job_id} {sink}'.encode()).hexdigest()[:12]}"


class StagedFile:
    """A file that is being written. It is there under its name when all of it is on the disk."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage = storage
        self._name = name
        self._stack = ExitStack()
        self._stream: BinaryIO = self._stack.enter_context(storage.open_write(name))
        self._digest = hashlib.sha256()
        self._size = 0
        self._records = 0
        self._topic = ""

    def add(self, block: Block) -> None:
        """One more block."""
        body = _encode(block)
        head = len(body).to_bytes(4, "big")
        self._stream.write(head)
        self._stream.write(body)
        self._digest.update(head)
        self._digest.update(body)
        self._size += len(head) + len(body)
        self._records += block.count
        self._topic = self._topic or (
            block.topics if isinstance(block.topics, str) else block.topics[0]
        )

    def finish(self, epoch: int, subtask: int) -> StagedRecords:
        """Bring it to the disk."""
        self._stack.close()
        return StagedRecords(
            self._storage.root,
            self._name,
            epoch,
            subtask,
            self._records,
            self._size,
            self._digest.hexdigest(),
            self._topic,
        )

    def discard(self) -> None:
        """Nobody will commit it."""
        self._stack.__exit__(SinkError, SinkError("the attempt failed"), None)
        self._storage.delete(self._name)


def read_blocks(staged: StagedRecords) -> Iterator[Block]:
    """The blocks of a file, which must be what was written."""
    digest, size, records = hashlib.sha256(), 0, 0
    try:
        stream = open_storage(staged.root).open_read(staged.name)
    except FileNotFoundError:
        raise _not_as_written(staged, "it is not there") from None
    with stream:
        while head := stream.read(4):
            body = stream.read(int.from_bytes(head, "big"))
            digest.update(head)
            digest.update(body)
            size += len(head) + len(body)
            if size > staged.size:
                raise _not_as_written(staged, f"it is longer than {staged.size} bytes")
            try:
                block = _decode(body)
            except msgspec.DecodeError as error:
                raise _not_as_written(staged, str(error)) from error
            records += block.count
            yield block
    if (size, digest.hexdigest(), records) != (staged.size, staged.digest, staged.records):
        raise _not_as_written(staged, f"{size} bytes instead of {staged.size}, or other ones")


def _not_as_written(staged: StagedRecords, why: str) -> SinkError:
    return SinkError(
        f"a staged file is not as it was written: {why}",
        file=f"{shown_root(staged.root)}/{staged.name}",
        epoch=staged.epoch,
        subtask=staged.subtask,
        hint="nothing but this sink may move or change files below 'staged' of the job's folder; if the "
        "transactional id prefix has changed, put it back, for the records may have been written under the former one; "
        "if the file is lost, start from an older checkpoint, whose output is then written once more",
    )


def rows_to_block(rows: list[KafkaProducerRecord]) -> Block:
    """Columns, of records of which each may have everything.

    >>> rows_to_block([KafkaProducerRecord("a", b"1"), KafkaProducerRecord("a", b"2")]).topics
    'a'
    """
    columns: Any = list(zip(*rows, strict=True))
    topics, values, keys, headers, partitions, timestamps = columns
    return Block(
        len(rows),
        topics[0] if len(set(topics)) == 1 else list(topics),
        list(values),
        list(keys) if any(key is not None for key in keys) else None,
        [list(header) for header in headers] if any(headers) else None,
        list(partitions) if any(partition >= 0 for partition in partitions) else None,
        list(timestamps) if any(timestamps) else None,
    )
