"""What a session's Spark starts instead of `pyspark.daemon`: the same, with what every worker imports loaded before.

Workers are forked from it. One that a function has crashed is replaced in milliseconds instead of a second or two of
imports, which would be taken from the other jobs of the session.
"""

from __future__ import annotations

from importlib import import_module

from pyspark.daemon import manager

__all__ = ["load"]

_MODULES = ("pyspark.worker", "pandas", "pyarrow", "millstream.spark.worker")


def load() -> None:
    """Import what workers need. Nothing is called: a thread would not be there in those that are forked."""
    for name in _MODULES:
        import_module(name)


if __name__ == "__main__":
    load()
    manager()
