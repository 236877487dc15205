"""A job's folder: who may use it, which checkpoint the job starts from, and what is swept away.

```
<checkpoint dir>/<job name>/
  lease.json            which driver runs the job
  chk-12/_metadata      a complete checkpoint
  chk-12/_plan          what the epoch after it reads (`plan_file.py`)
  shared/<uid>/<n>/...  state files, each named by the checkpoints that need it
  terms/000000000017    the last term in which an elected driver has run the job
  parallelism.json      what the job was rescaled to, if it was (`rescale.py`)
```

A job without a checkpoint directory has a temporary folder that goes with it.

A driver that was elected may have been paused, and find when it comes back that another has run the job since. So
whoever takes over begins with a checkpoint of its own, in the place of the one that the former leader may be about to
publish; and what is removed is listed first, then the term is checked, then that is removed and nothing else: what
another leader has written cannot be on a list that was made before its term began.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from millstream.checkpoint.claim import check_claimable, remove_claimed
from millstream.checkpoint.coordinator import Layout
from millstream.checkpoint.lease import TERMS, Lease, latest_term
from millstream.checkpoint.manifest import (
    Manifest,
    check_files,
    is_damage,
    list_epochs,
    manifest_name,
    read_manifest,
    write_manifest,
)
from millstream.checkpoint.pending import left_to_commit, mark_committed
from millstream.checkpoint.restore import (
    check_fits,
    fits_as_is,
    restored_manifest,
    without_sinks,
)
from millstream.checkpoint.savepoint import open_checkpoint
from millstream.errors import (
    ConfigurationError,
    JobLocked,
    LeadershipLost,
    StateError,
    StateNotFound,
    StorageAway,
    told,
)
from millstream.ha.election import Term
from millstream.redaction import get_logger
from millstream.runtime.driver.job import Job
from millstream.runtime.driver.plan_file import START
from millstream.runtime.driver.rescale import WISH, wished
from millstream.storage.open import open_storage
from millstream.storage.seal import Seal
from millstream.storage.storage import Storage, shown_root, stable

__all__ = ["INTENT", "JobFolder", "Start", "job_folder_name"]

_FINISHED = "finished"

_log = get_logger("millstream.job")

# File systems take 255 bytes a name.
_MAX_NAME = 200

# What an epoch under AT_MOST_ONCE is going to read.
INTENT = "intent.json"


def job_folder_name(job_name: str) -> str:
    """The folder of a job below the checkpoint directory. A name that is too long for a file system is cut, and told
    from others that begin as it does by a digest.

    >>> job_folder_name("word count"), len(job_folder_name("x" * 300))
    ('word%20count', 200)
    """
    name = quote(job_name, safe="", errors="surrogatepass").replace(".", "%2E") or "%"
    if len(name) <= _MAX_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    return f"{name[: _MAX_NAME - 33]}-{digest}"


@dataclass(frozen=True)
class Start:
    """Where a job starts: after `manifest`, or from nothing."""

    manifest: Manifest | None
    kept: list[Manifest]
    restored: bool
    finished: bool = False

    @property
    def first_epoch(self) -> int:
        """The number of the first epoch to run."""
        return 0 if self.manifest is None else self.manifest.epoch + 1


class JobFolder:
    """The folder of one job, held from the job's start to its end."""

    def __init__(
        self,
        job: Job,
        temporary: str | None = None,
        term: Term | None = None,
        *,
        elected_by: str = "",
        takes_over: bool = False,
    ) -> None:
        """`term` is that of a driver which an election has chosen, `elected_by` tells which election that was;
        `takes_over` if it goes on with a run that another leader has begun."""
        self._job = job
        self._term = term
        self._elected_by = elected_by
        self._takes_over = takes_over
        settings = job.settings
        self.durable = settings.checkpoint_dir is not None
        if settings.checkpoint_dir is not None:
            base = stable(settings.checkpoint_dir).rstrip("/")
            root = f"{base}/{job_folder_name(settings.name)}"
        else:
            assert temporary is not None
            root = temporary
        with _usable(settings.checkpoint_dir):
            self.storage: Storage = open_storage(
                root, durable=self.durable, seal=Seal.of(settings.key_file)
            )
        self.lease: Lease | None = None
        self.job_id = job.id
        self.own_parallelism = job.graph.parallelism
        """What the program itself says."""
        # Files that stay although no checkpoint may name them any more: somebody is reading them.
        self.pinned: Sequence[Set[str]] = ()
        self._rescaled = False
        self.default_savepoints = settings.savepoint_dir
        self.timeout = settings.checkpoint_timeout
        # Where the job has started from, for people; nothing if it is new.
        self.origin = ""
        self._started = False
        self._committed: Manifest | None = None
        self._claimed = ""

    def open(self) -> None:
        """Take the lease; raises `JobLocked` if another driver has it."""
        if self.durable:
            base = self._job.settings.checkpoint_dir
            assert base is not None
            with _usable(base):
                for storage in (open_storage(stable(base)), self.storage):
                    storage.check_private()
                if self._term is None:
                    self.lease = Lease.acquire(self.storage, self._job.settings.name)
                else:
                    self.lease = self._take_lease(self._term)
            self.storage.expect()
            self.lease.keep()

    def _take_lease(self, term: Term) -> Lease:
        try:
            lease = Lease.take(
                self.storage,
                self._job.settings.name,
                term=term.number,
                elected_by=self._elected_by,
            )
        except JobLocked as loss:
            if self.latest_term() < term.number:
                # Nobody was elected: a driver runs the job that takes no part in it.
                raise
            term.end(loss.what)
            raise LeadershipLost(loss.what) from None
        lease.on_loss = lambda loss: term.end(loss.what)
        return lease

    def latest_term(self) -> int:
        """The number of the last term in which the job was run."""
        return latest_term(self.storage) if self.durable else 0

    def adopt(self) -> Job:
        """The job with the maximum parallelism of the checkpoint that it starts from, wherever the program leaves it
        open (Flink's rule): its keys are in those groups."""
        if self._may_be_anew:
            return self._job
        try:
            manifest = self._begins_with()
        except StateError:
            # It is said when the job starts.
            manifest = None
        if manifest is not None:
            maximums = {uid: info.max_parallelism for uid, info in manifest.operators.items()}
            self._job = self._job.with_max_parallelism(maximums)
        if not self._job.reactive:
            path = self._job.settings.recovery_path
            by_name = path is None or self._was_under_way(list_epochs(self.storage))
            self._job = wished(self.storage, self._job, by_name=by_name)
        return self._job

    def use(self, job: Job) -> None:
        """Go on, from the last checkpoint, with the same job at another parallelism."""
        self._job = job
        self._rescaled = True

    @property
    def _may_be_anew(self) -> bool:
        settings = self._job.settings
        return settings.recovery_path is None and (settings.resume == "never" or not self.durable)

    def _begins_with(self) -> Manifest | None:
        path, epochs = self._job.settings.recovery_path, list_epochs(self.storage)
        if path is not None and not self._was_under_way(epochs):
            return open_checkpoint(path, self.storage.seal)[0]
        return read_manifest(self.storage, epochs[-1]) if epochs else None

    def beside(self, name: str) -> str | None:
        """A folder in the checkpoint directory that is no job's; None if there is no such directory."""
        base = self._job.settings.checkpoint_dir
        return None if base is None else f"{stable(base).rstrip('/')}/{name}"

    def check_lease(self) -> None:
        """Raise if another driver has taken over."""
        if self._term is not None:
            self._term.check()
        if self.lease is not None:
            try:
                self.lease.check()
            except JobLocked as loss:
                if self._term is None:
                    raise
                self._term.end(loss.what)
                raise LeadershipLost(loss.what, hint=loss.hint, **loss.evidence) from None

    def overtaken(self, epoch: int) -> JobLocked:
        """What to raise if somebody else has published a checkpoint."""
        what = f"checkpoint {epoch} has been published by another driver"
        if self._term is None:
            return JobLocked(what, folder=self.storage.root)
        # By the leader before this one, in its last moment: the next term goes on from there.
        self._term.end(what)
        return LeadershipLost(what, folder=self.storage.root)

    def _is_held(self) -> bool:
        try:
            self.check_lease()
        except (JobLocked, StorageAway):
            return False
        return True

    # -- where to start -----------------------------------------------------------------------------------

    def start(self, *, exactly_once: bool) -> Start:
        """The checkpoint to go on from. The first time, what the user asked for; after a failure, the last one."""
        while True:
            try:
                return self._start(exactly_once=exactly_once)
            except FileExistsError:
                # The leader before this one has published a checkpoint in its last moment.
                if self._term is None:
                    raise

    def _start(self, *, exactly_once: bool) -> Start:
        # What no checkpoint names is removed here: it must not be what another driver is writing.
        self.check_lease()
        settings, again = self._job.settings, self._started
        epochs = list_epochs(self.storage)
        if not again and self.storage.exists(_FINISHED) and self._may_resume:
            # The driver was lost while it cleaned up after the end.
            return Start(None, [], restored=False, finished=True)
        if not again and settings.recovery_path is not None and not self._was_under_way(epochs):
            start = self._from_path(settings.recovery_path, epochs)
        else:
            if not again and settings.resume == "never":
                self._remove_all(epochs)
                epochs = []
            start = self._from_latest(epochs, again=again, exactly_once=exactly_once)
        self._started = True
        self._claimed = start.manifest.claims if start.manifest is not None else ""
        if start.manifest is not None or self._term is None:
            # A former leader that has not published anything yet may still do so, and needs its files then.
            self._sweep(start)
        return start

    @property
    def _may_resume(self) -> bool:
        settings = self._job.settings
        return settings.resume != "never" and settings.recovery_path is None

    def _was_under_way(self, epochs: list[int]) -> bool:
        """True if a driver that was started from the same path has died: who starts it again with the same words wants
        it to go on, not to do everything since then once more."""
        if self.lease is None or not self.lease.took_over or not epochs:
            return False
        try:
            latest = read_manifest(self.storage, epochs[-1])
        except StateError:
            return False
        path = self._job.settings.recovery_path
        return path is not None and latest.restored_from == stable(path)

    def _from_path(self, path: str, epochs: list[int]) -> Start:
        manifest, storage = open_checkpoint(path, self.storage.seal)
        layout = self._job.layout(self.job_id)
        own = _place(storage.root) == _place(self.storage.root)
        # In its own folder the job is the one that it would be left to.
        if self._job.settings.claim_mode == "NO_CLAIM" and not own:
            manifest = _left_alone(manifest)
        manifest = self._fitting(manifest, layout, shown_root(path))
        epoch = max([manifest.epoch, *epochs]) + 1
        # Files of the job's own folder are kept for as long as a checkpoint names them, others are not.
        root = "" if own else storage.root
        begin = restored_manifest(manifest, layout, epoch=epoch, root=root)
        # What the engine remembers belongs to the run that was saved.
        claims = stable(path) if self._job.settings.claim_mode == "CLAIM" and not own else ""
        if claims:
            check_claimable(manifest, storage)
        begin = msgspec.structs.replace(begin, restored_from=stable(path), claims=claims, extra={})
        if not own:
            # Read once and gone: not worth a reference into somebody else's folder.
            for fed_back in begin.feedback.values():
                for file in fed_back:
                    self.storage.copy_from(storage, file.name, file.name)
        # It speaks of the job that was here before.
        self.storage.delete(INTENT)
        write_manifest(self.storage, begin)
        self._began(f"starting from {shown_root(path)} (checkpoint {manifest.epoch})")
        return Start(begin, self._kept([*epochs, epoch]), restored=True)

    def _from_latest(self, epochs: list[int], *, again: bool, exactly_once: bool) -> Start:
        settings = self._job.settings
        manifest = self._latest(epochs, exactly_once=exactly_once)
        wanted = settings.resume
        if wanted not in ("auto", "never") and (
            manifest is None or wanted not in (manifest.job_id, settings.name)
        ):
            msg = f"there is no checkpoint of the job {wanted!r} to go on from"
            raise StateNotFound(
                msg,
                folder=shown_root(self.storage.root),
                found="none" if manifest is None else f"{manifest.job_name} ({manifest.job_id})",
                hint="check execution.checkpointing.dir and the job's name",
            )
        if manifest is None:
            return Start(None, [], restored=False)
        self.job_id = manifest.job_id
        manifest = self._left_to_commit(manifest)
        layout = self._job.layout(self.job_id)
        rescaled, self._rescaled = self._rescaled, False
        if again and fits_as_is(manifest, layout):
            # The epoch in which all stores leave their former layout behind may have failed.
            between = any(
                store.parents and not store.segments for store in manifest.stores.values()
            )
            return Start(manifest, self._kept(epochs), restored=between or rescaled)
        where = f"checkpoint {manifest.epoch} of '{settings.name}'"
        manifest = self._fitting(manifest, layout, where)
        self._began(f"going on from checkpoint {manifest.epoch}")
        if not fits_as_is(manifest, layout):
            epoch = epochs[-1] + 1
            manifest = restored_manifest(manifest, layout, epoch=epoch)
            write_manifest(self.storage, manifest)
            epochs = [*epochs, epoch]
        elif self._term is not None:
            manifest = self._claim(manifest, epochs[-1] + 1)
            epochs = [*epochs, manifest.epoch]
            # Whoever has begun the run has shown that all of it can be opened; nobody is to wait for that once more.
            return Start(manifest, self._kept(epochs), restored=not self._takes_over)
        return Start(manifest, self._kept(epochs), restored=True)

    def _claim(self, manifest: Manifest, epoch: int) -> Manifest:
        """The same checkpoint under the next number, which a former leader that comes back cannot publish then."""
        claim = msgspec.structs.replace(manifest, epoch=epoch, origin=manifest.made)
        write_manifest(self.storage, claim)
        return claim

    def _began(self, where: str) -> None:
        self.origin = where
        _log.info(where)

    def _fitting(self, manifest: Manifest, layout: Layout, where: str) -> Manifest:
        """The manifest, if it fits the program; without the output of sinks that the user lets go of."""
        allowed = self._job.settings.allow_non_restored
        check_fits(manifest, layout, where=where, allow_non_restored=allowed)
        gone = without_sinks(manifest, layout)
        if gone:
            names = ", ".join(f"'{manifest.operators[uid].name}' (uid {uid})" for uid in gone)
            _log.warning("%s has output to commit of %s, which is given up", where, names)
        kept = {uid: made for uid, made in manifest.committables.items() if uid not in gone}
        return msgspec.structs.replace(manifest, committables=kept)

    # -- what is committed ---------------------------------------------------------------------------------

    def committed(self, manifest: Manifest, *, write: bool = False) -> None:
        """The sinks have committed what a checkpoint holds; `write` it down now, and not only at the end."""
        if self._committed is None or not _same(self._committed, manifest):
            self._committed = manifest
        if write:
            self._mark_committed()

    def _left_to_commit(self, manifest: Manifest) -> Manifest:
        """The manifest, without committables if they are known to be committed."""
        last = self._committed
        if last is not None and _same(last, manifest):
            return msgspec.structs.replace(manifest, committables={})
        return left_to_commit(self.storage, manifest)

    def _mark_committed(self) -> None:
        last = self._committed
        if last is None or not last.committables or not self.durable:
            return
        try:
            if self.storage.exists(manifest_name(last.epoch)):
                mark_committed(self.storage, last)
        except OSError as error:
            # They are committed once more, then.
            _log.warning("checkpoint %d could not be marked as committed: %s", last.epoch, error)

    def _latest(self, epochs: list[int], *, exactly_once: bool) -> Manifest | None:
        """The newest checkpoint that can be used. Going back further than the last one would repeat output that an
        exactly-once sink has committed, so that is refused."""
        problem: Exception | None = None
        for epoch in reversed(epochs):
            try:
                manifest = read_manifest(self.storage, epoch)
                check_files(self.storage, manifest)
            except StateError as error:
                if not is_damage(error):
                    raise
                if exactly_once:
                    raise
                problem = problem or error
                _log.warning("checkpoint %d cannot be used: %s", epoch, error)
                continue
            if problem is not None:
                _log.warning("falling back to checkpoint %d", epoch)
                self._forget_after(epoch, epochs)
            return manifest
        if problem is not None:
            raise problem
        return None

    def fall_back(self, damage: StateError, *, exactly_once: bool) -> bool:
        """A file of the latest checkpoint turned out to be damaged while it was read. True if there is an older one
        to go on from, which is then the latest."""
        epochs = list_epochs(self.storage)
        if exactly_once or len(epochs) < 2:
            return False
        _log.warning("checkpoint %d cannot be used: %s", epochs[-1], damage)
        self._forget_after(epochs[-2], epochs)
        _log.warning("falling back to checkpoint %d", epochs[-2])
        return True

    def _forget_after(self, epoch: int, epochs: list[int]) -> None:
        for later in epochs:
            if later > epoch:
                self.storage.delete_tree(f"chk-{later}")

    def _kept(self, epochs: list[int]) -> list[Manifest]:
        kept = []
        for epoch in sorted(set(epochs)):
            if self.storage.exists(manifest_name(epoch)):
                try:
                    kept.append(read_manifest(self.storage, epoch))
                except StateError:
                    # Too old to matter, and damaged: nobody can start from it.
                    self.storage.delete_tree(f"chk-{epoch}")
        return kept

    # -- what goes ----------------------------------------------------------------------------------------

    def remove(self, epochs: list[int], files: list[str]) -> None:
        """Remove checkpoints, then files: a manifest never names what is gone."""
        for epoch in epochs:
            self.storage.delete_tree(f"chk-{epoch}")
        for name in files:
            self.storage.delete(name)

    def remove_claimed(self) -> None:
        """Remove what the job was started from, which it has claimed and does not need any more."""
        path, self._claimed = self._claimed, ""
        if not path:
            return
        try:
            remove_claimed(path, self.storage.seal)
        except (OSError, JobLocked) as error:
            _log.warning("%s was claimed, and stays: %s", shown_root(path), error)
        else:
            _log.info("%s was claimed, and is removed", shown_root(path))

    def _sweep(self, start: Start) -> None:
        """Remove what attempts have left behind that no checkpoint names."""
        for folder in self._stores():
            self.check_lease()
            self.storage.delete_hidden(folder)
        needed = set[str]().union(*self.pinned, *(manifest.files() for manifest in start.kept))
        self.sweep(needed)

    def sweep(self, needed: Set[str], before: int | None = None) -> None:
        """Remove state files that are not needed, of epochs before `before`."""
        unneeded = [
            path
            for folder in self._stores()
            for name in self.storage.list(folder)
            if (path := f"{folder}/{name}") not in needed
            and (before is None or (name[:12].isdigit() and int(name[:12]) < before))
        ]
        self.check_lease()
        for path in unneeded:
            self.storage.delete(path)

    def _stores(self) -> list[str]:
        return [
            f"shared/{uid}/{subtask}"
            for uid in self.storage.list("shared")
            for subtask in self.storage.list(f"shared/{uid}")
        ]

    def _remove_all(self, epochs: list[int]) -> None:
        for epoch in epochs:
            self.storage.delete_tree(f"chk-{epoch}")
        # Not `control`: answers may still wait to be read there.
        for folder in ("shared", "work", "spark", START):
            self.check_lease()
            self.storage.delete_tree(folder)
        self.storage.delete(INTENT)
        self.storage.delete(WISH)

    def close(self, *, finished: bool, cancelled: bool) -> None:
        """The job is over. The checkpoints of a finished job go; those of one that was cancelled stay, unless the
        configuration says otherwise; those of a failed job stay."""
        if self.durable:
            drop = self._job.settings.retention == "DELETE_ON_CANCELLATION"
            if (finished or (cancelled and drop)) and self._is_held():
                if finished:
                    # If this driver is lost now, the next one must not take the empty folder for a new job's.
                    self.storage.write(_FINISHED, b"")
                self._remove_all(list_epochs(self.storage))
                self.remove_claimed()
            elif self._is_held():
                self._mark_committed()
        if self.lease is not None:
            self.lease.release()
        if self.durable and finished and (self._term is None or self._term.over is None):
            self.storage.delete(_FINISHED)
            self.storage.delete_tree(TERMS)


