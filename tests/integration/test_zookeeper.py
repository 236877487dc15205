"""Election by a real ZooKeeper, without jobs: who leads when servers come and go."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from millstream.ha.election import Term
from millstream.ha.zookeeper import ZooKeeperElection
from millstream.testing import zookeeper
from millstream.testing.zookeeper import ZooKeeperServer
from tests.waiting import until

# With the tests on Spark, which have Java too.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(180),
    pytest.mark.skipif(zookeeper.missing_tools() is not None, reason="no ZooKeeper can be had"),
]


class Candidate:
    """Stands for election in a thread, again after each term."""

    def __init__(self, quorum: str) -> None:
        self.election = ZooKeeperElection(quorum, "/test", "test", session_timeout=1.0)
        self.term: Term | None = None
        self.seen: list[int] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._stand, daemon=True)
        self._thread.start()

    def _stand(self) -> None:
        while not self._stopped.is_set():
            self.term = self.election.lead(self._stopped, at_least=max(self.seen, default=0))
            if self.term is not None:
                self.seen.append(self.term.number)
                until(lambda: self.term.over or self._stopped.is_set(), 150)

    def close(self) -> None:
        self._stopped.set()
        self.election.close()
        self._thread.join(30)

    @property
    def leads(self) -> bool:
        return self.term is not None and self.term.over is None


@pytest.fixture
def server() -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer() as server:
        yield server


@pytest.mark.parametrize("wiped", [False, True])
def test_servers_that_come_back(server: ZooKeeperServer, wiped: bool) -> None:
    """With their data or without: a client that has seen more than they know is refused for ever."""
    with ExitStack() as stack:
        both = [Candidate(server.quorum) for _ in range(2)]
        for candidate in both:
            stack.callback(candidate.close)
        until(lambda: any(candidate.leads for candidate in both))
        before = max(term for candidate in both for term in candidate.seen)
        server.kill()
        until(lambda: not any(candidate.leads for candidate in both))
        if wiped:
            assert server._folder is not None
            shutil.rmtree(server._folder / "data")
        server.start()
        until(lambda: any(candidate.leads for candidate in both), 90)
        # Both are back: when one leaves, the other leads.
        first, second = sorted(both, key=lambda candidate: candidate.leads, reverse=True)
        first.close()
        until(lambda: second.leads, 90)
        if not wiped:
            assert second.seen[-1] > before
