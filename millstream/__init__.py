"""Millstream: a stream processor in Python.

Flink's DataStream API and guarantees (event time, keyed state, consistent snapshots), running on
Spark through PySpark. Programs start at `millstream.datastream`; the command line is
`millstream` or `python -m millstream`.
"""

from millstream import names

__version__ = "0.2.0"

names.install()
