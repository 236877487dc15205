"""What Spark says of executors whose Python does not fit, as errors of ours; and a worker of another version."""

from __future__ import annotations

import pickle

import pytest

from millstream import __version__
from millstream.errors import EngineError, ExecutorUnusable, JobError, encode
from millstream.spark.failures import translate
from millstream.spark.unfit import unfit
from millstream.spark.worker import load, pack

LOST = (
    "Job aborted due to stage failure: Lost task 0.3 in stage 0.0 (TID 3) (127.0.0.2 executor 1): "
)

# What Spark 4.3 says, shortened.
SAID = {
    "no package": (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        "ModuleNotFoundError: No module named 'millstream'\n",
        "does not have what a job needs",
        {"host": "127.0.0.2", "executor": "1", "missing": "millstream"},
    ),
    "no arrow": (
        "pyspark.errors.exceptions.base.PySparkImportError: [PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be "
        "installed; however, it was not found.\n",
        "does not have what a job needs",
        {"host": "127.0.0.2", "executor": "1", "missing": "PyArrow >= 18.0.0 must be installed"},
    ),
    "another minor version": (
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark "
        "cannot run with different minor versions.\n",
        "runs Python 3.12, the driver 3.11",
        {"host": "127.0.0.2", "executor": "1"},
    ),
    "no such program": (
        'java.io.IOException: Cannot run program "python3.14": error=2, No such file or directory\n',
        "no such Python: python3.14",
        {"host": "127.0.0.2", "executor": "1"},
    ),
    "none that fits what was shipped": (
        "Error from python worker:\n  [millstream-no-python] python3: not there; /usr/bin/python3.11: has glibc 2.17, "
        "the packages need 2.28; \nPYTHONPATH was:\n",
        "fits the environment that was shipped",
        {
            "host": "127.0.0.2",
            "executor": "1",
            "tried": "python3: not there\n/usr/bin/python3.11: has glibc 2.17, the packages need 2.28",
        },
    ),
}


@pytest.mark.parametrize("case", SAID)
def test_what_spark_says_is_our_error(case: str) -> None:
    said, what, evidence = SAID[case]
    error = translate(RuntimeError(LOST + said))
    assert isinstance(error, ExecutorUnusable)
    assert what in error.what
    assert error.evidence == evidence
    assert error.hint is not None
    assert "spark.pyspark.python" in error.hint
    assert len(str(error).splitlines()) < 10


def test_what_the_program_lacks_is_not_the_executors_fault() -> None:
    assert unfit(LOST + "ModuleNotFoundError: No module named 'helpers'") is None
    own = translate(RuntimeError(f"No module named 'pyarrow' {encode(JobError('mine'))}"))
    assert type(own) is JobError
    assert type(translate(RuntimeError("disk full"))) is EngineError


def test_a_worker_of_another_version_says_so_before_it_unpacks_the_job() -> None:
    packed = pack("a job")
    assert packed == __version__.encode() + b"\n" + pickle.dumps("a job")
    with pytest.raises(
        ExecutorUnusable, match=f"has Millstream {__version__}, the driver 99.1"
    ) as caught:
        load("run", b"99.1\nno pickle at all")
    assert caught.value.evidence.keys() == {"host", "python"}
    assert "millstream==99.1" in (caught.value.hint or "")
