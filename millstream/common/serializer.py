"""`TypeSerializer`: a value into a stream of bytes and back (PyFlink's `common.serializer`).

A user-defined window assigner returns one from `get_window_serializer`. Millstream keeps windows in its own form and
never calls it; it is here so that such assigners need no change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from io import BytesIO
from typing import Any, Generic, TypeVar

__all__ = ["TypeSerializer", "VoidNamespaceSerializer"]

T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Writes values of one type and reads them.

    >>> class Number(TypeSerializer):
    ...     def serialize(self, element, stream):
    ...         stream.write(element.to_bytes(8, "big"))
    ...
    ...     def deserialize(self, stream):
    ...         return int.from_bytes(stream.read(8), "big")
    >>> stream = BytesIO()
    >>> Number().serialize(7, stream)
    >>> Number().deserialize(BytesIO(stream.getvalue()))
    7
    """

    @abstractmethod
    def serialize(self, element: T, stream: BytesIO) -> None:
        """Write a value."""

    @abstractmethod
    def deserialize(self, stream: BytesIO) -> T:
        """Read a value."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))


class VoidNamespaceSerializer(TypeSerializer[Any]):
    """The serializer of no namespace: one byte, which says nothing.

    >>> stream = BytesIO()
    >>> VoidNamespaceSerializer().serialize(None, stream)
    >>> stream.getvalue()
    b'\\x00'
    """

    def serialize(self, element: Any, stream: BytesIO) -> None:
        """Write the byte."""
        stream.write(b"\0")

    def deserialize(self, stream: BytesIO) -> Any:
        """Read the byte."""
        return stream.read(1)
