"""A daemon for Spark's Python workers in which a subtask stays in its process (`spark.python.daemon.module`).

To Spark's JVM this is PySpark's own daemon: the JVM connects, is told the pid of a worker, sends it one task after
another, may have that pid killed, and closes the connection. Here a connection and its pid are only a *handle*: the pid
is that of a small process that sleeps. Once the first bytes of a task are there, the daemon looks at them without
taking them, and passes the connection to the process that is to run it (`placement`). A handle that is killed takes the
process that runs its task with it, and the other way round, so that the JVM sees the ends it knows.

One thread of its own and one poll loop. What tasks need is imported before the first process is forked: all share it,
and one that takes the place of another is there at once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import struct
import time
import traceback
import uuid
import warnings
from typing import NoReturn

from pyspark.util import enable_faulthandler

from millstream.spark.slots.head import INCOMPLETE, PEEK_BYTES, Head, read_head
from millstream.spark.slots.placement import Placement
from millstream.spark.slots.process import FREE, live, prepare
from millstream.spark.slots.usable import usable

__all__ = ["Daemon", "main"]

MOST_VARIABLE = "MILLSTREAM_SLOTS_PER_QUERY"
"""How many processes a query may have on one executor; without, four for each core."""

# How long a task waits for its home before it runs elsewhere.
_GRACE = 0.25
# The JVM has let go of a connection whose task still runs: by then the process has noticed, or is killed.
_LEAVING = 1.0
# After so many seconds without a task a process ends: those of queries, those of everything else (as Spark does it),
# and those whose job is over. Another job may be of the same program, and find there what it imports.
_IDLE, _POOL_IDLE, _FREE_IDLE = 600.0, 60.0, 30.0
_RDHUP = getattr(select, "POLLRDHUP", 0x2000)


class _Connection:
    """One of the JVM's connections, with the pid of its handle."""

    def __init__(self, sock: socket.socket, pid: int, *, authenticated: bool) -> None:
        self.sock, self.pid, self.authenticated = sock, pid, authenticated
        self.task: Head | None = None
        self.process: _Process | None = None
        self.since = 0.0
        self.left_at = 0.0


