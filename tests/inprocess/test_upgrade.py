"""`millstream run --upgrade`: a changed program takes over from the running one, or leaves it alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from millstream.checkpoint.manifest import decode_manifest, list_epochs
from millstream.checkpoint.savepoint import open_checkpoint
from millstream.cli import main
from millstream.cli import upgrade as upgrade_module
from millstream.common.job_status import JobStatus
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.runtime.driver import savepoints
from millstream.storage.storage import LocalStorage
from tests.crashes import COUNT, EACH_ONCE, Files, Numbers, Seen, dying_at, environment, run
from tests.inprocess.test_control import answer_to, file_request, lease_of
from tests.waiting import until

PROGRAM = """
from tests.crashes import *
from tests.inprocess.test_upgrade import *

env = environment(Path({folder!r}), parallelism={parallelism})
numbers = Watched({count})
stream = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
stream = stream.key_by(lambda n: n % 7).process({function}).uid({uid!r})
stream.sink_to(Files.sink(Out(Path({folder!r})))).name("out").uid("sink")
env.execute("job")
"""


class Watched(Numbers):
    """Notes that somebody has asked for its splits."""

    asked = 0

    def create_enumerator(self, parallelism):
        Watched.asked += 1
        return super().create_enumerator(parallelism)


class Out:
    """Where `Files` writes, without a folder for what is taken."""

    def __init__(self, folder):
        self.folder = folder / "out"


class Doubting(Seen):
    """Cannot be opened."""

    def open(self, runtime_context):
        super().open(runtime_context)
        raise ConnectionError("there is no such host")


class Other(Seen):
    """The same, with one state more."""

    def open(self, runtime_context):
        from millstream.datastream.state import ValueStateDescriptor

        super().open(runtime_context)
        self.more = runtime_context.get_state(ValueStateDescriptor("more"))


class Less(Seen):
    """Has no place for the state that is there."""

    def open(self, runtime_context):
        self.seen = set()

    def process_element(self, value, ctx):
        yield value


def old_job(folder, outlet, count=COUNT, **options):
    """The program before: all that there is to read is read, and it waits for more."""
    env = environment(folder, **options)
    source = Numbers(count, unbounded=True)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    stream = stream.key_by(lambda n: n % 7).process(Seen()).uid("each")
    stream.sink_to(outlet.sink()).name("out").uid("sink")
    client = env.execute_async("job")
    until(lambda: outlet.read().total() == count)
    return client


def script(folder, *, count=2 * COUNT, function="Seen()", uid="each", parallelism=2):
    path = folder / "program.py"
    path.write_text(
        PROGRAM.format(
            folder=str(folder), count=count, function=function, uid=uid, parallelism=parallelism
        )
    )
    return str(path)


def upgrade(*words):
    return CliRunner().invoke(main, ["run", "--upgrade", *words])


def files_of(folder):
    """All there is of a job, but for what is renewed all the time."""
    job = folder / "checkpoints" / "job"
    return {p.relative_to(job): p.read_bytes() for p in job.rglob("*") if p.is_file()} | {
        Path("lease.json"): b""
    }


@pytest.fixture
def outlet(tmp_path):
    return Files(tmp_path)


@pytest.mark.parametrize("function", ["Seen()", "Other()"])
@pytest.mark.parametrize("parallelism", [2, 3])
def test_the_new_program_goes_on(tmp_path, outlet, function, parallelism):
    client = old_job(tmp_path, outlet)
    done = upgrade(script(tmp_path, function=function, parallelism=parallelism))
    assert done.exit_code == 0, done.output
    assert "All state of checkpoint" in done.output
    assert "The upgrade is done: " in done.output
    assert outlet.read() == Counter(range(2 * COUNT))
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert client._run.handed_over
    saved = done.output.partition("Savepoint of the program before: ")[2].split()[0]
    assert Path(saved).parent == tmp_path / "checkpoints" / "savepoints"
    assert open_checkpoint(saved)[0].savepoint
    assert list((tmp_path / "checkpoints").glob(".proofs/*")) == []


def test_those_that_stand_by_leave_the_job_to_the_new_program(tmp_path, outlet):
    """A standby of the program before ends with it, and the new one does not."""
    options = {"high__availability_type": "file", "millstream_progress": "false"}
    client = old_job(tmp_path, outlet, **options)
    standby = old_job(tmp_path, outlet, **options)._run
    until(lambda: standby.leading.standing_by)
    done = upgrade("-Dhigh-availability.type=file", script(tmp_path))
    assert done.exit_code == 0, done.output
    assert outlet.read() == Counter(range(2 * COUNT))
    assert client._run.wait(30)
    assert standby.wait(30)
    assert (client._run.status, standby.status) == (JobStatus.FINISHED, JobStatus.FINISHED)
    # What the standby has found may be the end of the new program already.
    assert client._run.handed_over
    assert "The upgrade is done: " in done.output


REFUSALS = {
    "another uid": ({"uid": "other"}, "has state of operators that the program does not have"),
    "no place for a state": ({"function": "Less()"}, "[STATE_MISMATCH]"),
    "a function that does not open": ({"function": "Doubting()"}, "there is no such host"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_a_program_that_does_not_fit_leaves_the_running_one_alone(tmp_path, outlet, what):
    options, why = REFUSALS[what]
    client = old_job(tmp_path, outlet)
    before = files_of(tmp_path)
    Watched.asked = 0
    done = upgrade(script(tmp_path, **options))
    assert done.exit_code == 1
    assert why in done.output
    assert "not done; the running job goes on" in done.output
    assert Watched.asked == 0
    until(lambda: files_of(tmp_path) == before, 20)
    assert list((tmp_path / "checkpoints").glob(".proofs/*")) == []
    assert client.get_job_status().result() is JobStatus.RUNNING
    # And it can be upgraded by one that does.
    done = upgrade(script(tmp_path))
    assert done.exit_code == 0, done.output
    assert outlet.read() == Counter(range(2 * COUNT))


def test_what_does_not_fit_may_be_left_behind(tmp_path, outlet):
    old_job(tmp_path, outlet)
    done = upgrade("-n", script(tmp_path, function="Less()"))
    assert done.exit_code == 0, done.output
    assert outlet.read() == Counter(range(2 * COUNT))


def test_a_rescaled_job_is_upgraded_at_what_it_was_rescaled_to(tmp_path, outlet):
    client = old_job(tmp_path, outlet)
    client.rescale(4).result(20)
    done = upgrade(script(tmp_path))
    assert done.exit_code == 0, done.output
    assert outlet.read() == Counter(range(2 * COUNT))


def test_without_a_running_job_it_is_an_ordinary_start(tmp_path, outlet):
    done = upgrade(script(tmp_path))
    assert done.exit_code == 0, done.output
    assert "No job 'job' is running: this is an ordinary start." in done.output
    assert outlet.read() == Counter(range(2 * COUNT))


def test_without_a_checkpoint_directory_nothing_is_found(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "from millstream.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment('in-process')\n"
        "env.from_collection([1]).print()\n"
        "env.execute()\n"
    )
    done = upgrade(str(program))
    assert done.exit_code == 1
    assert "finds the running job in the checkpoint directory" in done.output


@pytest.mark.parametrize("place", ["restore", "source read", "before manifest", "after manifest"])
@pytest.mark.parametrize("then", ["old", "new"])
def test_a_new_program_that_dies_after_the_handover(tmp_path, outlet, place, then):
    """Whichever of the two is started by the job's name goes on."""
    client = old_job(tmp_path, outlet)
    # The driver of the new program is the only one that comes to a place from here on.
    with dying_at(place):
        done = upgrade(script(tmp_path))
    assert "Died" in done.output, done.output
    assert client._run.handed_over
    if then == "old":
        outlet.take()
        run(tmp_path, outlet.sink())
        assert outlet.read() == EACH_ONCE
    else:
        done = CliRunner().invoke(main, ["run", script(tmp_path)])
        assert done.exit_code == 0, done.output
        assert outlet.read() == Counter(range(2 * COUNT))


