"""The driver's half of the exactly-once sink: an epoch's staged records in one transaction, once.

```
begin     one producer for the sink's id: whoever used the id before is shut out, what it had open is ended
look      is there a marker of this epoch? then its transaction was committed, and nothing is left to do
write     the records of all staged files, the marker in the commit topic and in the sink's group
commit    all of it is visible at once
```

If anything fails, and whatever the broker made of it, the next try begins at the beginning with a new producer: a
transaction that was about to be committed has then been, or has not, and the marker says which.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

from millstream.api.sink import Committer
from millstream.connectors.kafka.cluster import Cluster, Troubles, describe, hint_for
from millstream.connectors.kafka.marker import (
    Marker,
    create_commit_topic,
    from_group,
    from_topic,
)
from millstream.connectors.kafka.settings import (
    CLIENT_LOG,
    DEFAULT_TRANSACTION_MS,
    Properties,
    client_config,
    log,
    milliseconds,
    transaction_config,
    try_out,
)
from millstream.connectors.kafka.staging import Block, StagedRecords, folder_of, read_blocks
from millstream.connectors.kafka.waiting import let_go, within
from millstream.connectors.kafka.write import put
from millstream.errors import SinkError
from millstream.storage.open import open_storage

__all__ = ["KafkaCommitter", "check_cluster"]

# A new client finds a coordinator that has moved sooner than one that waits for it.
_BEGIN = 10.0
_STEP = 30.0
_OFFSETS = 10.0
_CLEAN_EVERY = 64


class KafkaCommitter(Committer):
    """Commits epochs. Made when a job starts, which is when it finds out whether it can."""

    def __init__(
        self, properties: Properties, prefix: str, commit_topic: str, topics: Sequence[str]
    ) -> None:
        self._properties = properties
        self._prefix = prefix
        self._commit_topic = commit_topic
        self._cluster = Cluster(properties, SinkError, "committer")
        self._timeout_ms = check_cluster(self._cluster, properties, topics)
        # With what the broker allows.
        try_out("Producer", transaction_config(properties, timeout_ms=self._timeout_ms))
        self._patience = milliseconds(properties, "millstream.commit.timeout.ms")
        self._session: _ProducerSession | None = None
        self._has_topic = False
        self._commits = 0
        # By root and folder, the epoch that was committed last.
        self._folders: dict[tuple[str, str], int] = {}

    def commit(self, epoch: int, committables: Sequence[bytes]) -> None:
        """Write what was staged in an epoch."""
        self._commit(epoch, committables, again=False)

    def commit_again(self, epoch: int, committables: Sequence[bytes]) -> None:
        """Write what was staged in an epoch, unless the marker says that it was written."""
        self._commit(epoch, committables, again=True)

    def _commit(self, epoch: int, committables: Sequence[bytes], *, again: bool) -> None:
        if not committables:
            return
        files = sorted(
            map(StagedRecords.decode, committables),
            key=lambda staged: (staged.subtask, staged.name),
        )
        digest = hashlib.sha256(b"\n".join(sorted(committables))).hexdigest()[:32]
        # Without a job's id, epoch 0 of each run would look like the first run's.
        name = transactional_id(self._prefix, self.job_id or digest, self.sink)
        until = time.monotonic() + self._patience
        while True:
            began = time.monotonic()
            try:
                session = self._begin(name, files[0].topic, again=again)
                if not session.has_committed(epoch, digest, again=again):
                    session.write(files, Marker(epoch, digest))
                break
            except (KafkaException, SystemError) as error:
                refused = {} if self._session is None else self._session.refused
                self._forget_session()
                lasted = time.monotonic() - began
                self._look_at(_reason(error), epoch, lasted, until, refused)
            except BaseException:
                self._forget_session()
                raise
            time.sleep(0.5)
        self._clean(epoch, files)

    def _begin(self, name: str, topic: str, *, again: bool) -> _ProducerSession:
        if not self._has_topic:
            create_commit_topic(self._cluster.admin, self._commit_topic)
            self._has_topic = True
        if self._session is None or self._session.name != name or self._session.is_shaken():
            self._forget_session()
            # As a producer, an admin client may wait in vain for a coordinator that it knew before.
            self._cluster.forget_admin()
            self._session = _ProducerSession(
                self._properties, name, self._commit_topic, self._timeout_ms
            )
            self._session.begin(topic, again=again)
        return self._session

    def _forget_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _look_at(
        self,
        error: KafkaError,
        epoch: int,
        lasted: float,
        until: float,
        refused: Mapping[str, Any],
    ) -> None:
        """Raise, unless trying again may help. `refused` says where a record was to go that the broker did not take."""
        self._cluster.listen()
        self._cluster.renew(error)
        evidence = {"servers": self._cluster.servers, "epoch": epoch, **refused}
        said = f"epoch {epoch} cannot be committed: {describe(error)}"
        if lasted * 1000 >= self._timeout_ms:
            raise SinkError(
                said,
                lasted=f"{lasted:.0f} s",
                timeout=f"transaction.timeout.ms is {self._timeout_ms}",
                hint="the broker ends transactions after transaction.timeout.ms: raise it (and "
                "transaction.max.timeout.ms of the broker), or have shorter epochs "
                "(execution.checkpointing.interval). Nothing is lost: the records "
                "are staged, and are written when the job starts again",
                **evidence,
            )
        final = self._cluster.troubles.final
        if time.monotonic() < until and final is None and error.code() not in _FINAL:
            log.warning("%s; trying again", said)
            return
        raise SinkError(said, hint=hint_for(final, error), **evidence)

    def _clean(self, epoch: int, files: Sequence[StagedRecords]) -> None:
        """Remove what is written; now and then also what attempts that failed have left."""
        for file in files:
            folder = file.name.rpartition("/")[0]
            self._folders[file.root, folder] = epoch
            with contextlib.suppress(OSError):
                open_storage(file.root).delete(file.name)
        if self._commits % _CLEAN_EVERY == 0:
            self._sweep()
        self._commits += 1

    def _sweep(self) -> None:
        for (root, folder), epoch in self._folders.items():
            with contextlib.suppress(OSError):
                storage = open_storage(root)
                for name in storage.list(folder):
                    if name[:12].isdigit() and int(name[:12]) <= epoch:
                        storage.delete(f"{folder}/{name}")

    def close(self) -> None:
        """Let go of the connections."""
        self._forget_session()
        self._sweep()
        for root, folder in self._folders:
            with contextlib.suppress(OSError):
                storage = open_storage(root)
                if folder == folder_of(self.job_id, self.sink) and not storage.list(folder):
                    storage.delete_tree(folder)
        self._cluster.close()


def transactional_id(prefix: str, job_id: str, sink: str) -> str:
    """The name of a sink's transactions, and of its group.

    >>> transactional_id("orders", "4f2a", "grüße")
    'orders-4f2a-gr\\\\xfc\\\\xdfe'
    """
    # The client refuses to write a group's offsets if there is more than plain characters in its name.
    return f"{prefix}-{job_id}-{sink}".encode("unicode_escape").decode()


# What another try does not mend.
_FINAL = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.POLICY_VIOLATION,
    KafkaError._AUTHENTICATION,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_RECORD,
}


class _ProducerSession:
    """A producer that has shut out its predecessors, and what the marker said when it began."""

    def __init__(
        self,
        properties: Properties,
        name: str,
        commit_topic: str,
        timeout_ms: int,
    ) -> None:
        self.name = name
        self._properties = properties
        self._commit_topic = commit_topic
        self._undelivered: KafkaError | None = None
        self.refused: dict[str, Any] = {}
        self._marker: Marker | None = None
        self._troubles = Troubles()
        self._producer = Producer(
            {
                **transaction_config(properties, name, timeout_ms),
                "on_delivery": self._failed,
                "error_cb": self._troubles,
            },
            logger=CLIENT_LOG,
        )
        self._consumer = Consumer(
            client_config(properties, group_id=name, enable_auto_commit=False), logger=CLIENT_LOG
        )

    def _failed(self, error: KafkaError | None, message: Message) -> None:
        # What a transaction loses when it is ended says nothing of why it was.
        if error is not None and error.code() not in (
            KafkaError._PURGE_QUEUE,
            KafkaError._PURGE_INFLIGHT,
        ):
            if self._undelivered is None:
                self.refused = {"topic": message.topic(), "partition": message.partition()}
            self._undelivered = self._undelivered or error

    def is_shaken(self) -> bool:
        """True if a connection was lost since it began. A client that has been through that may wait for ever, whatever
        timeout it is given, for the answer of a group's coordinator: a new one does not."""
        self._producer.poll(0)
        return self._troubles.last is not None

    def begin(self, topic: str, *, again: bool) -> None:
        """Shut out whoever was here before, then look for the marker."""
        within(_BEGIN, lambda: self._producer.init_transactions(_BEGIN))
        topics = [topic, self._commit_topic]
        try:
            self._marker = within(_OFFSETS, lambda: from_group(self._consumer, topics))
        except KafkaException as error:
            # A broker that was killed just after a commit may leave the group's part of it open for ever, and then does
            # not tell its offsets; the next commit ends it. Without any marker nobody knows what was committed.
            if error.args[0].code() != KafkaError._TIMED_OUT:
                raise
            log.warning("the group %s does not answer: looking in the commit topic", self.name)
            self._marker = self._in_topic()
            if self._marker is None:
                raise
        if self._marker is None and again:
            self._marker = self._in_topic()

    def _in_topic(self) -> Marker | None:
        return within(_STEP, lambda: from_topic(self._properties, self._commit_topic, self.name))

    def has_committed(self, epoch: int, digest: str, *, again: bool) -> bool:
        """True if the marker says so."""
        marker = self._marker
        if marker is None or marker.epoch < epoch:
            return False
        if marker == Marker(epoch, digest):
            log.info("epoch %d of %s was committed before", epoch, self.name)
            return True
        if marker.epoch > epoch and again:
            # Epochs are committed in order: this one was, and others after it.
            log.info(
                "epoch %d of %s was committed before, as %d was", epoch, self.name, marker.epoch
            )
            return True
        raise SinkError(
            f"epoch {epoch} has been committed before, with other records",
            sink=self.name,
            committed=f"epoch {marker.epoch}, digest {marker.digest}",
            hint="two jobs write under one name, or the job's folder was put back to an older state. Give each "
            "job its own transactional id prefix; to write the records once more on purpose, choose a new prefix",
        )

    def write(self, files: Sequence[StagedRecords], marker: Marker) -> None:
        """Write the records of an epoch and its marker, in one transaction."""
        producer = self._producer
        self._undelivered = None
        producer.begin_transaction()
        try:
            for file in files:
                for block in read_blocks(file):
                    _put_block(producer, block)
                    producer.poll(0)
                    if self._undelivered is not None:
                        raise KafkaException(self._undelivered)
            put(producer, self._commit_topic, marker.encode().encode(), self.name.encode(), (), 0)
            self._flush()
            if self.is_shaken():
                raise KafkaException(self._troubles.last)
            topics = sorted({files[0].topic, self._commit_topic})
            offsets = [marker.offset(topic) for topic in topics]
            group = self._consumer.consumer_group_metadata()
            within(_OFFSETS, lambda: producer.send_offsets_to_transaction(offsets, group, _OFFSETS))
            within(_STEP, lambda: producer.commit_transaction(_STEP))
        except (KafkaException, SystemError) as error:
            raise KafkaException(self._undelivered or _reason(error)) from error
        self._marker = marker

    def _flush(self) -> None:
        """Wait for the broker as long as it takes: it ends the transaction if that is too long."""
        while self._producer.flush(1.0):
            if self._undelivered is not None:
                raise KafkaException(self._undelivered)
            if self._troubles.final is not None:
                raise KafkaException(self._troubles.final)
        if self._undelivered is not None:
            raise KafkaException(self._undelivered)

    def close(self) -> None:
        """Leave whatever is open to the next one of this name."""
        clients = [self._producer, self._consumer]
        del self._producer, self._consumer
        let_go(clients)


