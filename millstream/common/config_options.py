"""`ConfigOption`: one configuration key with its type, its default and what it is for.

Built as in PyFlink, `ConfigOptions.key(..).int_type().default_value(..)`; durations, sizes and
choices are added, as Flink's Java API has them. Answers to Flink's `ConfigOption` and
`ConfigOptions`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from millstream.common.configuration import parse_boolean, parse_memory, to_text
from millstream.common.time import parse_duration
from millstream.errors import InvalidArgument

__all__ = ["ConfigOption", "ConfigOptions"]

T = TypeVar("T")
"""The Python type of an option's values."""


@dataclass(frozen=True)
class ConfigOption(Generic[T]):
    """A configuration key.

    `default` is what a configuration file would say, so that documentation can show it; None means
    that there is none. `wanted` says in words what a value must be.

    >>> option = ConfigOptions.key("rest.port").int_type().default_value(8081)
    >>> option.key, option.type_name, option.default
    ('rest.port', 'int', 8081)
    """

    key: str
    type_name: str
    wanted: str
    parse: Callable[[Any], T]
    default: Any = None
    description: str = ""

    def has_default_value(self) -> bool:
        """Whether there is a default.

        >>> ConfigOptions.key("a").string_type().no_default_value().has_default_value()
        False
        """
        return self.default is not None

    def with_description(self, description: str) -> ConfigOption[T]:
        """The same option with a line that says what it is for.

        >>> ConfigOptions.key("a").int_type().default_value(1).with_description("b").description
        'b'
        """
        return replace(self, description=description)


class ConfigOptions:
    """Where options begin.

    >>> ConfigOptions.key("pause").duration_type().default_value("1 s").parse("10 s")
    10000
    """

    @staticmethod
    def key(key: str) -> OptionBuilder:
        """Start an option.

        >>> ConfigOptions.key("a").string_type().default_value("b").default
        'b'
        """
        return OptionBuilder(key)


class OptionBuilder:
    """A key whose type is still to come."""

    def __init__(self, key: str) -> None:
        if not key:
            raise InvalidArgument("an option needs a key")
        self._key = key

    def boolean_type(self) -> TypedConfigOptionBuilder[bool]:
        """True or false.

        >>> ConfigOptions.key("a").boolean_type().default_value(False).parse("true")
        True
        """
        return TypedConfigOptionBuilder(self._key, "boolean", "true or false", parse_boolean)

    def int_type(self) -> TypedConfigOptionBuilder[int]:
        """A whole number of 32 bits.

        >>> ConfigOptions.key("a").int_type().default_value(1).parse("12")
        12
        """
        return TypedConfigOptionBuilder(self._key, "int", "a whole number of 32 bits", _parse_int32)

    def long_type(self) -> TypedConfigOptionBuilder[int]:
        """A whole number of 64 bits.

        >>> ConfigOptions.key("a").long_type().default_value(1).parse(2**40)
        1099511627776
        """
        return TypedConfigOptionBuilder(
            self._key, "long", "a whole number of 64 bits", _parse_int64
        )

    def float_type(self) -> TypedConfigOptionBuilder[float]:
        """The value is a number.

        >>> ConfigOptions.key("a").float_type().default_value(1.0).parse("1.5")
        1.5
        """
        return TypedConfigOptionBuilder(self._key, "float", "a number", _parse_float)

    def double_type(self) -> TypedConfigOptionBuilder[float]:
        """The value is a number.

        >>> ConfigOptions.key("a").double_type().default_value(1.0).parse(2)
        2.0
        """
        return TypedConfigOptionBuilder(self._key, "double", "a number", _parse_float)

    def string_type(self) -> TypedConfigOptionBuilder[str]:
        """The value is text.

        >>> ConfigOptions.key("a").string_type().default_value("").parse(12)
        '12'
        """
        return TypedConfigOptionBuilder(self._key, "string", "a text", to_text)

    def duration_type(self) -> TypedConfigOptionBuilder[int]:
        """A length of time; its value is milliseconds.

        >>> ConfigOptions.key("a").duration_type().default_value("1 s").parse("1 min")
        60000
        """
        wanted = 'a duration such as "10 s"'
        return TypedConfigOptionBuilder(self._key, "duration", wanted, parse_duration)

    def memory_type(self) -> TypedConfigOptionBuilder[int]:
        """A size of memory; its value is bytes.

        >>> ConfigOptions.key("a").memory_type().default_value("1 kb").parse("2 kb")
        2048
        """
        wanted = 'a size such as "64 mb"'
        return TypedConfigOptionBuilder(self._key, "memory", wanted, parse_memory)

    def enum_type(self, *choices: str) -> TypedConfigOptionBuilder[str]:
        """One of some words, in any case, with "-" as good as "_".

        >>> ConfigOptions.key("a").enum_type("NO_CLAIM", "CLAIM").no_default_value().parse(
        ...     "no-claim"
        ... )
        'NO_CLAIM'
        """
        wanted = f"one of {', '.join(choices)}"
        return TypedConfigOptionBuilder(self._key, "enum", wanted, Choice(choices))


