"""Running counts of the words of a topic, into another topic, exactly once.

    python examples/kafka_word_count.py localhost:9092 lines counts /data/checkpoints

Without arguments it starts a broker of its own (Kafka's jars come through Maven), fills a topic, counts it and prints
what a plain consumer finds.
"""

import sys
import tempfile

from millstream.common import Configuration, SimpleStringSchema, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.base import DeliveryGuarantee
from millstream.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)


def count_words(servers: str, lines: str, counts: str, folder: str, *, until_now: bool) -> None:
    """The job. With `until_now` it ends where the topic ends when it starts; else it runs until it is stopped."""
    config = Configuration.from_dict({"execution.checkpointing.dir": folder})
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(2)
    env.enable_checkpointing(1000)

    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(lines)
        .set_group_id("word-count")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
    )
    if until_now:
        source.set_unbounded(KafkaOffsetsInitializer.latest())
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(counts)
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(servers)
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("word-count")
        .build()
    )
    (
        env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "lines")
        .uid("lines")
        .flat_map(str.split)
        .map(lambda word: (word, 1))
        .key_by(lambda pair: pair[0])
        .sum(1)
        .uid("counts")
        .map(lambda pair: f"{pair[0]} {pair[1]}")
        .sink_to(sink)
        .uid("out")
    )
    env.execute("word count of a topic")


def main() -> None:
    """Everything on this machine."""
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    from millstream.testing import kafka_broker

    with kafka_broker() as servers, tempfile.TemporaryDirectory() as folder:
        client = {"bootstrap.servers": servers}
        topics = [NewTopic("lines", 2, 1), NewTopic("counts", 1, 1)]
        admin = AdminClient({**client})
        for made in admin.create_topics(topics).values():
            made.result()
        producer = Producer(client)
        for line in ("the mill turns", "the stream turns the mill", "the stream"):
            producer.produce("lines", line)
        producer.flush()
        count_words(servers, "lines", "counts", folder, until_now=True)
        consumer = Consumer({**client, "group.id": "reader", "auto.offset.reset": "earliest"})
        consumer.subscribe(["counts"])
        for _ in range(10):
            message = consumer.poll(30)
            value = None if message is None else message.value()
            assert value is not None
            print(value.decode())
        consumer.close()


if __name__ == "__main__":
    if len(sys.argv) == 5:
        count_words(*sys.argv[1:], until_now=False)
    else:
        main()
