"""The driver's connection to a cluster: its partitions, where they begin and end, what a group has committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NoReturn, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from millstream.connectors.kafka.offsets import KafkaTopicPartition
from millstream.connectors.kafka.settings import CLIENT_LOG, client_config, log, milliseconds
from millstream.connectors.kafka.waiting import let_go, within
from millstream.errors import JobError, SourceError, SourceNotFound

__all__ = ["Cluster", "Troubles", "describe", "hint_for", "missing_topic", "offset_of"]

T = TypeVar("T")
_LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
Part = KafkaTopicPartition

_HINTS = {
    KafkaError._AUTHENTICATION: "check sasl.username, sasl.password, sasl.mechanism and security.protocol",
    KafkaError._SSL: "check security.protocol and the ssl.* properties",
    KafkaError._RESOLVE: "check the host names of the bootstrap servers",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "let the user read and describe the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "let the user read the group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "ask who runs the cluster for the missing permission",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "let the user write transactional ids of the sink's prefix",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic: the broker does not do so by itself",
    KafkaError._UNKNOWN_TOPIC: "create the topic: the broker does not do so by itself",
    KafkaError._UNKNOWN_PARTITION: "add partitions to the topic, or correct what chooses a record's partition",
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic, and message.max.bytes of the sink",
    KafkaError.INVALID_RECORD: "give each record a key if the topic is compacted; or change its cleanup.policy",
    KafkaError.INVALID_TIMESTAMP: "raise message.timestamp.after.max.ms or message.timestamp.before.max.ms of the "
    "topic, or correct what gives a record's timestamp",
}
_AWAY = "check that the broker runs and that this machine reaches it; a job that is restarted goes on where it was"
# How long a single request may take, and for how long a topic may be unknown that was made a moment ago.
_REQUEST = 5.0
_STALE = {
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._NOENT,
}
# Errors that waiting does not mend.
_FINAL = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Troubles:
    """What a client has said of its connections; clients go on trying, and only say so."""

    def __init__(self) -> None:
        self.last: KafkaError | None = None
        self.final: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        """A client's `error_cb`."""
        # "All brokers are down" comes after the reason.
        if self.last is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.last = error
        if error.code() in _FINAL:
            self.final = error


def describe(error: KafkaError | None) -> str | None:
    """An error of the client as people are told of it."""
    return None if error is None else f"{error.name()}: {error.str()}"


def hint_for(*errors: KafkaError | None) -> str:
    """What to do about the first of these that is known."""
    return next((_HINTS[e.code()] for e in errors if e is not None and e.code() in _HINTS), _AWAY)


