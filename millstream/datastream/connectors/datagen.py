"""Generated records (Flink's `connector.datagen`)."""

from millstream.connectors.datagen import DataGeneratorSource, seeded

__all__ = ["DataGeneratorSource", "seeded"]
