"""The checker job from Kafka to Kafka, exactly once.

```
topic in ──> copy ─────────────────────────> topic copies    partition by partition as it was read
             └──> key_by ──> count (state) ──> topic counts    each key's records numbered 1, 2, 3 ...
```

The topic to read is full from the start; how much of it is read in an epoch, and where reading ends once somebody asks
for it, is as in `tests.chaos.checker`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from millstream.api.sink import DeliveryGuarantee
from millstream.api.state import ValueStateDescriptor
from millstream.common import Types, WatermarkStrategy
from millstream.common.serialization import SerializationSchema, SimpleStringSchema
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.base import SplitEnumerator
from millstream.datastream.connectors.kafka import (
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from tests.chaos import checker
from tests.chaos.checker import IdSplits, key_of

SERVERS = "MILLSTREAM_TEST_KAFKA"
PARTITIONS = 3
# So that a driver that starts while the broker does waits for it.
_PATIENT = "180000"


class Splits(IdSplits):
    """Partitions, of which little is read at a time, and which end where somebody says."""

    def __init__(self, folder: Path, inner: SplitEnumerator) -> None:
        super().__init__(folder, (), checker.PER_EPOCH)
        self._inner = inner

    def restored(self, positions: dict[str, int]) -> None:
        self._inner.restored(positions)

    def discover(self) -> list[str]:
        return list(self._inner.discover())

    def start(self, split: str) -> int:
        return self._inner.start(split)

    def available(self, split: str, position: int) -> int:
        return min(self._inner.available(split, position), super().available(split, position))

    def commit_all(self, positions: dict[str, int]) -> None:
        self._inner.commit_all(positions)

    def close(self) -> None:
        self._inner.close()


class Stoppable(KafkaSource):
    folder = ""

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        return Splits(Path(self.folder), super().create_enumerator(parallelism))


class Number(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self._count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: str, ctx: Any) -> Sequence[str]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        return [f"{value} {key_of(int(value))} {count}"]


class KeyOf(SerializationSchema):
    def serialize(self, element: str) -> bytes:
        return element.split()[1].encode()


def sink(topic: str, *, by_key: bool) -> KafkaSink:
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    schema.set_value_serialization_schema(SimpleStringSchema())
    if by_key:
        schema.set_key_serialization_schema(KeyOf())
    else:
        schema.set_partitioner(lambda value: int(value) // checker.PER_SPLIT)
    made = KafkaSink.builder().set_bootstrap_servers(os.environ[SERVERS])
    made.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix(topic)
    made.set_property("default.api.timeout.ms", _PATIENT)
    return made.set_record_serializer(schema.build()).build()


def build(env: StreamExecutionEnvironment, folder: Path) -> None:
    builder = KafkaSource.builder().set_bootstrap_servers(os.environ[SERVERS])
    builder.set_topics(f"in-{folder.name}").set_group_id(f"checker-{folder.name}")
    builder.set_property("default.api.timeout.ms", _PATIENT)
    builder.set_property("partition.discovery.interval.ms", -1)
    source = builder.set_value_only_deserializer(SimpleStringSchema()).build()
    source.__class__ = Stoppable
    source.folder = str(folder)
    ids = env.from_source(source, WatermarkStrategy.no_watermarks(), "ids").uid("ids")
    ids.sink_to(sink(f"copies-{folder.name}", by_key=False)).uid("copies")
    numbered = ids.key_by(lambda value: key_of(int(value)), Types.LONG()).process(Number())
    numbered.uid("count").sink_to(sink(f"counts-{folder.name}", by_key=True)).uid("counts")


if __name__ == "__main__":
    checker.main(build)
