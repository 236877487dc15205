"""The vocabulary: the names that state is written in. This module never moves, so that all others may.

A pickle names what makes a value by its module and name, and savepoints outlive the place of a module. So what
Millstream itself has pickled into state is named `millstream.v` and a short word (`NAMES`), wherever it is defined.

Two things are still named as they were before there was a vocabulary (`FORMER`). **The bytes of a key never change**:
they are what is compared, and the key group is computed of them, so a key written in another way would be another key,
in another subtask. And what was written is read: a former name leads to where its object stands now, also if there is
no module of that name any more (`millstream.names` asks for it).

Whoever moves a module changes the places in the two tables, and nothing else. Whoever adds a class whose objects people
keep gives it a word. No line is ever taken out, and no word is given twice.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

__all__ = [
    "FORMER",
    "KEPT",
    "NAMES",
    "former",
    "former_name",
    "is_former",
    "keep",
    "kept",
    "pinned",
    "settle",
]

T = TypeVar("T")

NAMES = {
    "row": "millstream.common.types:_row",
    "row_kind": "millstream.common.types:_kind",
    "time_window": "millstream.api.windows:_time_window",
    "count_window": "millstream.api.windows:_count_window",
    "global_window": "millstream.api.windows:_global_window",
    "instant": "millstream.common.time:_instant",
    "time": "millstream.common.time:_time",
    "duration": "millstream.common.time:_duration",
    "time_domain": "millstream.api.time_domain:_domain",
    "trigger_result": "millstream.api.trigger:_result",
    "timestamped": "millstream.api.source:_stamped",
    "watermark": "millstream.api.source:_mark",
    "timestamped_value": "millstream.api.evictor:_element",
    "dead_letter": "millstream.api.error_policy:_letter",
    "kafka_record": "millstream.connectors.kafka.record:_record",
}
"""The words, and where that which makes the value stands today, as "module:name"."""

# Without the package's name in front: these are no places, and whoever moves a module leaves them as they are.
FORMER = {
    "runtime.keys:_Part": "millstream.runtime.wire.keys:_Part",
    "common.types:make_row": "millstream.common.types:make_row",
    "common.types:Row": "millstream.common.types:Row",
    "common.types:RowKind": "millstream.common.types:RowKind",
    "common.windows:TimeWindow": "millstream.api.windows:TimeWindow",
    "common.windows:CountWindow": "millstream.api.windows:CountWindow",
    "common.windows:GlobalWindow": "millstream.api.windows:GlobalWindow",
    "common.time:Instant": "millstream.common.time:Instant",
    "common.time:Time": "millstream.common.time:Time",
    "common.time:Duration": "millstream.common.time:Duration",
    "common.time_domain:TimeDomain": "millstream.api.time_domain:TimeDomain",
    "common.trigger:TriggerResult": "millstream.api.trigger:TriggerResult",
    "common.source:Timestamped": "millstream.api.source:Timestamped",
    "common.source:Watermark": "millstream.api.source:Watermark",
    "common.evictor:TimestampedValue": "millstream.api.evictor:TimestampedValue",
    "common.error_policy:DeadLetter": "millstream.api.error_policy:DeadLetter",
    "common.async_functions": "millstream.api.async_functions",
    "common.broadcast_functions": "millstream.api.broadcast_functions",
    "common.checkpointed": "millstream.api.checkpointed",
    "common.continuous_triggers": "millstream.api.continuous_triggers",
    "common.count_windows": "millstream.api.count_windows",
    "common.csv_format": "millstream.connectors.formats.csv",
    "common.error_policy": "millstream.api.error_policy",
    "common.evictor": "millstream.api.evictor",
    "common.functions": "millstream.api.functions",
    "common.generics": "millstream.api.generics",
    "common.join_functions": "millstream.api.join_functions",
    "common.json_format": "millstream.connectors.formats.json",
    "common.metrics": "millstream.api.metrics",
    "common.output_tag": "millstream.api.output_tag",
    "common.session_windows": "millstream.api.session_windows",
    "common.sink": "millstream.api.sink",
    "common.source": "millstream.api.source",
    "common.state": "millstream.api.state",
    "common.state_ttl": "millstream.api.state_ttl",
    "common.time_domain": "millstream.api.time_domain",
    "common.trigger": "millstream.api.trigger",
    "common.triggers": "millstream.api.triggers",
    "common.window_assigner": "millstream.api.window_assigner",
    "common.window_assigners": "millstream.api.window_assigners",
    "common.window_bases": "millstream.api.window_bases",
    "common.window_functions": "millstream.api.window_functions",
    "common.windows": "millstream.api.windows",
    "connectors.bucket_assigner": "millstream.connectors.file.bucket_assigner",
    "connectors.file_commit": "millstream.connectors.file.commit",
    "connectors.file_discovery": "millstream.connectors.file.discovery",
    "connectors.file_format": "millstream.connectors.file.format",
    "connectors.file_sink": "millstream.connectors.file.sink",
    "connectors.file_sink_policy": "millstream.connectors.file.rolling_policy",
    "connectors.file_source": "millstream.connectors.file.source",
    "connectors.paths": "millstream.connectors.file.paths",
    "connectors.postgres": "millstream.connectors.postgres.sink",
    "connectors.postgres_commit": "millstream.connectors.postgres.commit",
    "connectors.postgres_rows": "millstream.connectors.postgres.rows",
    "connectors.postgres_settings": "millstream.connectors.postgres.settings",
    "connectors.postgres_staging": "millstream.connectors.postgres.staging",
    "connectors.postgres_table": "millstream.connectors.postgres.table",
    "connectors.postgres_values": "millstream.connectors.postgres.values",
    "connectors.postgres_write": "millstream.connectors.postgres.write",
}
"""What was named by its module below `millstream`, and where it stands today. A line without a name is a whole module,
of which all public names are found: what a class of a user's script takes along into state, such as its base."""

