"""From a name of PyFlink's to the object that answers to it here."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from millstream.pyflink.catalogue import modules
from millstream.pyflink.placeholders import missing_method, placeholder

__all__ = ["class_of", "complete", "find", "home", "lookup"]

# Where a module's names are, if not (only) in the module of the same name.
_PLACES: dict[str, tuple[str, ...]] = {
    "pyflink.common.typeinfo": (
        "millstream.common.typeinfo",
        "millstream.common.typeinfo_basic",
        "millstream.common.typeinfo_composite",
    ),
    "pyflink.datastream.data_stream": (
        "millstream.datastream.data_stream",
        "millstream.datastream.keyed_stream",
        "millstream.datastream.windowed_stream",
        "millstream.datastream.connected_streams",
        "millstream.datastream.broadcast_stream",
        "millstream.datastream.data_stream_sink",
        "millstream.datastream.closeable_iterator",
    ),
    "pyflink.datastream.functions": (
        "millstream.datastream.functions",
        "millstream.api.functions",
        "millstream.api.checkpointed",
        "millstream.api.broadcast_functions",
    ),
    "pyflink.metrics.metricbase": ("millstream.api.metrics",),
    "pyflink.metrics": ("millstream.api.metrics",),
}
# Classes inside others that stand alone here: module, and name in it.
_RENAMED = {
    "ConfigOptions.OptionBuilder": ("millstream.common.config_options", "OptionBuilder"),
    "ConfigOptions.TypedConfigOptionBuilder": (
        "millstream.common.config_options",
        "TypedConfigOptionBuilder",
    ),
    "OutputFileConfig.OutputFileConfigBuilder": (
        "millstream.connectors.file.rolling_policy",
        "OutputFileConfigBuilder",
    ),
    "FileSink.BaseBuilder": ("millstream.connectors.file.sink", "FileSinkBuilder"),
    "FileSink.RowFormatBuilder": ("millstream.connectors.file.sink", "FileSinkBuilder"),
    "FileSink.BulkFormatBuilder": ("millstream.connectors.file.sink", "FileSinkBuilder"),
}
_NOTHING = object()


def _module(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            return None
        raise


def lookup(module: str, name: str) -> Any:
    """Millstream's object for a name of a module of PyFlink's, or None."""
    own = "millstream." + module.removeprefix("pyflink.")
    for place in _PLACES.get(module, (own,)):
        own_module = _module(place)
        # Not getattr: a module that lacks a name asks here for it (`millstream.names`).
        value: Any = _NOTHING if own_module is None else vars(own_module).get(name, _NOTHING)
        # `datastream.window` is a module, and no name of the package's.
        if value is not _NOTHING and not isinstance(value, ModuleType):
            return value
    return None


def find(module: str, name: str) -> Any:
    """What `from module import name` gives: Millstream's object, or a placeholder.

    >>> find("pyflink.common.time", "Duration")
    <class 'millstream.common.time.Duration'>
    >>> find("pyflink.datastream.formats.orc", "OrcBulkWriters")
    <class 'pyflink.datastream.formats.orc.OrcBulkWriters'>
    """
    if name in modules()[module].passed_on:
        defined = home(name)
        if defined is not None:
            return find(defined, name)
    value = lookup(module, name)
    return placeholder(module, name) if value is None else value


def home(name: str) -> str | None:
    """The module of PyFlink's in which a name is defined, if there is one."""
    for module in modules().values():
        if name in module.classes or name in module.functions:
            return module.name
    return None


def complete() -> list[tuple[type, str]]:
    """Give Millstream's classes those methods of PyFlink's that they lack; each raises and says why.

    Only in a process that runs a PyFlink program: elsewhere Python's own AttributeError is the better answer. Gives
    back what was added where.
    """
    added = []
    for module in modules().values():
        for definition in module.classes.values():
            owner = class_of(module.name, definition.name)
            if owner is None:
                continue
            for member in definition.members:
                if member.parameters is not None and not hasattr(owner, member.name):
                    # Of a static method the first argument is no `self`; the refusal takes any.
                    refuse = missing_method(module.name, definition.name, member.name)
                    setattr(owner, member.name, refuse)
                    added.append((owner, member.name))
    return added


def class_of(module: str, name: str) -> type | None:
    """Millstream's class for one of PyFlink's, also for one inside another."""
    if name in _RENAMED:
        place, own = _RENAMED[name]
        renamed: type = getattr(import_module(place), own)
        return renamed
    outer, *inner = name.split(".")
    value = lookup(module, outer)
    for part in inner:
        value = getattr(value, part, None)
    return value if isinstance(value, type) else None
