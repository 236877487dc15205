"""`Configuration`: the keys and values that a program, a file or the command line sets.

It only stores; what a key means, its type and its default are in `millstream.common.options`.
Answers to Flink's `org.apache.flink.configuration.Configuration` and `MemorySize`.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

from millstream.common.guesses import Guesses
from millstream.common.time import Duration, Time, parse_duration
from millstream.errors import ConfigurationError, InvalidArgument

__all__ = ["Configuration", "parse_boolean", "parse_memory", "to_text"]


class Configuration(Guesses):
    """Keys and values.

    >>> config = Configuration().set_string("pipeline.name", "clicks").set_integer("rest.port", 80)
    >>> print(config)
    {pipeline.name=clicks, rest.port=80}
    >>> config.get_integer("rest.port", 8081)
    80
    """

    def __init__(self, other: Configuration | None = None, j_configuration: None = None) -> None:
        if j_configuration is not None:
            raise InvalidArgument(
                "there is no Java configuration to wrap",
                hint="pass a Configuration, or use Configuration.from_dict",
            )
        self._values: dict[str, Any] = {} if other is None else dict(other._values)

    @staticmethod
    def from_dict(map: Mapping[str, Any]) -> Configuration:  # noqa: A002 - PyFlink's name
        """A configuration with these entries.

        >>> print(Configuration.from_dict({"a": True, "b": timedelta(seconds=1)}))
        {a=true, b=1000 ms}
        """
        config = Configuration()
        for key, value in map.items():
            config._set(key, value)
        return config

    def _set(self, key: Any, value: Any) -> Configuration:
        if not isinstance(key, str) or not key:
            raise InvalidArgument("a configuration key must be a text", got=repr(key))
        if value is None:
            raise InvalidArgument(
                "a configuration value must not be None",
                key=key,
                hint="use remove_config to take a key away",
            )
        if not isinstance(value, (str, bool, int, float, bytearray)):
            value = bytearray(value) if isinstance(value, bytes) else to_text(value)
        self._values[key] = value
        return self

    def get(self, key: str) -> Any:
        """The value as it was set, or None.

        >>> Configuration().set_integer("a", 1).get("a")
        1
        """
        return self._values.get(key)

    def get_string(self, key: str, default_value: str) -> str:
        """The value as text.

        >>> Configuration().set_boolean("a", True).get_string("a", "")
        'true'
        """
        value = self._values.get(key)
        return default_value if value is None else to_text(value)

    def set_string(self, key: str, value: str) -> Configuration:
        """Set a text.

        >>> Configuration().set_string("a", "b").get_string("a", "")
        'b'
        """
        return self._set(key, value)

    def get_integer(self, key: str, default_value: int) -> int:
        """The value as a whole number.

        >>> Configuration().set_string("a", "12").get_integer("a", 0)
        12
        """
        value = self._values.get(key)
        if value is None:
            return default_value
        try:
            return int(value)
        except (TypeError, ValueError):
            raise _unreadable(key, value, "a whole number") from None

    def set_integer(self, key: str, value: int) -> Configuration:
        """Set a whole number.

        >>> Configuration().set_integer("a", 1).get_integer("a", 0)
        1
        """
        return self._set(key, int(value))

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """The value as a truth value.

        >>> Configuration().set_string("a", "TRUE").get_boolean("a", False)
        True
        """
        value = self._values.get(key)
        if value is None:
            return default_value
        try:
            return parse_boolean(value)
        except ValueError:
            raise _unreadable(key, value, "true or false") from None

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Set a truth value.

        >>> Configuration().set_boolean("a", True).get_boolean("a", False)
        True
        """
        return self._set(key, bool(value))

    def get_float(self, key: str, default_value: float) -> float:
        """The value as a number.

        >>> Configuration().set_string("a", "1.5").get_float("a", 0)
        1.5
        """
        value = self._values.get(key)
        if value is None:
            return float(default_value)
        try:
            return float(value)
        except (TypeError, ValueError):
            raise _unreadable(key, value, "a number") from None

    def set_float(self, key: str, value: float) -> Configuration:
        """Set a number.

        >>> Configuration().set_float("a", 1).get_float("a", 0)
        1.0
        """
        return self._set(key, float(value))

    def get_bytearray(self, key: str, default_value: bytearray) -> bytearray:
        """The value as bytes; a text is read as base64, which is how `to_dict` writes bytes.

        >>> Configuration().set_bytearray("a", bytearray(b"xy")).get_bytearray("a", bytearray())
        bytearray(b'xy')
        """
        value = self._values.get(key)
        if value is None:
            return bytearray(default_value)
        if isinstance(value, bytearray):
            return bytearray(value)
        try:
            return bytearray(base64.b64decode(value, validate=True))
        except (TypeError, ValueError, binascii.Error):
            raise _unreadable(key, value, "bytes, as base64") from None

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Set a key to bytes.

        >>> Configuration().set_bytearray("a", bytearray(b"xy")).to_dict()
        {'a': 'eHk='}
        """
        return self._set(key, bytearray(value))

    def key_set(self) -> set[str]:
        """All keys that are set.

        >>> Configuration().set_string("a", "b").key_set()
        {'a'}
        """
        return set(self._values)

    def contains_key(self, key: str) -> bool:
        """Whether the key is set.

        >>> Configuration().contains_key("a")
        False
        """
        return key in self._values

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Take over all entries of another configuration, their keys behind `prefix`.

        >>> print(Configuration().add_all(Configuration().set_string("a", "b"), "x."))
        {x.a=b}
        """
        for key, value in list(other._values.items()):
            self._values[(prefix or "") + key] = value
        return self

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Put all entries into a dict, each as it was set.

        >>> target = {}
        >>> Configuration().set_integer("a", 1).add_all_to_dict(target)
        >>> target
        {'a': 1}
        """
        target_dict.update(self._values)

    def to_dict(self) -> dict[str, str]:
        """All entries as text.

        >>> Configuration().set_boolean("a", True).set_integer("b", 2).to_dict()
        {'a': 'true', 'b': '2'}
        """
        return {key: to_text(value) for key, value in self._values.items()}

    def remove_config(self, key: str) -> bool:
        """Take a key away; says whether it was there.

        >>> Configuration().remove_config("a")
        False
        """
        return self._values.pop(key, None) is not None

    @staticmethod
    def parse_list_value(value: str | None, standard_yaml: bool = True) -> list[str]:
        """The items of a list: as YAML writes one, or separated by ";".

        >>> Configuration.parse_list_value("[a, b]"), Configuration.parse_list_value("a;b")
        (['a', 'b'], ['a', 'b'])
        """
        if not value:
            return []
        if standard_yaml:
            # Not at the top: nothing else needs YAML, and every worker imports this module.
            yaml = importlib.import_module("yaml")
            try:
                items = yaml.safe_load(value)
            except yaml.YAMLError:
                items = None
            if isinstance(items, list):
                return [to_text(item) for item in items]
        return [item.strip() for item in value.split(";") if item.strip()]

    def __deepcopy__(self, memo: Any = None) -> Configuration:
        return Configuration(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self._values == other._values

    def __hash__(self) -> int:
        return hash(frozenset(self.to_dict().items()))

    def __str__(self) -> str:
        entries = sorted(self.to_dict().items())
        return "{" + ", ".join(f"{key}={value}" for key, value in entries) + "}"

    def __repr__(self) -> str:
        return f"Configuration({self})"


def _unreadable(key: str, value: Any, wanted: str) -> ConfigurationError:
    return ConfigurationError(
        f"the configuration value of {key!r} cannot be read", key=key, value=value, wanted=wanted
    )


def to_text(value: Any) -> str:
    """A value as a configuration file would have it.

    >>> to_text(True), to_text(Duration.of_seconds(1)), to_text(["a", "b"])
    ('true', '1000 ms', 'a;b')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (timedelta, Duration, Time)):
        return f"{parse_duration(value)} ms"
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return ";".join(to_text(item) for item in value)
    if isinstance(value, Mapping):
        return ",".join(f"{key}:{to_text(item)}" for key, item in value.items())
    return str(value)


