"""For the tests of programs: a harness for operators, a source with a script, results as lists, a Kafka broker."""

from millstream.api.source import Watermark
from millstream.testing.harness import OperatorHarness
from millstream.testing.kafka import KafkaBroker, kafka_broker
from millstream.testing.results import collect, collect_with_timestamps
from millstream.testing.scripted import (
    ScriptedCrash,
    ScriptedSource,
    crash,
    pause,
    record,
    watermark,
)
from millstream.testing.snapshots import Snapshot

__all__ = [
    "KafkaBroker",
    "OperatorHarness",
    "ScriptedCrash",
    "ScriptedSource",
    "Snapshot",
    "Watermark",
    "collect",
    "collect_with_timestamps",
    "crash",
    "kafka_broker",
    "pause",
    "record",
    "watermark",
]
