"""A program whose imports say `millstream` where they said `pyflink` finds every module and every name."""

import importlib
import subprocess
import sys

import cloudpickle
import pytest

from millstream.errors import ModuleNotAvailable, UnsupportedOperation
from millstream.pyflink.answers import _MODULES
from millstream.pyflink.catalogue import modules
from millstream.pyflink.placeholders import Placeholder
from millstream.pyflink.resolve import find


def _own(theirs: str) -> str:
    return "millstream." + theirs.removeprefix("pyflink.")


@pytest.mark.parametrize("theirs", sorted(modules()))
def test_every_public_module_of_pyflink_has_its_path_and_names(theirs: str) -> None:
    module = importlib.import_module(_own(theirs))
    assert module.__name__ == _own(theirs)
    for name in modules()[theirs].names:
        scope: dict[str, object] = {}
        exec(f"from {_own(theirs)} import {name}", scope)
        assert scope[name] is getattr(module, name) is find(theirs, name)


@pytest.mark.parametrize("theirs", sorted(set(_MODULES) - {"pyflink.testing"}))
def test_other_parts_of_pyflink_are_refused_with_what_to_do(theirs: str) -> None:
    with pytest.raises(ModuleNotAvailable) as raised:
        importlib.import_module(_own(theirs) + ".of_theirs" * (theirs == "pyflink.table"))
    assert isinstance(raised.value, ImportError)
    assert raised.value.hint == _MODULES[theirs]


def test_names_that_stand_in_another_module_here() -> None:
    from millstream.datastream.data_stream import (
        BroadcastConnectedStream,
        BroadcastStream,
        ConnectedStreams,
        KeyedStream,
        WindowedStream,
    )
    from millstream.datastream.functions import KeyedProcessFunction, TimerService
    from millstream.metrics.metricbase import Counter

    found = [BroadcastConnectedStream, BroadcastStream, ConnectedStreams, KeyedStream]
    found += [WindowedStream, TimerService, Counter, KeyedProcessFunction]
    assert not any(isinstance(one, Placeholder) for one in found)


def test_what_is_missing_is_refused_when_it_is_used() -> None:
    from millstream.datastream.connectors.rabbitmq import RMQSource  # type: ignore[import-not-found]

    with pytest.raises(UnsupportedOperation, match="RMQSource cannot be used"):
        RMQSource(None, "queue", True, None)


def test_what_pyflink_does_not_have_is_unknown() -> None:
    with pytest.raises(ImportError, match="Nonsense"):
        from millstream.datastream.data_stream import Nonsense  # noqa: F401
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("millstream.nonsense")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("millstream.datastream.nonsense")


def test_a_program_with_real_names_alone_does_not_load_the_catalogue() -> None:
    code = "import sys, millstream.datastream\nprint('millstream.pyflink' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_a_module_travels_to_a_worker() -> None:
    scope: dict[str, object] = {}
    exec("import millstream.common as common\nmake = lambda: common.Row(1, 2)", scope)
    shipped = cloudpickle.dumps(scope["make"]).hex()
    worker = f"import pickle; print(pickle.loads(bytes.fromhex('{shipped}'))())"
    done = subprocess.run(
        [sys.executable, "-c", worker], capture_output=True, text=True, check=True
    )
    assert done.stdout == "<Row(1, 2)>\n"
