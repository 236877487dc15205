"""Settings of all tests.

Hypothesis draws the same examples each time, unless it is asked for more: `MILLSTREAM_EXAMPLES=2000`
draws that many, new ones in each run, and a failure prints how to repeat it.
"""

import os
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from millstream.checkpoint.statefile import StateWriter
from tests.compat.scan import misnamed

_examples = os.environ.get("MILLSTREAM_EXAMPLES")

# No deadline: the machines that run the tests are shared, and one slow example proves nothing.
settings.register_profile(
    "millstream",
    deadline=None,
    derandomize=_examples is None,
    max_examples=int(_examples or 100),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("millstream")

_IN_MEMORY = "/dev/shm"


def pytest_configure(config):
    """Under `coverage` the processes that run tests are measured, and not those that a test starts: each would pay for
    it."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        os.environ.pop("COVERAGE_PROCESS_CONFIG", None)


def pytest_sessionfinish():
    """What was measured in this process, which may be ended before `coverage` would write it down by itself."""
    measured = sys.modules.get("coverage")
    if measured is not None and (current := measured.Coverage.current()) is not None:
        current.save()


@pytest.fixture(autouse=True)
def temporary_files_in_memory(request, monkeypatch):
    """In-process jobs write many small state files; a busy disk takes milliseconds for each."""
    on_spark = request.node.get_closest_marker("spark") is not None
    if not on_spark and os.access(_IN_MEMORY, os.W_OK):
        monkeypatch.setattr(tempfile, "tempdir", _IN_MEMORY)


@pytest.fixture(autouse=True)
def state_names_no_module(monkeypatch):
    """Whatever a test writes as state names nothing of the project by a module that may move (`millstream.v`)."""
    found: set[str] = set()
    write = StateWriter._block

    def looked_at(self, body):
        if body[:1] not in b"HE":
            found.update(misnamed(body))
        write(self, body)

    monkeypatch.setattr(StateWriter, "_block", looked_at)
    yield
    assert not found, "state names modules: give these a word in millstream/v.py"


@pytest.fixture(scope="session")
def spark():
    """One Spark session for all tests of this process that need one."""
    from millstream.spark.session import make_session

    session = make_session({"spark.master": "local[2]"})
    yield session
    session.stop()