@contextlib.contextmanager
def _usable(directory: str | None) -> Iterator[None]:
    """Around the first use of the checkpoint directory: what fails there is a matter of the configuration."""
    try:
        yield
    except OSError as error:
        if directory is None:
            raise
        raise ConfigurationError(
            "the checkpoint directory cannot be used",
            directory=shown_root(directory),
            cause=told(error),
            hint="set execution.checkpointing.dir to a folder, or the URL of one, that this user may write to",
        ) from error


def _place(root: str) -> str:
    """Where a storage is, by whatever name it was opened."""
    path = stable(root).rstrip("/")
    return os.path.realpath(path) if os.path.isabs(path) else path


def _same(first: Manifest, second: Manifest) -> bool:
    return (first.job_id, first.epoch, first.created_at) == (
        second.job_id,
        second.epoch,
        second.created_at,
    )


def _left_alone(manifest: Manifest) -> Manifest:
    """The manifest without what it has left to commit: that is for the job that wrote it."""
    if manifest.committables:
        _log.warning(
            "checkpoint %d of '%s' may have output to commit, which is left to that job "
            "(execution.state-recovery.claim-mode: NO_CLAIM)",
            manifest.made.epoch,
            manifest.job_name,
        )
    return msgspec.structs.replace(manifest, committables={})
