"""`import pyflink` gives Millstream's classes, and an answer for every name."""

import importlib
import pickle
import subprocess
import sys
from collections.abc import Iterator

import cloudpickle
import pytest

from millstream.common import ExecutionConfig, Types
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.errors import ModuleNotAvailable, UnsupportedOperation
from millstream.pyflink import install, is_installed, uninstall
from millstream.pyflink.catalogue import modules
from millstream.pyflink.placeholders import Placeholder


@pytest.fixture(autouse=True)
def pyflink() -> Iterator[None]:
    install()
    yield
    uninstall()


@pytest.mark.parametrize("name", sorted(modules()))
def test_every_module_and_name_can_be_imported(name: str) -> None:
    module = importlib.import_module(name)
    assert [one for one in modules()[name].names if getattr(module, one, None) is None] == []


def test_classes_are_millstreams_own() -> None:
    from pyflink.common.typeinfo import Types as theirs
    from pyflink.datastream import StreamExecutionEnvironment as env
    from pyflink.datastream.data_stream import KeyedStream

    from millstream.datastream.keyed_stream import KeyedStream as ours

    assert (theirs, env, KeyedStream) == (Types, StreamExecutionEnvironment, ours)


def test_a_module_also_has_what_it_imports() -> None:
    import pyflink.datastream as api
    from pyflink.datastream.functions import TimerService

    from millstream.api.functions import TimerService as ours

    assert TimerService is ours
    assert api.window.TumblingEventTimeWindows is not None
    with pytest.raises(ImportError, match="Nonsense"):
        from pyflink.datastream import Nonsense  # noqa: F401


def test_what_is_missing_is_refused_when_it_is_used() -> None:
    from pyflink.datastream.connectors import RMQSource as passed_on
    from pyflink.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSource

    assert passed_on is RMQSource
    assert isinstance(RMQSource, Placeholder)
    assert not isinstance(1, RMQSource)
    with pytest.raises(
        UnsupportedOperation, match="RMQSource cannot be used: it is not available yet"
    ):
        RMQSource(None, "queue", True, None)
    with pytest.raises(UnsupportedOperation, match=r"RMQConnectionConfig\.Builder") as raised:
        RMQConnectionConfig.Builder()
    assert "Source" in (raised.value.hint or "")
    with pytest.raises(UnsupportedOperation):
        type("Mine", (RMQSource,), {})


def test_methods_that_are_missing_say_why() -> None:
    from pyflink.common import ExecutionConfig

    with pytest.raises(UnsupportedOperation, match="enable_force_kryo") as raised:
        ExecutionConfig().enable_force_kryo()
    assert "Java" in str(raised.value)


@pytest.mark.parametrize("name", ["pyflink.table", "pyflink.table.udf", "pyflink.java_gateway"])
def test_other_packages_are_refused(name: str) -> None:
    with pytest.raises(ModuleNotAvailable) as raised:
        importlib.import_module(name)
    assert isinstance(raised.value, ImportError)
    assert raised.value.hint


def test_unknown_modules_are_unknown() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("pyflink.nonsense")


def test_a_module_travels_with_its_finder() -> None:
    """A function that names a module (`common.Row(..)`) takes it to a worker in which nothing is installed."""
    code = "import pyflink.common as common\nmake = lambda: common.Row(1, 2)"
    scope: dict[str, object] = {}
    exec(code, scope)
    shipped = cloudpickle.dumps(scope["make"]).hex()
    worker = f"import pickle; print(pickle.loads(bytes.fromhex('{shipped}'))())"
    done = subprocess.run(
        [sys.executable, "-c", worker], capture_output=True, text=True, check=True
    )
    assert done.stdout == "<Row(1, 2)>\n"


def test_functions_are_pickled_as_millstreams() -> None:
    from pyflink.datastream import MapFunction

    assert b"pyflink" not in pickle.dumps(MapFunction)


def test_uninstall_takes_everything_back() -> None:
    printed = DataStream.print
    uninstall()
    assert not is_installed()
    assert DataStream.print is not printed
    assert not hasattr(ExecutionConfig, "enable_force_kryo")
    assert not any(name.partition(".")[0] == "pyflink" for name in sys.modules)
