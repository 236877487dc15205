"""Writes millstream/common/spark_keys.txt: every configuration key that the installed Spark knows.

    python scripts/spark_keys.py

Spark notes its keys when the objects that declare them are loaded; here all of them are. No session is started.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pyspark
from pyspark import java_gateway

TARGET = Path(__file__).parents[1] / "millstream" / "common" / "spark_keys.txt"
# Read by Spark, and declared nowhere.
BESIDE = {"spark.app.id", "spark.app.name", "spark.home", "spark.master"}


def declaring() -> list[str]:
    """The names of the objects in Spark's jars that declare keys."""
    found = []
    for jar in sorted(Path(pyspark.__file__).parent.glob("jars/spark-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            found += [
                name.removesuffix(".class").replace("/", ".")
                for name in archive.namelist()
                if name.endswith("$.class") and b"ConfigBuilder" in archive.read(name)
            ]
    return found


def keys() -> set[str]:
    """Asks a Java that has Spark's jars."""
    launched: Any = java_gateway
    gateway = launched.launch_gateway()
    try:
        classes = gateway.jvm.java.lang.Class
        for name in declaring():
            classes.forName(name)
        entries = classes.forName("org.apache.spark.internal.config.ConfigEntry$")
        known = entries.getDeclaredField("knownConfigs")
        known.setAccessible(True)
        return set(known.get(entries.getField("MODULE$").get(None)).keySet().toArray())
    finally:
        gateway.shutdown()


if __name__ == "__main__":
    written = sorted(keys() | BESIDE)
    TARGET.write_text("\n".join(written) + "\n")
    print(f"{len(written)} keys of Spark {pyspark.__version__}")
