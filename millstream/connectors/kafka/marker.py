"""What tells that an epoch has been committed, kept in two places that are written in the epoch's own transaction.

```
the sink's group      offset = epoch + 1, metadata = what follows;
                      on partition 0 of the epoch's first topic and of the commit topic
the commit topic      key = the sink's id, value = what follows; compacted
                      {"epoch": 7, "digest": "9c..."}
```

The group is asked first: it is one request. Brokers forget the offsets of a group that nobody uses (after seven days,
if offsets.retention.minutes says nothing else), and those of a deleted topic at once; the commit topic is read then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from millstream.connectors.kafka.settings import CLIENT_LOG, client_config
from millstream.connectors.kafka.waiting import let_go

__all__ = ["Marker", "create_commit_topic", "from_group", "from_topic"]

_REQUEST = 10.0


@dataclass(frozen=True)
class Marker:
    """The last epoch that a sink has committed, and the digest of its committables.

    >>> Marker.decode(Marker(7, "9c").encode())
    Marker(epoch=7, digest='9c')
    """

    epoch: int
    digest: str

    def encode(self) -> str:
        """The marker as text."""
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str | bytes | None) -> Marker | None:
        """What `encode` wrote; None if it is something else."""
        try:
            return Marker(**json.loads(text or ""))
        except (ValueError, TypeError):
            return None

    def offset(self, topic: str) -> TopicPartition:
        """For the group."""
        return TopicPartition(topic, 0, self.epoch + 1, metadata=self.encode())


def _latest(found: list[Marker | None]) -> Marker | None:
    return max(
        (marker for marker in found if marker is not None),
        key=lambda marker: marker.epoch,
        default=None,
    )


def from_group(consumer: Consumer, topics: Iterable[str]) -> Marker | None:
    """The marker that a consumer's group keeps on one of these topics."""
    wanted = [TopicPartition(topic, 0) for topic in sorted(set(topics))]
    # Not with an admin client, which knows all topics of a group: asking a coordinator that has just moved, it crashes.
    found = consumer.committed(wanted, timeout=_REQUEST)
    return _latest([Marker.decode(part.metadata) for part in found if part.error is None])


def from_topic(properties: dict[str, str], topic: str, name: str) -> Marker | None:
    """The marker that the commit topic keeps for a sink. All of it is read: it is compacted, and has one record for
    each sink, up to where the log ends now. If another sink's transaction is open, a reader is not told what stands
    behind it until it ends."""
    part = TopicPartition(topic, 0, 0)
    config = client_config(
        properties,
        group_id=name,
        isolation_level="read_committed",
        enable_auto_commit=False,
        enable_partition_eof=True,
        auto_offset_reset="earliest",
    )
    # A reader of what is committed would be told that the log ends where it may read to.
    looker = Consumer({**config, "isolation.level": "read_uncommitted"}, logger=CLIENT_LOG)
    consumer = Consumer(config, logger=CLIENT_LOG)
    found: list[Marker | None] = []
    try:
        consumer.assign([part])
        _, end = looker.get_watermark_offsets(part, timeout=_REQUEST)
        while True:
            message = consumer.poll(_REQUEST)
            if message is None:
                raise KafkaException(
                    KafkaError(KafkaError._TIMED_OUT, f"{topic} could not be read")
                )
            error = message.error()
            if error is None:
                if message.key() == name.encode():
                    found.append(Marker.decode(message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                if (message.offset() or 0) >= end:
                    return _latest(found)
            elif not error.retriable():
                raise KafkaException(error)
    finally:
        let_go([consumer, looker])


def create_commit_topic(admin: AdminClient, topic: str) -> None:
    """Make the commit topic, if it is not there."""
    config: dict[str, Any] = {"cleanup.policy": "compact"}
    made = admin.create_topics([NewTopic(topic, 1, -1, config=config)], request_timeout=_REQUEST)
    try:
        made[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
