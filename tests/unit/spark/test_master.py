"""A master that cannot be reached."""

from __future__ import annotations

import socket

import pytest

from millstream.errors import ClusterUnreachable, ConfigurationError
from millstream.spark.executors import _told
from millstream.spark.master import addresses, lost_master, require_master


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Time:
    """Passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def test_all_addresses_are_tried_and_said() -> None:
    ports, time = (free_port(), free_port()), Time()
    master = f"spark://127.0.0.1:{ports[0]},localhost:{ports[1]}"
    with pytest.raises(ClusterUnreachable) as caught:
        require_master(master, seconds=10, clock=time, sleep=time.pass_by)
    assert caught.value.evidence["tried"].splitlines() == [
        f"127.0.0.1:{ports[0]}: ConnectionRefusedError: [Errno 111] Connection refused",
        f"localhost:{ports[1]}: ConnectionRefusedError: [Errno 111] Connection refused",
    ]
    assert 10 <= time.now < 11


def test_one_that_answers_is_enough_and_one_that_is_started_again_is_waited_for() -> None:
    time = Time()
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]

        def wait(seconds: float) -> None:
            time.pass_by(seconds)
            if time.now > 3:
                server.listen()

        master = f"spark://127.0.0.1:{free_port()},127.0.0.1:{port}"
        require_master(master, seconds=10, clock=time, sleep=wait)
    assert 3 < time.now < 10


def test_a_master_that_spark_finds_otherwise_is_not_looked_for() -> None:
    assert [addresses(master) for master in ("yarn", "local[2]", "local-cluster[2,1,1024]")] == [
        []
    ] * 3


def test_who_answers_and_is_no_master() -> None:
    error = lost_master("spark://a:8080", RuntimeError("All masters are unresponsive! Giving up."))
    assert error is not None
    assert error.evidence["tried"] == "a:8080"
    assert lost_master("spark://a:7077", RuntimeError("no class")) is None
    assert lost_master("yarn", RuntimeError("stopped SparkContext")) is None


def test_what_a_master_has() -> None:
    said = {"aliveworkers": 1, "cores": 2, "coresused": 2, "memory": 1024, "memoryused": 512}
    assert _told(said) == "1 workers, 0 of 2 cores free, 512 of 1024 MB of memory free"


@pytest.mark.parametrize(
    "master", ["https://a:7077", "spark://", "spark://a", "spark://a:x", "foo", "", "local["]
)
def test_what_is_no_master(master: str) -> None:
    with pytest.raises(ConfigurationError, match="no address of a Spark master"):
        require_master(master)


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*,3]", "local-cluster[2,1,1024]"])
def test_masters_that_need_no_address(master: str) -> None:
    require_master(master)
    assert addresses(master) == []