class Cluster:
    """Connected when it is first asked for something. `kind` is what its errors are."""

    def __init__(
        self,
        properties: Mapping[str, str],
        kind: type[JobError] = SourceError,
        role: str = "driver",
    ) -> None:
        self._properties = properties
        self._kind = kind
        prefix = properties.get("client.id.prefix") or "millstream"
        self._client_id = f"{prefix}-{role}"
        self.servers = properties["bootstrap.servers"]
        self._timeout = milliseconds(properties, "default.api.timeout.ms")
        self.troubles = Troubles()
        level = properties.get("isolation.level", "read_committed")
        self._level = (
            IsolationLevel.READ_COMMITTED
            if level == "read_committed"
            else IsolationLevel.READ_UNCOMMITTED
        )
        self._admin: AdminClient | None = None
        self._group: Consumer | None = None
        # Why the group did not take offsets the last time; said once.
        self._refused: int | None = None

    @property
    def admin(self) -> AdminClient:
        """The client. Kept: its futures fail when it goes."""
        if self._admin is None:
            config = client_config(self._properties, client_id=self._client_id)
            config["error_cb"] = self.troubles
            self._admin = AdminClient(config, logger=CLIENT_LOG)
        return self._admin

    @property
    def group(self) -> Consumer:
        """A consumer that only reads and writes the group's committed offsets."""
        if self._group is None:
            config = client_config(
                self._properties,
                client_id=f"{self._client_id}-group",
                enable_auto_commit=False,
                enable_auto_offset_store=False,
            )
            config |= {"error_cb": self.troubles, "on_commit": self._noted}
            self._group = Consumer(config, logger=CLIENT_LOG)
        return self._group

    def close(self) -> None:
        """Let go of the connections."""
        clients = [client for client in (self._group, self._admin) if client is not None]
        self._group = self._admin = None
        let_go(clients)

    # -- asking ---------------------------------------------------------------------------------------------

    def patiently(self, ask: Callable[[float], T], what: str) -> T:
        """What the cluster answers, if it does in time; `ask` is told how long it may take."""
        until = time.monotonic() + self._timeout
        known = until - self._timeout + _REQUEST
        while True:
            left = until - time.monotonic()
            try:
                # In short steps: a password that is refused is not waited for.
                return ask(max(0.1, min(2.0, left)))
            except KafkaException as error:
                found: KafkaError = error.args[0]
                self.listen()
                self.renew(found)
                final = self.troubles.final
                unknown = found.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
                over = left <= 0 or (unknown and time.monotonic() > known)
                if over or final is not None or found.code() in _FINAL:
                    self.fail(what, found)
            time.sleep(0.1)

    def renew(self, error: KafkaError) -> None:
        """An admin client does not notice by itself that a partition has a new leader, or an old one again."""
        if error.code() in _STALE:
            self.forget_admin()

    def forget_admin(self) -> None:
        """Have a new admin client with the next question."""
        clients, self._admin = [self._admin], None
        let_go(clients)

    def listen(self) -> None:
        """Let the clients say what they have to say: they do so only when they are asked."""
        for client in (self._admin, self._group):
            if client is not None:
                client.poll(0)

    def fail(self, what: str, error: KafkaError | None, **evidence: Any) -> NoReturn:
        """Raise, with what is known of the reason."""
        troubles = self.troubles
        reason = troubles.final or error
        raise self._kind(
            f"{what}: {describe(reason) or 'no answer'}",
            servers=self.servers,
            before=describe(troubles.last) if troubles.last is not reason else None,
            hint=hint_for(reason, error, troubles.last),
            **evidence,
        )

    def topics(self) -> dict[str, int]:
        """All topics, and how many partitions each has."""
        found = self.patiently(
            lambda timeout: self.admin.list_topics(timeout=timeout), "the cluster cannot be reached"
        )
        return {
            name: len(topic.partitions)
            for name, topic in found.topics.items()
            if topic.error is None
        }

    def lacks(self, part: Part) -> bool:
        """True if the cluster answers, at once, and has no such partition."""
        try:
            found = self.admin.list_topics(timeout=1)
        except KafkaException:
            return False
        topic = found.topics.get(part.topic)
        return topic is None or part.partition not in topic.partitions

    def ask_ends(self, parts: Iterable[Part]) -> dict[Part, Future[Any]]:
        """Ask for the ends; the answers come by themselves."""
        return self._ask(parts, _LATEST)

    def ends(self, parts: Iterable[Part]) -> dict[Part, int]:
        """Where each partition ends for a reader of this isolation level."""
        return self._offsets(parts, _LATEST)

    def begins(self, parts: Iterable[Part]) -> dict[Part, int]:
        """The first offset that the broker still has."""
        return self._offsets(parts, _EARLIEST)

    def at_time(self, parts: Iterable[Part], timestamp: int) -> dict[Part, int]:
        """The first record that is not older; the end if there is none."""
        parts = list(parts)
        found = self._offsets(parts, OffsetSpec.for_timestamp(timestamp))
        ends = self.ends([part for part in parts if found[part] < 0])
        return {part: ends.get(part, found[part]) for part in parts}

    def committed(self, parts: Iterable[Part]) -> dict[Part, int | None]:
        """What the group has committed; None where it has nothing."""
        wanted = [TopicPartition(part.topic, part.partition) for part in parts]
        found = self.patiently(
            lambda timeout: within(timeout, lambda: self.group.committed(wanted, timeout=timeout)),
            "the group's offsets cannot be read",
        )
        return {
            Part(known.topic, known.partition): known.offset if known.offset >= 0 else None
            for known in found
        }

    def commit(self, positions: Mapping[Part, int]) -> None:
        """Note for everybody who looks how far the group is. The job does not need it."""
        offsets = [TopicPartition(p.topic, p.partition, at) for p, at in positions.items()]
        try:
            self.group.commit(offsets=offsets, asynchronous=True)
            self.group.poll(0)
        except KafkaException as error:
            log.warning("offsets could not be committed to the group: %s", describe(error.args[0]))

    def _noted(self, error: KafkaError | None, parts: list[TopicPartition]) -> None:
        code = None if error is None else error.code()
        if error is not None and code != self._refused:
            log.warning(
                "offsets could not be committed to the group: %s; a group that others have joined takes them from its "
                "members alone",
                describe(error),
            )
        self._refused = code

    def _ask(self, parts: Iterable[Part], spec: OffsetSpec) -> dict[Part, Future[Any]]:
        wanted = {TopicPartition(part.topic, part.partition): spec for part in parts}
        if not wanted:
            return {}
        asked = self.admin.list_offsets(
            wanted, isolation_level=self._level, request_timeout=_REQUEST
        )
        return {Part(tp.topic, tp.partition): future for tp, future in asked.items()}

    def _offsets(self, parts: Iterable[Part], spec: OffsetSpec) -> dict[Part, int]:
        parts = list(parts)

        def ask(timeout: float) -> dict[Part, int]:
            asked = self._ask(parts, spec)
            return {part: offset_of(future) for part, future in asked.items()}

        try:
            return self.patiently(ask, "the offsets of the topics cannot be read")
        except SourceError as error:
            gone = set(parts) - set(self.partitions_of({part.topic for part in parts}))
            if not gone:
                raise
            raise missing_topic(min(gone), self.servers) from error

    def partitions_of(self, topics: Iterable[str]) -> list[Part]:
        """All partitions of these topics that there are."""
        there = self.topics()
        return [Part(topic, n) for topic in sorted(topics) for n in range(there.get(topic, 0))]


def offset_of(answer: Future[Any]) -> int:
    """The offset that was asked for, -1 if there is none. Without a broker there may be an answer that says nothing."""
    offset = int(answer.result().offset)
    if offset < -1:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker has answered"))
    return offset


def missing_topic(part: Part, servers: str) -> SourceNotFound:
    """The error for a topic, or a partition, that was there."""
    return SourceNotFound(
        f"the partition {part} is not there",
        topic=part.topic,
        servers=servers,
        hint="if the topic was deleted, what was not read of it is lost: take it out of the program, or make it "
        "again and start with a new uid for the source, so that it is read from its beginning",
    )
