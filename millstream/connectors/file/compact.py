"""Fewer and larger files (Flink's `FileCompactStrategy` and `FileCompactor`).

With compaction the files of an epoch stay hidden when they are committed, until there are enough of them: then they
become one, which appears, and they go. What waits stands in a ledger beside the files, one for each job and sink:

```
commit of an epoch   the ledger takes its files                          one write; a repetition finds the epoch there
enough of them       they are made one hidden file; the ledger names it  one write; from here on it will appear
                     the file appears, what it was made from goes        may be repeated
```
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from millstream.api.sink import Committer
from millstream.connectors.file.places import Part, Place, hidden_name, place_of
from millstream.errors import InvalidArgument, SinkError, StateMismatch
from millstream.redaction import get_logger
from millstream.storage.storage import LocalStorage, Storage
from millstream.storage.urls import DataUrl, is_url, open_data

__all__ = [
    "CompactingCommitter",
    "ConcatFileCompactor",
    "FileCompactStrategy",
    "FileCompactor",
    "IdenticalFileCompactor",
]

_log = get_logger("millstream.job")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class FileCompactStrategy:
    """When files are made one: after so many checkpoints, or when so many bytes wait, whichever comes first.

    >>> FileCompactStrategy.builder().enable_compaction_on_checkpoint(5).build().checkpoints
    5
    """

    checkpoints: int | None = None
    size: int | None = None
    threads: int = 1

    @staticmethod
    def builder() -> FileCompactStrategy.Builder:
        """A builder of a `FileCompactStrategy`."""
        return FileCompactStrategy.Builder()

    class Builder:
        """Builds a `FileCompactStrategy`."""

        def __init__(self) -> None:
            self._checkpoints: int | None = None
            self._size: int | None = None
            self._threads = 1

        def enable_compaction_on_checkpoint(
            self, num_checkpoints_before_compaction: int
        ) -> FileCompactStrategy.Builder:
            """Compact after so many checkpoints that had output."""
            self._checkpoints = _positive(num_checkpoints_before_compaction)
            return self

        def set_size_threshold(self, size_threshold: int) -> FileCompactStrategy.Builder:
            """Compact when so many bytes wait."""
            self._size = _positive(size_threshold)
            return self

        def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategy.Builder:
            """How many files are made at once, on the driver (1)."""
            self._threads = _positive(num_compact_threads)
            return self

        def build(self) -> FileCompactStrategy:
            """The strategy, as it was described."""
            if self._checkpoints is None and self._size is None:
                raise InvalidArgument(
                    "at least one condition of compaction is needed",
                    hint="enable_compaction_on_checkpoint(5), set_size_threshold(64 << 20)",
                )
            return FileCompactStrategy(self._checkpoints, self._size, self._threads)


def _positive(number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise InvalidArgument("this must be a whole number above 0", got=repr(number))
    return number


class FileCompactor(ABC):
    """Makes one file of several."""

    single = False
    """True if it takes one file at a time."""

    plain = True
    """True if it joins the bytes of files, whatever they mean."""

    @abstractmethod
    def compact(self, inputs: Sequence[Callable[[], BinaryIO]], output: BinaryIO) -> None:
        """Write the files, each of which is opened by a call, as one."""

    @staticmethod
    def concat_file_compactor(file_delimiter: bytes | None = None) -> FileCompactor:
        """Files one after the other, with bytes between them if they are given. For text.

        >>> import io
        >>> output = io.BytesIO()
        >>> inputs = [lambda: io.BytesIO(b"a"), lambda: io.BytesIO(b"b")]
        >>> FileCompactor.concat_file_compactor(b"-").compact(inputs, output)
        >>> output.getvalue()
        b'a-b'
        """
        return ConcatFileCompactor(file_delimiter)

    @staticmethod
    def identical_file_compactor() -> FileCompactor:
        """Each file as it is: it only appears later."""
        return IdenticalFileCompactor()


class ConcatFileCompactor(FileCompactor):
    """What `FileCompactor.concat_file_compactor` gives."""

    def __init__(self, file_delimiter: bytes | None = None) -> None:
        self._delimiter = file_delimiter

    def compact(self, inputs: Sequence[Callable[[], BinaryIO]], output: BinaryIO) -> None:
        """Copy the files."""
        for place, opened in enumerate(inputs):
            if place and self._delimiter:
                output.write(self._delimiter)
            with opened() as source:
                shutil.copyfileobj(source, output, _CHUNK)


class IdenticalFileCompactor(ConcatFileCompactor):
    """What `FileCompactor.identical_file_compactor` gives."""

    single = True
    plain = False


@dataclass
class _Ledger:
    """What waits: `epoch` is the last that was taken, `digest` tells its files from others, `since` is how many had
    output since the last compaction."""

    epoch: int = -1
    digest: str = ""
    since: int = 0
    waiting: list[Part] = field(default_factory=list)
    # A file that will appear, and the hidden ones that it was made from.
    appearing: list[tuple[Part, list[Part]]] = field(default_factory=list)

    def encode(self) -> bytes:
        body = [self.epoch, self.digest, self.since, self.waiting, self.appearing]
        return json.dumps(body).encode()

    @staticmethod
    def decode(data: bytes) -> _Ledger:
        epoch, digest, since, waiting, appearing = json.loads(data)
        return _Ledger(
            epoch,
            digest,
            since,
            [Part(*fields) for fields in waiting],
            [(Part(*made), [Part(*fields) for fields in of]) for made, of in appearing],
        )


def elsewhere(parts: Iterable[Part], path: str) -> list[str]:
    """The paths other than a sink's own that parts were written to."""
    return sorted({part.path for part in parts if part.path not in ("", path)})


