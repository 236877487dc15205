"""What a task that fails tells the driver."""

from __future__ import annotations

import sys

import pytest

from millstream.errors import UserFunctionError, decode
from millstream.spark.worker import _guarded


def test_a_function_that_calls_exit_fails_as_functions_do():
    """It would be taken for a failure of Spark's, and tried again for ever."""

    def batches():
        yield from ()
        sys.exit(3)

    with pytest.raises(RuntimeError) as raised:
        list(_guarded(batches))
    error = decode(str(raised.value))
    assert isinstance(error, UserFunctionError)
    assert "the job was ended by SystemExit: 3" in str(error)
    assert "raise an exception instead" in str(error)
