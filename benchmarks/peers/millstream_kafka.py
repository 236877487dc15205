"""Millstream: Kafka to Kafka with each of its guarantees, checkpoints every second."""

from __future__ import annotations

import tempfile

from kafka_workload import COMMIT_MS, PARTITIONS, arguments, finished, to_line, to_pair

from millstream.api.sink import DeliveryGuarantee
from millstream.common import ByteArraySchema, Configuration, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)

GUARANTEES = {
    "exactly-once": DeliveryGuarantee.EXACTLY_ONCE,
    "at-least-once": DeliveryGuarantee.AT_LEAST_ONCE,
}


def sink(servers: str, topic: str, guarantee: str = "exactly-once") -> KafkaSink:
    """A sink of bytes."""
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    schema.set_value_serialization_schema(ByteArraySchema())
    made = KafkaSink.builder().set_bootstrap_servers(servers).set_record_serializer(schema.build())
    made.set_delivery_guarantee(GUARANTEES[guarantee])
    return made.set_transactional_id_prefix(f"bench-{topic}").build()


def job(
    servers: str, source_topic: str, to: KafkaSink, folder: str, interval: int = COMMIT_MS
) -> None:
    """The job."""
    config = Configuration.from_dict(
        {"execution.checkpointing.dir": folder, "spark.master": f"local[{PARTITIONS}]"}
    )
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(PARTITIONS)
    env.enable_checkpointing(interval)
    source = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(source_topic)
    source.set_value_only_deserializer(ByteArraySchema())
    source.set_unbounded(KafkaOffsetsInitializer.latest())
    (
        env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "in")
        .map(to_pair)
        .key_by(lambda pair: pair[0])
        .sum(1)
        .map(to_line)
        .sink_to(to)
    )
    env.execute("kafka to kafka")


def main() -> None:
    args = arguments()
    args.add_argument("--guarantee", choices=GUARANTEES, default="exactly-once")
    opts = args.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        to = sink(opts.servers, opts.target, opts.guarantee)
        job(opts.servers, opts.source, to, folder)
    finished("millstream")


if __name__ == "__main__":
    main()
