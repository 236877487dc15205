"""Spark writers as sinks."""

from millstream.connectors.spark import SparkSink

__all__ = ["SparkSink"]
