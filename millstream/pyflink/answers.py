"""Why a name of PyFlink's is not there, and what to do instead.

The nearest answer counts: that of the method, of its class, of the module.
"""

from __future__ import annotations

from millstream.errors import UnsupportedOperation

__all__ = ["answer", "missing_module", "unavailable"]

_JAVA = "it wraps an object of Flink's Java library, and no Java runs in a Millstream program"
_YET = "it is not available yet"

_FILES = "read and write text files with FileSource and FileSink (connectors.file_system)"
_SINK = "write a Sink or a SinkFunction in Python, or use SparkSink"
_SOURCE = "write a Source or a SourceFunction in Python, or env.from_dataframe(spark_frame)"
_KAFKA = "use KafkaSource and KafkaSink (connectors.kafka)"
_SERIALIZE = "leave it out: records are serialized by Python, and Java's serializers are not used"

# key: (why it is missing, what to do). Keys: module, module:Class, module:Class.method; without `pyflink.`.
_ANSWERS: dict[str, tuple[str, str]] = {
    "common.execution_config:ExecutionConfig": (_JAVA, _SERIALIZE),
    "common.input_dependency_constraint": (_JAVA, "leave it out: it has no effect in Flink 2 either"),
    "common.io": (_JAVA, f"{_FILES}, or write a Source in Python"),
    "common.serialization": (_JAVA, "write lines with FileSink.for_row_format and an Encoder"),
    "common.typeinfo": (_JAVA, "use the types of Types, or leave the type out: records are then pickled"),
    "common.types": (_JAVA, "compare with RowKind's members"),
    "common.utils": (_JAVA, "use Millstream's classes; none of them has a Java object"),
    "common.watermark_strategy": (_JAVA, "use WatermarkStrategy.for_generator, or one of the others"),
    "datastream.async_data_stream": (_YET, "call the service in a map or process function"),
    "datastream.async_retry_predicates": (_YET, "call the service in a map or process function"),
    "datastream.async_retry_strategies": (_YET, "call the service in a map or process function"),
    "datastream.checkpoint_storage": (_JAVA, "set execution.checkpointing.dir"),
    "datastream.connectors.base": (_JAVA, "connect the stream before the sink: sinks have no transformer"),
    "datastream.connectors.cassandra": (_YET, _SINK),
    "datastream.connectors.dynamic_kafka": (_YET, _KAFKA),
    "datastream.connectors.elasticsearch": (_YET, _SINK),
    "datastream.connectors.file_system": (_YET, _FILES),
    "datastream.connectors.file_system:FileSink": (
        _YET,
        "write ORC with SparkSink; a sink has no transformer, connect the stream before it",
    ),
    "datastream.connectors.file_system:StreamingFileSink": (_YET, "FileSink is its successor"),
    "datastream.connectors.hybrid_source": (_YET, "union the two streams, or read the files first"),
    "datastream.connectors.jdbc": (_YET, "use PostgresSink (millstream.datastream.connectors.postgres)"),
    "datastream.connectors.kafka": (_JAVA, _KAFKA),
    "datastream.connectors.kinesis": (_YET, f"{_SOURCE}; {_SINK}"),
    "datastream.connectors.pulsar": (_YET, f"{_SOURCE}; {_SINK}"),
    "datastream.connectors.rabbitmq": (_YET, f"{_SOURCE}; {_SINK}"),
    "datastream.data_stream:CachedDataStream": (_YET, "write the stream to files and read them"),
    "datastream.formats.csv": (_YET, "leave it out: each column has one separator for its lists"),
    "datastream.formats.json": (_YET, "read lines and parse them in a map function with json.loads"),
    "datastream.formats.orc": (_YET, "write ORC with SparkSink"),
    "datastream.functions:AsyncFunction": (_YET, "call the service in a map or process function"),
    "datastream.functions:JavaFunctionWrapper": (_JAVA, "write the function in Python"),
    "datastream.functions:AsyncFunctionDescriptor": (_JAVA, "use AsyncDataStream"),
    "datastream.state_backend": (_JAVA, "set state.backend.type to hashmap or lmdb"),
    "datastream.utils": (_JAVA, "leave it out: there are no Java objects to convert"),
    "datastream.window": ("it is a helper of PyFlink's own triggers", "leave it out"),
}  # fmt: skip

_MODULES = {
    "pyflink.table": "write the program with the DataStream API, or in Spark SQL: env.from_dataframe(frame) "
    "and stream.to_dataframe() go from one to the other",
    "pyflink.java_gateway": "there is no Java behind a program",
    "pyflink.fn_execution": "this is PyFlink's own machinery, which is not part of its API",
    "pyflink.testing": "millstream.testing has harnesses for functions, windows and whole programs",
    "pyflink.util": "this is PyFlink's own machinery, which is not part of its API",
    "pyflink.shell": "start Python and import millstream",
    "pyflink.version": "millstream.__version__ is the version",
    "pyflink.serializers": "this is PyFlink's own machinery, which is not part of its API",
    "pyflink.proto": "this is PyFlink's own machinery, which is not part of its API",
    "pyflink.gen_protos": "this is PyFlink's own machinery, which is not part of its API",
    "pyflink.find_flink_home": "there is no Flink behind a program",
    "pyflink.pyflink_gateway_server": "there is no Java behind a program",
    "pyflink.pyflink_callback_server": "there is no Java behind a program",
    "pyflink.examples": "examples/pyflink holds programs to start from",
}


def answer(module: str, name: str, member: str | None = None) -> tuple[str, str]:
    """Why `name` of a module of PyFlink's (or a member of it) is missing, and what to do.

    >>> answer("pyflink.datastream.formats.orc", "OrcBulkWriters")
    ('it is not available yet', 'write ORC with SparkSink')
    """
    short = module.removeprefix("pyflink.")
    for key in (f"{short}:{name}.{member}", f"{short}:{name}", short):
        if key in _ANSWERS:
            return _ANSWERS[key]
    return _YET, "see docs/api_status.md for what there is"


def unavailable(module: str, name: str, member: str | None = None) -> UnsupportedOperation:
    """The error for using a name that Millstream does not serve."""
    why, instead = answer(module, name, member)
    subject = f"{name}.{member}" if member else name
    return UnsupportedOperation(
        f"{subject} cannot be used: {why}", of=f"{module}.{subject}", hint=instead
    )


def missing_module(module: str) -> str | None:
    """What to do instead of importing a module; None if PyFlink has no such module either.

    >>> missing_module("pyflink.shell")
    'start Python and import millstream'
    """
    for prefix, instead in _MODULES.items():
        if module == prefix or module.startswith(prefix + "."):
            return instead
    return None