KEPT: set[type] = set()
"""The classes whose objects are pickled as calls with their parts."""

_ROOT = "millstream."
_WORDS = {place: word for word, place in NAMES.items()}
_pinned: set[str] = set()
_BEFORE = {place: old for old, place in FORMER.items()}


# -- writing ---------------------------------------------------------------------------------------------------


def kept(maker: T) -> T:
    """Have a function named by its word wherever it is pickled.

    >>> from millstream.common.types import Row
    >>> function, arguments = Row(1).__reduce__()
    >>> function.__module__, function.__qualname__
    ('millstream.v', 'row')
    """
    function: Any = maker
    function.__qualname__ = _listed(_WORDS, function)
    function.__module__ = __name__
    return maker


def keep(cls: type[T], parts: Callable[[T], tuple[Any, ...]], maker: Callable[..., T]) -> None:
    """Have objects of exactly this class pickled as a call of `maker`, which is `kept`, with their parts.

    >>> import pickle
    >>> from millstream.common.time import Instant
    >>> pickle.loads(pickle.dumps(Instant(5, 0)))
    Instant<5, 0>
    """
    # Not as a method of the class: the bytes of a key describe what `__reduce_ex__` gives.
    KEPT.add(cls)
    copyreg.pickle(cls, lambda value: (maker, parts(value)))


def pinned(thing: T) -> T:
    """Have a function or a class named in the bytes of keys as it always was.

    >>> from millstream.runtime.wire.keys import _Part
    >>> _Part.__module__ + ":" + _Part.__qualname__ == _ROOT + "runtime.keys:_Part"
    True
    """
    pinned_thing: Any = thing
    module, _, name = _listed(_BEFORE, pinned_thing).partition(":")
    pinned_thing.__module__, pinned_thing.__qualname__ = _ROOT + module, name
    _pinned.add(pinned_thing.__module__)
    return thing


def settle() -> None:
    """Import the modules that pinned things say they are from. cloudpickle takes a class along with its definition if
    its module has not been imported, and a member of a copied enumeration is not the same.

    >>> settle()
    """
    for module in sorted(_pinned):
        import_module(module)


def _listed(table: dict[str, str], thing: Any) -> str:
    place = f"{thing.__module__}:{thing.__qualname__}"
    try:
        return table[place]
    except KeyError:
        msg = f"{place} is not in millstream/v.py: if it has moved, say there where it stands now"
        raise LookupError(msg) from None


def former_name(module: str, name: str) -> tuple[str, str]:
    """What the bytes of keys call a thing of this module and name: what it was called first.

    >>> former_name("datetime", "date")
    ('datetime', 'date')
    """
    head, dot, rest = name.partition(".")
    old = _BEFORE.get(f"{module}:{head}")
    if old is not None:
        module, _, head = old.partition(":")
        return _ROOT + module, head + dot + rest
    old = _BEFORE.get(module)
    return (module if old is None else _ROOT + old), name


# -- reading ---------------------------------------------------------------------------------------------------


def __getattr__(name: str) -> Any:
    """What a word stands for; it is looked for once."""
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    maker = globals()[name] = _at(NAMES[name])
    return maker


def former(module: str, name: str) -> Any:
    """What a module had under a name, if it stands elsewhere today; or None."""
    own = module.removeprefix(_ROOT)
    place = FORMER.get(f"{own}:{name}")
    if place is None and own in FORMER and not name.startswith("_"):
        place = f"{FORMER[own]}:{name}"
    if place is None or place.startswith(f"{module}:"):
        return None
    return _at(place)


def is_former(module: str) -> bool:
    """Whether there was a module, or a package, of this name."""
    own = module.removeprefix(_ROOT)
    return any(place == own or place.startswith((f"{own}:", f"{own}.")) for place in FORMER)


def _at(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
