"""Sources that run on the driver: sockets and source functions."""

import socket
import threading

import cloudpickle
import pytest

from millstream.api.functions import SourceFunction
from millstream.connectors.buffered import BufferedEnumerator, DriverOnlyReader
from millstream.connectors.socket import SocketTextSource
from millstream.connectors.source_function import SourceFunctionSource
from millstream.errors import FunctionNotSerializable, InvalidArgument, SourceError
from tests.waiting import until


class Counting(BufferedEnumerator):
    """Emits numbers up to a limit."""

    def __init__(self, count, capacity, *, together=False):
        super().__init__("n", capacity)
        self.count = count
        self.together = together

    def run(self):
        if self.together:
            self.emit_all(range(self.count))
        else:
            for number in range(self.count):
                self.emit(number)


@pytest.mark.parametrize("together", [False, True])
def test_a_full_buffer_blocks_until_something_is_committed(together):
    source = Counting(10, 4, together=together)
    source.restored({})
    source.discover()
    until(lambda: source.available("n", 0) == 4)
    assert source.fetch("n", 0, 3) == [0, 1, 2]
    assert source.fetch("n", 0, 3) == [0, 1, 2], "kept until the commit"
    source.commit("n", 3)
    until(lambda: source.available("n", 3) == 7)
    assert source.fetch("n", 3, 7) == [3, 4, 5, 6]
    assert not source.finished("n", 7)
    source.commit("n", 7)
    source.join()
    assert source.fetch("n", 7, 10) == [7, 8, 9]
    assert source.finished("n", 10)
    assert not source.finished("n", 9)
    source.close()


@pytest.mark.parametrize("together", [False, True])
def test_closing_stops_a_thread_that_waits(together):
    source = Counting(10, 2, together=together)
    source.discover()
    until(lambda: source.available("n", 0) == 2)
    source.close()
    assert not source._thread.is_alive()


def test_a_restored_source_counts_on_and_says_what_is_lost(caplog):
    source = Counting(3, 10)
    source.restored({"n": 5})
    source.discover()
    source.join()
    assert source.available("n", 5) == 8
    assert source.fetch("n", 3, 7) == [0, 1]
    assert "records 3 to 5 were lost" in caplog.text
    caplog.clear()
    assert source.fetch("n", 5, 8) == [0, 1, 2]
    assert caplog.text == ""


def test_a_source_that_had_ended_does_not_run_again():
    source = Counting(3, 10)
    source.restored({"n": ~5})
    source.discover()
    assert source._thread is None
    assert source.finished("n", 5)


def test_workers_have_nothing_to_read():
    with pytest.raises(SourceError):
        DriverOnlyReader().read("n", 0, 1)


# -- source functions -----------------------------------------------------------------------------


class Forever(SourceFunction):
    def __init__(self, obedient=True):
        self.obedient = obedient
        self.running = True
        self.closed = False

    def open(self, runtime_context):
        self.name = runtime_context.get_task_name()

    def run(self, ctx):
        while not self.obedient or (self.running and ctx.is_running()):
            try:
                ctx.collect(self.name)
            except Exception:
                continue

    def cancel(self):
        self.running = False

    def close(self):
        self.closed = True


class Failing(Forever):
    def run(self, ctx):
        ctx.collect(1)
        raise ValueError("no more")


@pytest.mark.parametrize("obedient", [True, False])
def test_a_function_runs_until_it_is_cancelled(obedient):
    given = Forever(obedient)
    source = SourceFunctionSource(given, "numbers", buffer_size=10)
    assert source.max_parallelism() == 1
    enumerator = cloudpickle.loads(cloudpickle.dumps(source)).create_enumerator(1)
    enumerator.restored({})
    (split,) = enumerator.discover()
    until(lambda: enumerator.available(split, 0) == 10)
    assert enumerator.fetch(split, 0, 1) == ["numbers"]
    enumerator.close()
    assert not enumerator._thread.is_alive()
    assert enumerator._function.closed
    assert given.running, "the user's own object is not touched"