def former_committer(
    committer: Committer,
    path: str,
    known: str,
    strategy: FileCompactStrategy,
    compactor: FileCompactor,
) -> CompactingCommitter:
    """The committer of a sink as it was when it wrote elsewhere; `known` is its path today, which may have the
    credentials."""
    if is_url(path) and is_url(known):
        path = str(DataUrl.parse(known).reaching(path))
    former = CompactingCommitter(path, strategy, compactor)
    former.job_id, former.sink = committer.job_id, committer.sink
    return former


class CompactingCommitter(Committer):
    """Takes the files of an epoch into the ledger, and compacts when it is time."""

    def __init__(self, path: str, strategy: FileCompactStrategy, compactor: FileCompactor) -> None:
        self._path = path
        self._strategy = strategy
        self._compactor = compactor
        self._final: Place = place_of(path)
        self._staged: Place = place_of(path, staged=True)
        self._storage: Storage = (
            open_data(DataUrl.parse(path)) if is_url(path) else LocalStorage(path)
        )
        self._ledgers: dict[str, _Ledger] = {}

    # -- the ledger --------------------------------------------------------------------------------------------

    def _name(self, job_id: str) -> str:
        digest = hashlib.sha256(f"{job_id} {self.sink}".encode()).hexdigest()
        return f".compaction-{digest[:16]}"

    def _ledger(self, job_id: str) -> _Ledger:
        name = self._name(job_id)
        if name not in self._ledgers:
            try:
                ledger = _Ledger.decode(self._storage.read(name))
            except FileNotFoundError:
                ledger = _Ledger()
            except (ValueError, TypeError) as error:
                raise SinkError(
                    f"the list of files that wait for compaction is damaged: {error}",
                    path=self._final.root,
                    ledger=name,
                    hint="put it back from a backup; or rename the hidden files beside it that are to be read, and "
                    "remove the list",
                ) from error
            self._ledgers[name] = ledger
            self._appear(name, ledger)
        return self._ledgers[name]

    def _save(self, name: str, ledger: _Ledger) -> None:
        try:
            self._storage.write(name, ledger.encode())
        except BaseException:
            # What is there is read again.
            self._ledgers.pop(name, None)
            raise

    def starts_from(self, job_id: str, epoch: int) -> None:
        """Go on with what waits; refuse a start from a checkpoint that the ledger is further than."""
        ledger = self._ledger(job_id)
        if ledger.epoch > epoch:
            raise self._too_far(ledger, epoch)
        # The ledger of another job is not looked at again.
        self._compact(self._name(job_id), ledger)

    def _too_far(self, ledger: _Ledger, epoch: int) -> StateMismatch:
        return StateMismatch(
            f"files of epoch {ledger.epoch} were committed, and the job is at epoch {epoch}: what is between them "
            "would be written twice",
            path=self._final.root,
            ledger=self._name(self.job_id),
            hint="start from the job's last checkpoint, or remove the ledger and the files since then",
        )

    def commit(self, epoch: int, committables: Sequence[bytes]) -> None:
        """Take the files, unless they are taken; compact if it is time."""
        if committables:
            ledger = self._take(epoch, committables)
            if self._due(ledger):
                self._compact(self._name(self.job_id), ledger)

    def commit_again(self, epoch: int, committables: Sequence[bytes]) -> None:
        """Take the files, unless they are taken, and compact: they may be those of another job, and the sink may have
        had another path then."""
        parts = [part for committable in committables for part in Part.decode(committable)]
        for path in elsewhere(parts, self._final.root):
            there = [part for part in parts if part.path == path]
            former = former_committer(self, path, self._path, self._strategy, self._compactor)
            former.commit_again(epoch, [Part.encode(there)])
            parts = [part for part in parts if part.path != path]
        if parts:
            ledger = self._take(epoch, [Part.encode(parts)])
            self._compact(self._name(self.job_id), ledger)

    def _take(self, epoch: int, committables: Sequence[bytes]) -> _Ledger:
        parts = [part for committable in committables for part in Part.decode(committable)]
        for part in parts:
            if part.upload:
                # Of a program that did not compact: nobody can read it before it is there.
                self._final.publish(part, epoch)
        parts = [part for part in parts if not part.upload]
        digest = hashlib.sha256("\n".join(sorted(p.hidden for p in parts)).encode()).hexdigest()
        ledger = self._ledger(self.job_id)
        if ledger.epoch < epoch:
            ledger.waiting += parts
            ledger.epoch, ledger.digest = epoch, digest
            ledger.since += 1
            self._save(self._name(self.job_id), ledger)
        elif (ledger.epoch, ledger.digest) != (epoch, digest):
            raise self._too_far(ledger, epoch)
        return ledger

    def _due(self, ledger: _Ledger) -> bool:
        told = self._strategy
        if told.checkpoints is not None and ledger.since >= told.checkpoints:
            return True
        return told.size is not None and sum(part.size for part in ledger.waiting) >= told.size

    # -- compaction --------------------------------------------------------------------------------------------

    def _compact(self, name: str, ledger: _Ledger) -> None:
        groups: dict[Any, list[Part]] = {}
        for place, part in enumerate(ledger.waiting):
            key = place if self._compactor.single else part.bucket
            groups.setdefault(key, []).append(part)
        if not groups:
            return
        epoch = ledger.epoch
        with ThreadPoolExecutor(self._strategy.threads) as threads:
            made = list(threads.map(lambda parts: self._join(parts, epoch), groups.values()))
        ledger.appearing = list(zip(made, groups.values(), strict=True))
        ledger.waiting, ledger.since = [], 0
        self._save(name, ledger)
        self._appear(name, ledger)

    def _join(self, parts: list[Part], epoch: int) -> Part:
        """One hidden file of several."""
        first, mark = parts[0], uuid.uuid4().hex[:8]
        visible = f"compacted-{first.visible}"
        hidden = hidden_name(visible, "c0", epoch, "compaction", mark)
        part = Part(first.bucket, hidden, visible, self._final.root)
        stream = self._final.create(part)
        try:
            inputs = [self._opener(part) for part in parts]
            self._compactor.compact(inputs, stream)
            size = stream.tell()
            return self._final.finish(stream, part)._replace(size=size)
        except FileNotFoundError as error:
            self._final.discard(stream, part)
            raise SinkError(
                f"a file to commit is gone: {error}",
                path=self._final.root,
                epoch=epoch,
                hint="nothing but this sink may move or remove its hidden files before they are compacted",
            ) from error
        except BaseException:
            self._final.discard(stream, part)
            raise

    def _opener(self, part: Part) -> Callable[[], BinaryIO]:
        name = f"{part.bucket}/{part.hidden}" if part.bucket else part.hidden
        return lambda: self._storage.open_random(name)

    def _appear(self, name: str, ledger: _Ledger) -> None:
        """Show what is made, and remove what it was made from."""
        if not ledger.appearing:
            return
        for made, parts in ledger.appearing:
            if not self._final.publish(made, ledger.epoch):
                _log.warning(
                    "%s was compacted and has been moved or removed since", self._final.where(made)
                )
            for part in parts:
                self._staged.discard(None, part)
        self._final.settle({made.bucket for made, _ in ledger.appearing})
        ledger.appearing = []
        self._save(name, ledger)

    def close(self) -> None:
        """Compact what waits: nobody may come who does it later."""
        for name, ledger in list(self._ledgers.items()):
            self._compact(name, ledger)