class TypedConfigOptionBuilder(Generic[T]):
    """A key and its type; only the default is still to come."""

    def __init__(self, key: str, type_name: str, wanted: str, parse: Callable[[Any], T]) -> None:
        self._key = key
        self._type_name = type_name
        self._wanted = wanted
        self._parse = parse

    def at_least(self, least: float, unit: str = "") -> TypedConfigOptionBuilder[T]:
        """The same key, for values that are not smaller.

        >>> ConfigOptions.key("a").int_type().at_least(1).default_value(5).wanted
        'a whole number of 32 bits, at least 1'
        """
        wanted = f"{self._wanted}, at least {least}{unit and ' '}{unit}"
        return self._bounded(wanted, Within(self._parse, least))

    def between(
        self, least: float, most: float, also: float | None = None
    ) -> TypedConfigOptionBuilder[T]:
        """The same key, for values of a range, and perhaps one that stands for something else.

        >>> ConfigOptions.key("a").int_type().between(1, 9, also=-1).default_value(5).wanted
        'a whole number of 32 bits, from 1 to 9, or -1'
        """
        wanted = f"{self._wanted}, from {least} to {most}"
        wanted = wanted if also is None else f"{wanted}, or {also}"
        return self._bounded(wanted, Within(self._parse, least, most, also))

    def _bounded(self, wanted: str, parse: Callable[[Any], T]) -> TypedConfigOptionBuilder[T]:
        return TypedConfigOptionBuilder(self._key, self._type_name, wanted, parse)

    def default_value(self, value: T | str) -> ConfigOption[T]:
        """The option with a default, which must itself be a good value.

        >>> ConfigOptions.key("a").int_type().default_value(5).default
        5
        """
        self._parse(value)
        return ConfigOption(self._key, self._type_name, self._wanted, self._parse, value)

    def no_default_value(self) -> ConfigOption[T | None]:
        """The option without a default.

        >>> ConfigOptions.key("a").int_type().no_default_value().default is None
        True
        """
        return ConfigOption(self._key, self._type_name, self._wanted, self._parse)


@dataclass(frozen=True)
class Within:
    """Reads a number that must not be too small or too large.

    >>> Within(int, 1)("2")
    2
    """

    parse: Callable[[Any], Any]
    least: float
    most: float = float("inf")
    also: float | None = None

    def __call__(self, value: Any) -> Any:
        number = self.parse(value)
        # So written, a value that is no number is none of the range.
        if not self.least <= number <= self.most and number != self.also:
            msg = f"this is not from {self.least} to {self.most}"
            raise InvalidArgument(msg, got=repr(value)[:200])
        return number


@dataclass(frozen=True)
class Choice:
    """Reads one of some words.

    >>> Choice(("spark", "in-process"))("IN_PROCESS")
    'in-process'
    """

    choices: tuple[str, ...]

    def __call__(self, value: Any) -> str:
        word = _plain_word(to_text(value))
        for choice in self.choices:
            if _plain_word(choice) == word:
                return choice
        raise InvalidArgument("this is none of the choices", got=repr(value)[:200])


def _plain_word(word: str) -> str:
    return word.strip().lower().replace("-", "_")


def _parse_whole(value: Any, bits: int) -> int:
    number = int(value)
    if isinstance(value, (bool, float)) or not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise InvalidArgument(f"this is not a whole number of {bits} bits", got=repr(value)[:200])
    return number


def _parse_int32(value: Any) -> int:
    return _parse_whole(value, 32)


def _parse_int64(value: Any) -> int:
    return _parse_whole(value, 64)


def _parse_float(value: Any) -> float:
    if isinstance(value, bool):
        raise InvalidArgument("this is not a number", got=repr(value))
    return float(value)