def test_what_a_function_raises_fails_the_job_with_its_traceback():
    enumerator = SourceFunctionSource(Failing()).create_enumerator(1)
    (split,) = enumerator.discover()
    enumerator.join()
    with pytest.raises(SourceError, match="raised ValueError: no more") as error:
        enumerator.available(split, 0)
    trace = error.value.evidence["traceback"]
    assert 'raise ValueError("no more")' in trace
    assert "source_function.py" not in trace
    assert not enumerator.finished(split, 1)


def test_a_failing_cancel_does_not_keep_the_thread(caplog):
    class Stubborn(Forever):
        def cancel(self):
            raise RuntimeError("no")

    enumerator = SourceFunctionSource(Stubborn(), buffer_size=1).create_enumerator(1)
    enumerator.discover()
    enumerator.close()
    assert not enumerator._thread.is_alive()
    assert "cancel() of the source function" in caplog.text


def test_functions_that_cannot_be_run():
    with pytest.raises(InvalidArgument):
        SourceFunctionSource(print)
    function = Forever()
    function.lock = threading.Lock()
    with pytest.raises(FunctionNotSerializable):
        SourceFunctionSource(function).create_enumerator(1)


# -- sockets --------------------------------------------------------------------------------------


class Server:
    """Serves one list of pieces per connection, then closes it."""

    def __init__(self, *connections):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._connections = connections
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        for pieces in self._connections:
            connection, _ = self._listener.accept()
            with connection:
                for piece in pieces:
                    connection.sendall(piece)
        self._listener.close()

    def join(self):
        self._thread.join()


def lines_from(server, **arguments):
    source = SocketTextSource("127.0.0.1", server.port, retry_seconds=0.01, **arguments)
    enumerator = source.create_enumerator(1)
    enumerator.restored({})
    (split,) = enumerator.discover()
    enumerator.join()
    server.join()
    end = enumerator.available(split, 0)
    assert enumerator.finished(split, end)
    lines = enumerator.fetch(split, 0, end)
    enumerator.close()
    return lines


def test_lines_from_a_server_until_it_closes():
    server = Server([b"one\r\ntw", b"o\n\nz", "wölf".encode()[:2], "wölf".encode()[2:]])
    assert lines_from(server) == ["one", "two", "", "zwölf"]


def test_another_delimiter():
    assert lines_from(Server([b"a\r|", b"|b\n||c"]), delimiter="||") == ["a\r", "b\n", "c"]


def test_bytes_that_are_no_text_are_replaced():
    assert lines_from(Server([b"\xff\n"])) == ["\ufffd"]


def test_a_closed_connection_is_opened_again():
    assert lines_from(Server([b"a\nb"], [b"c\n"]), max_retry=1) == ["a", "b", "c"]


def test_a_server_that_has_closed_and_gone_has_ended():
    assert lines_from(Server([b"a\n"]), max_retry=2) == ["a"]


def test_no_server_is_an_error_that_says_what_to_do():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    source = SocketTextSource("127.0.0.1", port, max_retry=1, retry_seconds=0.01)
    enumerator = source.create_enumerator(1)
    (split,) = enumerator.discover()
    enumerator.join()
    with pytest.raises(SourceError, match="no connection") as error:
        enumerator.available(split, 0)
    assert f"nc -lk {port}" in error.value.hint
    assert error.value.evidence["retries"] == 1
    enumerator.close()


def test_a_quiet_connection_is_closed_with_the_job():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        enumerator = SocketTextSource(*listener.getsockname()[:2]).create_enumerator(1)
        (split,) = enumerator.discover()
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"a\nb")
            until(lambda: enumerator.available(split, 0) == 1)
            enumerator.close()
            assert not enumerator._thread.is_alive()


@pytest.mark.parametrize(
    "arguments",
    [{"port": 0}, {"port": 65536}, {"delimiter": ""}, {"max_retry": -2}, {"buffer_size": 0}],
)
def test_bad_arguments_of_a_socket(arguments):
    with pytest.raises(InvalidArgument):
        SocketTextSource(**{"host": "localhost", "port": 1, **arguments})
