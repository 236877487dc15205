"""Election by ZooKeeper.

```
<root>/<cluster id>/<name>/candidates/<uuid>-0000000042   ephemeral: a process that leads (the first) or stands by
<root>/<cluster id>/<name>/term                           the last term's number and leader; only leaders write it
```

A term begins with one transaction that raises the number in `term`, and that fails unless this session's candidate is
there. It ends with the connection: as soon as that is suspended nobody can say whether the session has run out, and
with it the leadership. The leader also asks ZooKeeper several times in each session timeout whether it still leads,
through the ensemble's own leader (`sync`), and counts its term as over when the answers stay away for a whole
timeout.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from millstream.checkpoint.lease import elapsed, is_gone, this_process
from millstream.errors import ConfigurationError, RuntimeUnusable, told
from millstream.ha.election import Candidate, LeaderElection, Term
from millstream.redaction import get_logger

__all__ = ["ZooKeeperElection"]

_log = get_logger("millstream.job")

_CONFIRMATIONS = 4  # in each session timeout
_LOOK = 0.2  # seconds between two looks at the candidates, if no watch tells of a change before
# A server that restarts is back in a second; kazoo's own waits grow to a minute.
_RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_delay": 0.5, "max_jitter": 0.2}
_CONNECT = 15.0
_ANEW = 3  # session timeouts without an answer, after which a new client is made


class _TermRecord(msgspec.Struct, frozen=True, kw_only=True):
    term: int
    leader: str


class ZooKeeperElection(LeaderElection):
    """Elects below a path of an ensemble. With `watch_process`, a candidate whose process ran on this machine and is
    certainly gone is removed before its session has run out."""

    def __init__(
        self,
        quorum: str,
        path: str,
        name: str,
        *,
        session_timeout: float,
        watch_process: bool = True,
    ) -> None:
        self._quorum = quorum
        self._path = path.rstrip("/")
        self._name = name
        self._timeout = session_timeout
        self._watch_process = watch_process
        self._id = uuid.uuid4().hex
        self._own: str | None = None
        self._term: Term | None = None
        self._breaks = 0  # how often the connection was suspended or lost
        self._closed = threading.Event()
        self._changed = threading.Event()
        self._lock = threading.Lock()
        record = this_process(name, session_timeout)
        self._self = Candidate.of(record)
        self._client = self._connect(max(_CONNECT, session_timeout))

    @property
    def place(self) -> str:
        return f"zookeeper {self._path}"

    # -- the connection -------------------------------------------------------------------------------------

    def _connect(self, seconds: float) -> Any:
        kazoo = _kazoo()
        try:
            client = kazoo.client.KazooClient(
                hosts=self._quorum,
                timeout=self._timeout,
                connection_retry=_RECONNECT,
                logger=_quiet(),
            )
        except Exception as error:
            raise ConfigurationError(
                "the ZooKeeper quorum cannot be read",
                quorum=self._quorum,
                said=told(error),
                hint="set high-availability.zookeeper.quorum to host:port,host:port",
            ) from None
        client.add_listener(self._heard)
        try:
            client.start(seconds)
        except Exception as error:
            client.stop()
            client.close()
            raise RuntimeUnusable(
                "ZooKeeper cannot be reached",
                quorum=self._quorum,
                said=told(error),
                hint="check high-availability.zookeeper.quorum, and that the servers run",
            ) from None
        return client

    def _heard(self, state: str) -> bool | None:
        """Called by kazoo's own thread, which must not be kept waiting."""
        if state != "CONNECTED":
            self._breaks += 1
            if self._term is not None:
                what = "suspended" if state == "SUSPENDED" else "lost"
                self._term.end(f"the connection to ZooKeeper was {what}")
        self._changed.set()
        return None

    def _ask(self, call: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        """The answer to one of kazoo's asynchronous calls. The others wait for ever if no server is there."""
        return call(*arguments, **more).get(timeout=self._timeout)

    # -- standing by ----------------------------------------------------------------------------------------

    def lead(
        self,
        stopped: threading.Event,
        waiting: Callable[[Candidate | None], None] = lambda leader: None,
        at_least: int = 0,
    ) -> Term | None:
        if self._term is not None:
            self._term.end("the driver stands for election again")
            self._term = None
        silent_since: float | None = None
        while not stopped.is_set():
            try:
                # Before the look: what comes after it is seen at the next one.
                self._changed.clear()
                breaks = self._breaks
                first = self._first()
                if first == self._own:
                    term = self._begin(at_least, breaks)
                    if term is not None:
                        return term
                elif first is not None:
                    waiting(self._leader(first))
                    self._watch(first)
                    self._wait(stopped)
                silent_since = None
            except _kazoo_errors() as error:
                waiting(None)
                _log.debug("ZooKeeper does not answer: %s", error)
                now = time.monotonic()
                silent_since = silent_since or now
                if now - silent_since > _ANEW * self._timeout:
                    # The session is over by now, and servers that have lost their data refuse a client that has seen
                    # more than they know, for ever.
                    self._connect_anew()
                    silent_since = now
                self._wait(stopped)
        return None

    def _connect_anew(self) -> None:
        old = self._client
        try:
            self._client = self._connect(self._timeout)
        except RuntimeUnusable:
            return
        old.stop()
        old.close()

    def _wait(self, stopped: threading.Event) -> None:
        if not stopped.is_set():
            self._changed.wait(_LOOK)

    def _first(self) -> str | None:
        """The first of all candidates; this process is one afterwards."""
        names = self._candidates()
        own = [name for name in names if name.startswith(self._id)]
        for name in own:
            # What a request has made whose answer was lost, or a session that is over, does not count twice.
            stat = self._ask(self._client.exists_async, f"{self._path}/candidates/{name}")
            if stat is None or stat.owner_session_id != self._client.client_id[0] or name != own[0]:
                self._remove(name)
                names.remove(name)
            else:
                self._own = name
                return names[0]
        path = f"{self._path}/candidates/{self._id}-"
        made = self._ask(
            self._client.create_async,
            path,
            msgspec.json.encode(self._self),
            ephemeral=True,
            sequence=True,
            makepath=True,
        )
        self._own = made.rpartition("/")[2]
        return None

    def _candidates(self) -> list[str]:
        try:
            names = self._ask(self._client.get_children_async, f"{self._path}/candidates")
        except _kazoo().exceptions.NoNodeError:
            return []
        return sorted(names, key=lambda name: name.rpartition("-")[2])

    def _leader(self, name: str) -> Candidate | None:
        try:
            data, _ = self._ask(self._client.get_async, f"{self._path}/candidates/{name}")
            return msgspec.json.decode(data, type=Candidate)
        except (_kazoo().exceptions.NoNodeError, msgspec.DecodeError):
            return None

    def _watch(self, first: str) -> None:
        """Hear of the end of the candidate before this one; see whether the leader's process is gone."""
        names = self._candidates()
        before = names[: names.index(self._own)] if self._own in names else []
        if not before:
            self._changed.set()
            return
        path = f"{self._path}/candidates/{before[-1]}"
        if self._ask(self._client.exists_async, path, watch=self._seen) is None:
            self._changed.set()
        leader = self._leader(first) if self._watch_process else None
        if leader is not None and _has_died(leader):
            _log.info("the leader %s has died on this machine", leader)
            self._remove(first)
            self._changed.set()

    def _seen(self, event: object) -> None:
        self._changed.set()

    def _remove(self, name: str) -> None:
        with contextlib.suppress(_kazoo().exceptions.NoNodeError):
            self._ask(self._client.delete_async, f"{self._path}/candidates/{name}")

    # -- a term ---------------------------------------------------------------------------------------------

    def _begin(self, at_least: int, breaks: int) -> Term | None:
        """Raise the number of the term; None if another was quicker, or the session has ended."""
        exceptions = _kazoo().exceptions
        node = f"{self._path}/term"
        asked = elapsed()
        try:
            data, stat = self._ask(self._client.get_async, node)
        except exceptions.NoNodeError:
            nothing = msgspec.json.encode(_TermRecord(term=0, leader=""))
            with contextlib.suppress(exceptions.NodeExistsError):
                self._ask(self._client.create_async, node, nothing, makepath=True)
            return None
        number = max(msgspec.json.decode(data, type=_TermRecord).term, at_least) + 1
        transaction = self._client.transaction()
        transaction.check(f"{self._path}/candidates/{self._own}", -1)
        record = _TermRecord(term=number, leader=str(self._self))
        transaction.set_data(node, msgspec.json.encode(record), stat.version)
        answers = self._ask(transaction.commit_async)
        if any(isinstance(answer, Exception) for answer in answers):
            return None
        term = Term(number, valid_for=self._session_seconds(), since=asked)
        self._term = term
        if self._breaks != breaks:
            # Between the look at the candidates and now, when nobody was there to be told.
            term.end("the connection to ZooKeeper was suspended")
        threading.Thread(
            target=self._confirm, args=(term, self._own), name="millstream-leader", daemon=True
        ).start()
        return term

    def _session_seconds(self) -> float:
        """The session timeout that the server has agreed to."""
        agreed = getattr(self._client, "_session_timeout", None)
        return float(agreed) / 1000 if agreed else self._timeout

    def _confirm(self, term: Term, own: str | None) -> None:
        path = f"{self._path}/candidates/{own}"
        while not self._closed.wait(self._session_seconds() / _CONFIRMATIONS):
            if term.over is not None:
                return
            asked = elapsed()
            try:
                self._ask(self._client.sync_async, path)
                if self._ask(self._client.exists_async, path) is None:
                    term.end("its node in ZooKeeper is gone")
                    return
            except _kazoo_errors():
                # `over` tells when that has been too long.
                continue
            term.confirm(asked)

    # -- around it ------------------------------------------------------------------------------------------

    def leader(self) -> Candidate | None:
        names = self._candidates()
        return self._leader(names[0]) if names else None

    def candidates(self) -> list[Candidate]:
        """All that take part, the leader first."""
        found = [self._leader(name) for name in self._candidates()]
        return [candidate for candidate in found if candidate is not None]

    def close(self) -> None:
        self._closed.set()
        if self._term is not None:
            self._term.end("the driver has left the election")
        # Ends the session, and with it the candidate.
        self._client.stop()
        self._client.close()


def _has_died(candidate: Candidate) -> bool:
    record = msgspec.structs.replace(
        this_process("", 0.0),
        host=candidate.host,
        pid=candidate.pid,
        machine=candidate.machine,
        process_start=candidate.process_start,
    )
    return is_gone(record)


def _kazoo() -> Any:
    try:
        import kazoo.client
        import kazoo.exceptions
        import kazoo.handlers.threading
    except ImportError:
        raise RuntimeUnusable(
            "high availability with ZooKeeper needs kazoo, which is not installed",
            hint="pip install 'millstream[zookeeper]'",
        ) from None
    return kazoo


def _kazoo_errors() -> tuple[type[Exception], ...]:
    kazoo = _kazoo()
    return (kazoo.exceptions.KazooException, kazoo.handlers.threading.KazooTimeoutError)


def _quiet() -> Any:
    """kazoo tells of every reconnection as a warning; here the end of a term is told of."""
    logger = get_logger("millstream.zookeeper")
    logger.setLevel("ERROR")
    return logger
