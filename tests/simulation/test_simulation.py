"""Random schedules of faults, and proof that the oracle sees what it is there to see."""

from __future__ import annotations

import dataclasses
import os
import random
from collections import Counter
from unittest.mock import patch

import pytest

from millstream.checkpoint import manifest as manifests
from millstream.checkpoint import pending, restore
from millstream.checkpoint.coordinator import Coordinator
from millstream.connectors.file.commit import FileCommitter
from millstream.runtime.driver import epochs, job_folder
from millstream.runtime.driver.epochs import EpochDriver
from millstream.runtime.driver.job_folder import JobFolder
from millstream.runtime.driver.planner import EpochPlanner
from millstream.runtime.state.store import StateStore
from millstream.state import editor
from tests.simulation.disk import SCHEME, Crash, SimDisk, SimStorage
from tests.simulation.world import RATES, Violation, run_seed, simulated

pytestmark = pytest.mark.timeout(600)

SEEDS = int(os.environ.get("MILLSTREAM_SEEDS", "500"))


def test_seeds():
    """All faults have struck, and none has left a trace."""
    seen: Counter = Counter()
    with simulated():
        for seed in range(SEEDS):
            seen.update(line.strip() for line in run_seed(seed).log if "* " in line)
    if SEEDS >= 200:
        assert {f"* {fault}" for fault in RATES} <= set(seen)


def test_a_seed_is_a_run():
    with simulated():
        for seed in (3, 8, 14):
            assert run_seed(seed).log == run_seed(seed).log


# -- what if it were wrong ---------------------------------------------------------------------------------


def commits_first(original):
    def init(self, layout, *, mode="EXACTLY_ONCE", **options):
        mode = "AT_LEAST_ONCE" if mode == "EXACTLY_ONCE" else mode
        original(self, layout, mode=mode, **options)

    return init


def resumes_without_commit(original):
    def resume(self, manifest, kept):
        original(self, manifest, kept)
        return []

    return resume


def removes_too_much(original):
    def clean_up(self):
        [remove] = original(self)
        named = {f for manifest in self._kept for f in manifest.files()}
        also = set(remove.files) | set(sorted(named)[:1] if remove.epochs else ())
        return [dataclasses.replace(remove, files=sorted(also))]

    return clean_up


def believes_itself(original):
    def reach(self, version):
        if self._pending is not None and version is not None and version.segments:
            self._pending = version.segments[-1].name
        return original(self, version)

    return reach


def keeps_its_place(original):
    def rewind(self, *place):
        if self._started is None:
            original(self, *place)

    return rewind


def compacts_too_much(original):
    def replace(self, store, segments):
        compacted = self._compacted.get(store)
        result = original(self, store, segments)
        return [compacted] if compacted is not None and compacted in result else result

    return replace


def publishes_over(original):
    def write(storage, manifest):
        data = manifests.encode_manifest(manifest)
        storage.write(manifests.manifest_name(manifest.epoch), data)
        return len(data)

    return write


def never_fenced(original):
    return lambda self: None


def forgets_to_sweep(original):
    return lambda self, start: None


def forgets_parents(original):
    def restored(manifest, layout, **options):
        made = original(manifest, layout, **options)
        stores = dict(list(made.stores.items())[1:])
        return manifests.msgspec.structs.replace(made, stores=stores)

    return restored


def trusts_any_compaction(original):
    class AsLongAsItIs:
        def __eq__(self, other):
            return True

        __hash__ = None

    def size(self, name):
        return AsLongAsItIs() if "/shared/" in f"/{name}" else original(self, name)

    return size


def drops_what_is_left(original):
    def left(self, manifest):
        return manifests.msgspec.structs.replace(original(self, manifest), committables={})

    return left


def counts_no_output(original):
    return lambda manifest, layout, where: None


def numbers_anew(original):
    return property(lambda self: manifests.Origin(self.job_id, self.epoch))


def forgets_whose(original):
    return property(
        lambda self: manifests.Origin(self.job_id, self.origin.epoch if self.origin else self.epoch)
    )


def insists_on_files(original):
    return lambda self, epoch, committables: self.commit(epoch, committables)


def begins_with_no_rows(original):
    def begin(self):
        self._rows.clear()
        return original(self)

    return begin


def commits_what_is_not_claimed(original):
    return lambda manifest: manifest


def trusts_any_successor(original):
    def is_committed(storage, manifest):
        following = manifests.manifest_name(manifest.epoch + 1)
        return not manifest.savepoint and storage.exists(following)

    return is_committed


def marks_too_early(original):
    def commit(self, command):
        self.folder.committed(command.manifest, write=command.again)
        original(self, command)

    return commit


