"""Kafka: a source whose splits are partitions, and a sink with each of the three guarantees."""