def test_an_old_driver_that_dies_meanwhile(tmp_path, outlet, monkeypatch):
    """It is taken over from as after any death."""
    client = old_job(tmp_path, outlet)

    def dies(*_):
        # What is left of a driver that was killed here: no threads, no answer, and a lease that nobody renews.
        client.cancel().result(20)

    prove = upgrade_module._prove
    monkeypatch.setattr(upgrade_module, "_prove", lambda *given: (prove(*given), dies()))
    done = upgrade(script(tmp_path))
    assert done.exit_code == 0, done.output
    assert "has ended meanwhile" in done.output
    assert outlet.read() == Counter(range(2 * COUNT))


def test_a_savepoint_that_fails_keeps_the_old_one_running(tmp_path, outlet, monkeypatch):
    client = old_job(tmp_path, outlet)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(savepoints, "write_savepoint", full)
    done = upgrade(script(tmp_path))
    assert done.exit_code == 1
    assert "No space left on device" in done.output
    assert "not done; the running job goes on" in done.output
    assert client.get_job_status().result() is JobStatus.RUNNING
    client.cancel().result(20)


# -- checkpoints that are lent -----------------------------------------------------------------------------------


def test_what_is_lent_stays_until_it_is_given_back(tmp_path):
    from tests.inprocess.test_control import start as live

    records: list[object] = []
    client = live(tmp_path, [], records)
    until(lambda: len(records) > 100)
    answer = answer_to(tmp_path, file_request(tmp_path, "lend"))
    storage = LocalStorage(str(tmp_path / "checkpoints" / "live"))
    manifest = decode_manifest("lent", storage.read(answer.path))
    assert manifest.files()
    until(lambda: list_epochs(storage)[0] > manifest.epoch + 5)
    client.rescale(3).result(20)
    until(lambda: list_epochs(storage)[0] > manifest.epoch + 15)
    assert all(storage.exists(name) for name in manifest.files())
    storage.delete(answer.path)
    until(lambda: not client._run._driver.savepoints._lent, 10)
    client.cancel().result(20)
    assert lease_of(tmp_path) is None


def test_what_is_lent_is_taken_back_after_its_time(tmp_path):
    from tests.inprocess.test_control import start as live

    records: list[object] = []
    client = live(tmp_path, [], records)
    until(lambda: records)
    answer = answer_to(tmp_path, file_request(tmp_path, "lend", valid_for=1.0))
    storage = LocalStorage(str(tmp_path / "checkpoints" / "live"))
    until(lambda: not storage.exists(answer.path), 10)
    client.cancel().result(20)


def test_an_unknown_request_is_answered(tmp_path):
    from tests.inprocess.test_control import start as live

    client = live(tmp_path, [], [])
    until(lambda: lease_of(tmp_path) is not None)
    answer = answer_to(tmp_path, file_request(tmp_path, "explode"))
    assert "does not know what 'explode' is" in answer.error
    client.cancel().result(20)
