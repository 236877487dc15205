"""What stands for a name of PyFlink's that Millstream does not have.

It can be imported, and named in annotations; calling it, subclassing it or taking anything from it raises, which is
when the program is built and not when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

from millstream.pyflink.answers import unavailable

__all__ = ["Placeholder", "missing_method", "placeholder"]


class Placeholder(type):
    """The class of placeholders: all that is done with one is refused here.

    >>> OrcBulkWriters = placeholder("pyflink.datastream.formats.orc", "OrcBulkWriters")
    >>> OrcBulkWriters.for_row_type
    Traceback (most recent call last):
    ...
    millstream.errors.UnsupportedOperation: [UNSUPPORTED_OPERATION] OrcBulkWriters.for_row_type cannot be used: ...
    """

    _pyflink_module: str

    def __new__(
        cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any
    ) -> Placeholder:
        for base in bases:
            if isinstance(base, Placeholder):
                raise unavailable(base._pyflink_module, base.__name__)
        return super().__new__(cls, name, bases, namespace)

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise unavailable(cls._pyflink_module, cls.__name__)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("_"):
            # Python itself asks for these: typing, inspect, pickle.
            raise AttributeError(name)
        raise unavailable(cls._pyflink_module, cls.__name__, name)

    def __getitem__(cls, item: Any) -> Placeholder:
        # KafkaSource[str] in an annotation.
        return cls


@cache
def placeholder(module: str, name: str) -> Placeholder:
    """A placeholder for `name` of a module of PyFlink's."""
    return Placeholder(name, (), {"_pyflink_module": module, "__module__": module})


def missing_method(module: str, owner: str, name: str) -> Callable[..., NoReturn]:
    """A method that raises, for a class that Millstream has without it."""

    def method(*args: Any, **kwargs: Any) -> NoReturn:
        raise unavailable(module, owner, name)

    method.__name__ = name
    method.__qualname__ = f"{owner}.{name}"
    method.__unavailable__ = True  # type: ignore[attr-defined]
    return method
