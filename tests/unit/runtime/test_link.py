"""The line between the driver and a task."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

from millstream.errors import EngineError
from millstream.runtime.driver.flow import Hub
from millstream.runtime.wire.link import (
    Begin,
    End,
    HubAddress,
    LinkClosed,
    Opened,
    Rows,
    Work,
    connect,
)
from millstream.runtime.wire.ranges import SubtaskRanges


@pytest.fixture
def hub():
    made = Hub("127.0.0.1")
    yield made
    made.close()
    made.hang_up()


def from_task(hub):
    return hub.inbox.get(timeout=5)


def test_messages_go_both_ways_in_order(hub):
    task = (0, 7, 1)
    link = connect(hub.address, task)
    hub.wait_for([task], lambda: None)
    work = SubtaskRanges(7, 1, (), False)
    sent = [Begin(3, work), Work(work), End(True)]
    for message in sent:
        hub.tell(task, message)
    assert [link.from_driver(5) for _ in sent] == sent
    link.tell_driver(Opened(3))
    link.tell_driver(Rows([(-1, 0, 0, b"x" * 3_000_000)], last=True))
    assert from_task(hub) == (task, Opened(3))
    assert from_task(hub)[1].rows[0][3] == b"x" * 3_000_000


def test_nothing_in_time_is_none(hub):
    assert connect(hub.address, (1, -1, 0)).from_driver(0.01) is None


def test_who_does_not_know_the_secret_is_turned_away(hub):
    known = hub.address
    with pytest.raises(EngineError, match=r"cannot reach|not the driver"):
        connect(HubAddress(known.host, known.port, b"guessed"), (0, 1, 0))
    assert hub.lines == 0
    assert hub.inbox.empty()


def test_a_task_does_not_listen_to_somebody_else():
    server = socket.create_server(("127.0.0.1", 0))

    def pretend():
        sock, _ = server.accept()
        sock.sendall(b"n" * 32)
        sock.recv(1000)
        sock.sendall(b"wrong answer to the task's nonce")

    threading.Thread(target=pretend, daemon=True).start()
    with pytest.raises(EngineError, match="not the driver"):
        connect(HubAddress("127.0.0.1", server.getsockname()[1], b"secret"), (0, 1, 0))
    server.close()


def test_the_secret_is_not_shown(hub):
    assert hub.address.secret.hex() not in repr(hub.address)
    assert repr(hub.address.secret) not in repr(hub.address)


def test_a_line_that_breaks_is_told_of(hub):
    task = (2, -1, 0)
    link = connect(hub.address, task)
    hub.wait_for([task], lambda: None)
    link.close()
    who, message = from_task(hub)
    assert who == task
    assert isinstance(message, LinkClosed)
    assert hub.lines == 0


def test_a_task_notices_that_the_driver_is_gone(hub):
    task = (2, -1, 0)
    link = connect(hub.address, task)
    hub.wait_for([task], lambda: None)
    hub.hang_up()
    with pytest.raises(LinkClosed):
        link.from_driver(5)


def test_garbage_is_turned_away(hub):
    with socket.create_connection((hub.address.host, hub.address.port)) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
        assert len(sock.recv(32)) == 32
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
    assert hub.inbox.empty()
    assert hub.lines == 0