def parse_boolean(value: Any) -> bool:
    """True or False of a truth value or its text.

    >>> parse_boolean("False"), parse_boolean(True)
    (False, True)
    """
    text = to_text(value).strip().lower()
    if text not in {"true", "false"}:
        raise InvalidArgument("this is neither true nor false", got=repr(value)[:200])
    return text == "true"


_MEMORY_UNITS = {
    unit: 1 << shift
    for shift, units in (
        (0, "b bytes"),
        (10, "k kb kibibytes"),
        (20, "m mb mebibytes"),
        (30, "g gb gibibytes"),
        (40, "t tb tebibytes"),
    )
    for unit in units.split()
}
_MEMORY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_memory(value: str | int) -> int:
    """Bytes of a size; a bare number is bytes. As in Flink, kb, mb and gb are powers of 1024.

    >>> parse_memory("64 mb"), parse_memory("1kb"), parse_memory(7)
    (67108864, 1024, 7)
    """
    match = None if isinstance(value, bool) else _MEMORY.fullmatch(str(value))
    unit = None if match is None else _MEMORY_UNITS.get(match.group(2).lower() or "b")
    if match is None or unit is None:
        raise InvalidArgument(
            "this is not a size of memory",
            got=repr(value)[:200],
            hint='pass "64 mb", "256 kb", "1 gb" or a number of bytes',
        )
    return int(Decimal(match.group(1)) * unit)