def writes_no_empty_file(original):
    return property(lambda self: original.fget(self) and self.in_use)


def edits_output_away(original):
    def encode(manifest, *seal):
        return original(manifests.msgspec.structs.replace(manifest, committables={}), *seal)

    return encode


def restores_no_output(original):
    def restored(manifest, layout, *, root="", **options):
        made = original(manifest, layout, root=root, **options)
        return manifests.msgspec.structs.replace(made, committables={}) if root else made

    return restored


MUTANTS = [
    (JobFolder, "_left_to_commit", drops_what_is_left),
    (restore, "_check_sinks", counts_no_output),
    (manifests.Manifest, "made", numbers_anew),
    (manifests.Manifest, "made", forgets_whose),
    (FileCommitter, "commit_again", insists_on_files),
    (EpochDriver, "begin", begins_with_no_rows),
    (EpochDriver, "_commit", marks_too_early),
    (job_folder, "_left_alone", commits_what_is_not_claimed),
    (job_folder, "restored_manifest", restores_no_output),
    (pending, "_is_committed", trusts_any_successor),
    (editor, "encode_manifest", edits_output_away),
    (StateStore, "inherits", writes_no_empty_file),
    (Coordinator, "__init__", commits_first),
    (Coordinator, "_resume", resumes_without_commit),
    (Coordinator, "_clean_up", removes_too_much),
    (Coordinator, "_replace_compacted", compacts_too_much),
    (StateStore, "open", believes_itself),
    (EpochPlanner, "rewind", keeps_its_place),
    (JobFolder, "check_lease", never_fenced),
    (JobFolder, "_sweep", forgets_to_sweep),
    (SimStorage, "size", trusts_any_compaction),
]


@pytest.mark.parametrize(
    ("owner", "name", "mutant"), MUTANTS, ids=lambda one: getattr(one, "__name__", "")
)
def test_a_mutant_is_caught(owner, name, mutant):
    with simulated(), patch.object(owner, name, mutant(getattr(owner, name))):
        assert caught_within(300)


def test_a_job_that_publishes_over_another_is_caught():
    mutant = publishes_over(None)
    with (
        simulated(),
        patch.object(epochs, "write_manifest", mutant),
        patch.object(JobFolder, "check_lease", lambda self: None),
    ):
        assert caught_within(300)


def test_a_restore_that_forgets_a_store_is_caught():
    from millstream.runtime.driver import job_folder

    mutant = forgets_parents(job_folder.restored_manifest)
    with simulated(), patch.object(job_folder, "restored_manifest", mutant):
        assert caught_within(300)


def caught_within(seeds):
    for seed in range(seeds):
        try:
            run_seed(seed)
        except Violation as violation:
            return f"seed {seed}: {violation}"
    return None


# -- the disk -------------------------------------------------------------------------------------------------


def test_the_disk_keeps_what_it_has_promised():
    disk = SimDisk(random.Random(1))
    storage = SimStorage(f"{SCHEME}1/folder", disk)
    storage.write("a/b", b"1")
    storage.publish("a/c", b"2")
    with pytest.raises(FileExistsError):
        storage.publish("a/c", b"3")
    disk.lose_power()
    assert storage.read("a/b") + storage.read("a/c") == b"12"
    assert storage.list("a") == ["b", "c"]
    assert storage.list("") == ["a"]
    assert storage.size("a") is None
    storage.delete_tree("a")
    assert storage.list("") == []


@pytest.mark.parametrize("moment", ["open", "write", "synced", "placed"])
def test_a_crash_leaves_all_of_a_file_or_nothing(moment):
    for seed in range(30):
        disk = SimDisk(random.Random(seed))
        storage = SimStorage(f"{SCHEME}1", disk)
        storage.write("file", b"old")

        def crash(step, path, disk=disk):
            if step == moment:
                disk.crashed = True
                raise Crash(step)

        disk.before = crash
        with pytest.raises(Crash):
            storage.write("file", b"newer")
        with pytest.raises(Crash):
            storage.read("file")
        disk.come_back()
        disk.before = lambda step, path: None
        disk.lose_power()
        assert storage.read("file") == (b"newer" if moment == "placed" else b"old")
        assert storage.list("") == ["file"]


def test_a_removed_file_may_come_back():
    back = 0
    for seed in range(50):
        disk = SimDisk(random.Random(seed))
        storage = SimStorage(f"{SCHEME}1", disk)
        storage.write("file", b"1")
        storage.delete("file")
        disk.lose_power()
        back += storage.exists("file")
    assert 0 < back < 50