def _reason(error: BaseException) -> KafkaError:
    """What the client says. When it is shut out for good while it calls back, Python sees a SystemError around it."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, KafkaException):
        found = found.__cause__ or found.__context__
    if found is None:
        raise error
    reason: KafkaError = found.args[0]
    return reason


def _put_block(producer: Producer, block: Block) -> None:
    count = block.count
    topics = [block.topics] * count if isinstance(block.topics, str) else block.topics
    nothing: list[Any] = [None] * count
    if block.headers is None and block.partitions is None and block.timestamps is None:
        produce = producer.produce
        for topic, value, key in zip(topics, block.values, block.keys or nothing, strict=True):
            try:
                produce(topic, value, key)
            except BufferError:
                put(producer, topic, value, key)
        return
    for row in zip(
        topics,
        block.values,
        block.keys or nothing,
        block.headers or nothing,
        block.partitions or [-1] * count,
        block.timestamps or [0] * count,
        strict=True,
    ):
        put(producer, *row)


def check_cluster(cluster: Cluster, properties: Properties, topics: Sequence[str]) -> int:
    """Find out before the first record whether the cluster will take transactions of this length and has the topics.
    Gives the transactions' timeout in milliseconds."""
    there = cluster.topics()
    limits = _broker_settings(cluster)
    missing = [topic for topic in topics if topic not in there]
    if missing and limits.get("auto.create.topics.enable") == "false":
        raise SinkError(
            f"there is no such topic: {', '.join(missing)}",
            servers=cluster.servers,
            hint="create it: the broker does not do so by itself",
        )
    given = properties.get("transaction.timeout.ms")
    most = int(limits.get("transaction.max.timeout.ms") or DEFAULT_TRANSACTION_MS)
    if given is None:
        return min(DEFAULT_TRANSACTION_MS, most)
    if int(given) > most:
        raise SinkError(
            "transaction.timeout.ms is longer than the broker allows",
            transaction_timeout_ms=given,
            transaction_max_timeout_ms=most,
            servers=cluster.servers,
            hint="lower the property, or raise transaction.max.timeout.ms of the brokers",
        )
    return int(given)


def _broker_settings(cluster: Cluster) -> dict[str, str]:
    """What the brokers say of themselves; nothing if they do not tell this user."""
    try:
        found = cluster.admin.list_topics(timeout=10)
        broker = ConfigResource(ResourceType.BROKER, str(next(iter(found.brokers))))
        (answer,) = cluster.admin.describe_configs([broker], request_timeout=10).values()
        return {name: str(entry.value) for name, entry in answer.result().items()}
    except (KafkaException, StopIteration) as error:
        log.info("the broker's settings cannot be read: %s", error)
        return {}