class _Process:
    """A process that runs tasks, of a query or ("") of the pool; of none (None) if that is over."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid, self.control = pid, control
        self.query: str | None = None
        self.number = -1
        self.connection: _Connection | None = None
        self.used = time.monotonic()


class Daemon:
    """Accepts connections, and hands tasks to processes until the JVM closes standard input."""

    def __init__(self, most: int) -> None:
        os.setpgid(0, 0)
        self._placement = Placement(most)
        self._unix = os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "false").lower() == "true"
        self._path: str | None = None
        self._listening = self._listen()
        self._orders = os.fdopen(0, "rb", 4)
        self._announce()
        # Handles end when this process does: they wait for the end of a pipe that nobody else can write to.
        self._alive_read, self._alive_write = os.pipe()
        self._wake, self._waker = socket.socketpair()
        for sock in (self._wake, self._waker):
            sock.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._shutdown(1))
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._poller = select.poll()
        for fd in (0, self._listening.fileno(), self._wake.fileno()):
            self._poller.register(fd, select.POLLIN)
        self._connections: dict[int, _Connection] = {}  # by descriptor
        self._handles: dict[int, _Connection] = {}  # by pid
        self._processes: dict[int, _Process] = {}  # by descriptor of the control socket
        self._groups: dict[str, dict[int, _Process]] = {}  # by query, then number
        self._waiting: list[_Connection] = []  # for their home
        self._incomplete: list[_Connection] = []  # first bytes that are not all there
        self._leaving: list[_Connection] = []  # let go of by the JVM while their task runs

    def _listen(self) -> socket.socket:
        if self._unix:
            folder = os.environ["PYTHON_WORKER_FACTORY_SOCK_DIR"]
            self._path = os.path.join(folder, f".{uuid.uuid4()}.sock")
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listening.bind(self._path)
        elif os.environ.get("SPARK_PREFER_IPV6", "false").lower() == "true":
            listening = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
            listening.bind(("::1", 0, 0, 0))
        else:
            listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listening.bind(("127.0.0.1", 0))
        listening.listen(max(1024, socket.SOMAXCONN))
        return listening

    def _announce(self) -> None:
        """Tell the JVM where to connect."""
        with os.fdopen(1, "wb", 4, closefd=False) as output:
            if self._path is not None:
                name = self._path.encode()
                output.write(struct.pack("!i", len(name)) + name)
            else:
                output.write(struct.pack("!i", self._listening.getsockname()[1]))

    # -- the loop ---------------------------------------------------------------------------------------

    def run(self) -> NoReturn:
        """Until the JVM ends."""
        try:
            while True:
                incomplete, self._incomplete = self._incomplete, []
                patience = 1 if incomplete else 50 if self._waiting or self._leaving else 1000
                for fd, event in self._poller.poll(patience):
                    self._heard(fd, event)
                for connection in incomplete:
                    if connection.sock.fileno() >= 0:
                        self._poller.register(connection.sock, select.POLLIN)
                self._look_around()
        except Exception:
            traceback.print_exc()
        self._shutdown(1)

    def _heard(self, fd: int, event: int) -> None:
        if fd == 0:
            order = self._orders.read(4)
            if len(order) < 4:
                self._shutdown(0)
            (pid,) = struct.unpack("!i", order)
            if pid in self._handles:
                self._drop(self._handles[pid])
        elif fd == self._listening.fileno():
            self._accept()
        elif fd == self._wake.fileno():
            self._reap()
        elif fd in self._processes:
            self._process_says(self._processes[fd])
        elif fd in self._connections:
            connection = self._connections[fd]
            if connection.task is None:
                self._task_begins(connection)
            elif event & (_RDHUP | select.POLLHUP | select.POLLERR):
                self._let_go(connection)

    def _look_around(self) -> None:
        now = time.monotonic()
        self._try_waiting()
        for connection in [c for c in self._leaving if now - c.left_at > _LEAVING]:
            self._drop(connection)
        for process in list(self._processes.values()):
            allowed = {"": _POOL_IDLE, None: _FREE_IDLE}.get(process.query, _IDLE)
            if process.connection is None and now - process.used > allowed:
                self._end(process)

    def _shutdown(self, code: int) -> NoReturn:
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.remove(self._path)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # To everybody in this group: to end.
        os.kill(0, signal.SIGHUP)
        os._exit(code)

    # -- processes --------------------------------------------------------------------------------------

    def _in_child(self) -> None:
        """Keep nothing of the daemon's."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGHUP, signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.close(self._alive_write)
        sockets = [self._listening, self._wake, self._waker]
        sockets += [connection.sock for connection in self._connections.values()]
        sockets += [process.control for process in self._processes.values()]
        for sock in sockets:
            # Detached: an object that is collected later must not close what has its number then.
            os.close(sock.detach())

    def _new_process(self, query: str, number: int) -> _Process:
        free = [process for process in self._processes.values() if process.query is None]
        process = max(free, key=lambda process: process.used) if free else self._fork_process()
        process.query, process.number = query, number
        self._groups.setdefault(query, {})[number] = process
        return process

    def _fork_process(self) -> _Process:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = _fork()
        if pid == 0:
            code = 1
            try:
                self._in_child()
                ours.close()
                os.close(self._alive_read)
                with enable_faulthandler():
                    code = live(theirs)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code if 0 <= code < 256 else 1)
        theirs.close()
        process = _Process(pid, ours)
        self._processes[ours.fileno()] = process
        self._poller.register(ours, select.POLLIN)
        return process

    def _process_says(self, process: _Process) -> None:
        """A task is done, or the process is."""
        try:
            said = process.control.recv(16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._end(process)
            return
        if said == FREE:
            if process.connection is None:
                self._leave_group(process)
                process.used = time.monotonic()
            return
        connection, process.connection = process.connection, None
        process.used = time.monotonic()
        if connection is not None:
            connection.process = connection.task = None
            if connection in self._leaving:
                self._drop(connection)
            else:
                self._poller.modify(connection.sock, select.POLLIN)
        self._try_waiting()

    def _end(self, process: _Process) -> None:
        """A process is over, or is to be: its task fails by the end of its connection, and nothing else does."""
        if self._processes.pop(process.control.fileno(), None) is None:
            return
        self._poller.unregister(process.control)
        process.control.close()
        self._leave_group(process)
        with contextlib.suppress(OSError):
            os.kill(process.pid, signal.SIGKILL)
        connection, process.connection = process.connection, None
        if connection is not None:
            connection.process = None
            _hand_over_last_words(process.pid, connection.pid)
            self._drop(connection)
        self._try_waiting()

    def _leave_group(self, process: _Process) -> None:
        query, process.query = process.query, None
        if query is None:
            return
        group = self._groups[query]
        del group[process.number]
        if not group:
            del self._groups[query]
            self._placement.forget(query)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(4096)
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            ended = [process for process in self._processes.values() if process.pid == pid]
            for process in ended:
                self._end(process)
            if pid in self._handles:
                # As the JVM, or somebody else, ends a worker that has been idle for long.
                self._drop(self._handles[pid])

    # -- connections ------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            sock, _ = self._listening.accept()
        except OSError:
            return
        try:
            pid = _fork()
        except OSError as error:
            with contextlib.suppress(OSError):
                # What the JVM takes for "no worker could be forked".
                sock.sendall(struct.pack("!i", -abs(error.errno or 1)))
            sock.close()
            return
        if pid == 0:
            try:
                self._in_child()
                sock.close()
                os.read(self._alive_read, 1)
            finally:
                os._exit(0)
        connection = _Connection(sock, pid, authenticated=self._unix)
        self._connections[sock.fileno()] = connection
        self._handles[pid] = connection
        self._poller.register(sock, select.POLLIN)
        try:
            sock.sendall(struct.pack("!i", pid))
        except OSError:
            self._drop(connection)

    def _task_begins(self, connection: _Connection) -> None:
        """There is something to read on a connection: look at it, and leave it there for who runs it."""
        try:
            data = connection.sock.recv(PEEK_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        if not connection.authenticated:
            self._authenticate(connection, data)
            return
        task = read_head(data)
        if task is INCOMPLETE:
            self._look_again(connection)
            return
        connection.task = task
        connection.since = time.monotonic()
        # From here on only its end is of interest.
        self._poller.modify(connection.sock, _RDHUP)
        if not self._dispatch(connection):
            self._waiting.append(connection)

    def _look_again(self, connection: _Connection) -> None:
        """In a millisecond: polled now, it would be found readable at once and for ever."""
        self._poller.unregister(connection.sock)
        self._incomplete.append(connection)

    def _authenticate(self, connection: _Connection, data: bytes) -> None:
        size = struct.unpack_from("!i", data)[0] if len(data) >= 4 else 0
        if len(data) < 4 + size or not size:
            self._look_again(connection)
            return
        connection.sock.recv(4 + size)
        secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
        connection.authenticated = data[4 : 4 + size] == secret
        answer = b"ok" if connection.authenticated else b"err"
        with contextlib.suppress(OSError):
            connection.sock.sendall(struct.pack("!i", len(answer)) + answer)
        if not connection.authenticated:
            self._drop(connection)

    def _dispatch(self, connection: _Connection) -> bool:
        """Hand a task to a process; False if it has to wait for one."""
        task = connection.task
        assert task is not None
        group = self._groups.get(task.query, {})
        running = {
            number: None if process.connection is None else process.connection.task
            for number, process in group.items()
        }
        waited = time.monotonic() - connection.since >= _GRACE
        number = self._placement.choose(task, running, waited=waited)
        if number is None:
            return False
        try:
            process = group.get(number) or self._new_process(task.query, number)
        except OSError:
            # No process can be forked: the task fails, and Spark tries it again.
            traceback.print_exc()
            self._drop(connection)
            return True
        try:
            socket.send_fds(process.control, [b"T"], [connection.sock.fileno()])
        except OSError:
            self._end(process)
            return self._dispatch(connection)
        process.connection, connection.process = connection, process
        process.used = time.monotonic()
        return True

    def _try_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for connection in waiting:
            if connection.sock.fileno() < 0:
                continue
            if _is_over(connection.sock):
                # Who has given up must not cost the process that becomes free for it.
                self._drop(connection)
            elif not self._dispatch(connection):
                self._waiting.append(connection)

    def _let_go(self, connection: _Connection) -> None:
        """The JVM has closed the connection of a task that waits or runs. The process that runs it finds the end of its
        input, or fails to write; if it does not notice, it is killed."""
        if connection.process is None:
            self._drop(connection)
            return
        self._poller.unregister(connection.sock)
        connection.left_at = time.monotonic()
        self._leaving.append(connection)

    def _drop(self, connection: _Connection) -> None:
        """A connection is over; if a process still runs its task, so is that."""
        if self._connections.pop(connection.sock.fileno(), None) is None:
            return
        with contextlib.suppress(KeyError):
            self._poller.unregister(connection.sock)
        for connections in (self._waiting, self._incomplete, self._leaving):
            if connection in connections:
                connections.remove(connection)
        self._handles.pop(connection.pid, None)
        # The JVM looks whether its worker is alive once it sees the end: first the process, then the connection.
        with contextlib.suppress(OSError):
            os.kill(connection.pid, signal.SIGKILL)
            os.waitpid(connection.pid, 0)
        connection.sock.close()
        process, connection.process = connection.process, None
        if process is not None:
            process.connection = None
            self._end(process)


def _is_over(sock: socket.socket) -> bool:
    """True if the other side has closed."""
    look = select.poll()
    look.register(sock, _RDHUP)
    return bool(look.poll(0))


def _fork() -> int:
    try:
        return os.fork()
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EINTR):
            raise
        time.sleep(1)
        return os.fork()


def _hand_over_last_words(process: int, handle: int) -> None:
    """The JVM looks for what a crashed worker has written under the pid that it knows."""
    folder = os.environ.get("PYTHON_FAULTHANDLER_DIR")
    if folder:
        with contextlib.suppress(OSError):
            os.replace(os.path.join(folder, str(process)), os.path.join(folder, str(handle)))


def main() -> None:
    """What Spark starts: this daemon, or PySpark's own where this one cannot work."""
    if usable() and os.environ.get("SPARK_REUSE_WORKER"):
        warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork")
        prepare()
        cores = len(os.sched_getaffinity(0))
        Daemon(int(os.environ.get(MOST_VARIABLE) or 4 * cores)).run()
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
