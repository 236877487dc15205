"""A source of your own: splits with positions, so that any epoch can be read again."""

from millstream.common import WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.base import (
    Boundedness,
    Source,
    SourceReader,
    SplitEnumerator,
)

ARCHIVE = {"north": ["3.5", "4.0"], "south": ["21.0", "20.5", "22.0"]}


class Archive(Source):
    def boundedness(self):
        return Boundedness.BOUNDED

    def create_enumerator(self, parallelism):
        return Stations()

    def create_reader(self):
        return StationReader()


class Stations(SplitEnumerator):
    def discover(self):
        return list(ARCHIVE)

    def available(self, split, position):
        return len(ARCHIVE[split])

    def finished(self, split, position):
        return position == len(ARCHIVE[split])


class StationReader(SourceReader):
    def read(self, split, start, end):
        return [(split, float(value)) for value in ARCHIVE[split][start:end]]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
readings = env.from_source(Archive(), WatermarkStrategy.no_watermarks(), "archive")
readings.key_by(0).max(1).print()
env.execute("custom source")
