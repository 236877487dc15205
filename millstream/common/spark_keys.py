"""Misspelt keys of Spark's. Spark itself takes any key and says nothing.

`spark_keys.txt` has all keys of the Spark that Millstream is built for (`scripts/spark_keys.py` writes it). Programs
and libraries may use keys of their own, so a key is only said to be wrong if it is a slip away from one of Spark's.
"""

from __future__ import annotations

import difflib
import re
from functools import cache
from importlib.resources import files

__all__ = ["meant_of_spark"]

# Below these anybody may name something.
_OPEN = re.compile(
    r"spark\.(hadoop|hive|executorEnv|metrics\.conf|yarn\.appMasterEnv|sql\.catalog|"
    r"(driver|executor|task|worker)\.resource|(driver|executor)\.[\w.]*plugin|"
    r"kubernetes\.[\w.]*(label|annotation|secrets|secretKeyRef|volumes|selector|limit|request)|"
    r"databricks|sql\.iceberg|delta|jars\.ivy)\."
)
_NEAR = 0.85
# How many slips are taken for some; in a short key two would make another one of it.
_EDITS, _SHORT = 2, 16


@cache
def _known() -> frozenset[str]:
    text = files("millstream.common").joinpath("spark_keys.txt").read_text("ascii")
    return frozenset(text.split())


def meant_of_spark(key: str) -> str | None:
    """The key of Spark's that was meant; None if `key` is one, or none of Spark's.

    >>> meant_of_spark("spark.executor.memroy"), meant_of_spark("spark.executor.memory.overhead")
    ('spark.executor.memory', 'spark.executor.memoryOverhead')
    >>> meant_of_spark("spark.executor.memory"), meant_of_spark("spark.orders.region")
    (None, None)
    """
    known = _known()
    if key in known or _OPEN.match(key):
        return None
    plain = {_plain(name): name for name in known}
    if _plain(key) in plain:
        return plain[_plain(key)]
    near = [name for name in known if abs(len(name) - len(key)) <= _EDITS]
    for name in difflib.get_close_matches(key, near, n=1, cutoff=_NEAR):
        return name if _edits(key, name) <= (1 if len(key) <= _SHORT else _EDITS) else None
    return None


def _plain(key: str) -> str:
    return re.sub(r"[._-]", "", key).lower()


def _edits(given: str, known: str) -> int:
    """How many letters have been left out, added, changed, or taken for their neighbours."""
    before: list[int] = []
    row = list(range(len(known) + 1))
    for i, a in enumerate(given, 1):
        last, row, older = row, [i], before
        for j, b in enumerate(known, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == known[j - 2] and b == given[i - 2]:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        before = last
    return row[-1]
