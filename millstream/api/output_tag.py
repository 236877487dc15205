"""`OutputTag`: the name of a side output (Flink's `OutputTag`)."""

from __future__ import annotations

from typing import Any

from millstream.errors import InvalidArgument

__all__ = ["OutputTag"]


class OutputTag:
    """Names a side output. Tags match by id within one operator; the type is what the records are.

    >>> OutputTag("late") == OutputTag("late")
    True
    """

    __slots__ = ("tag_id", "type_info")

    def __init__(self, tag_id: str, type_info: Any = None) -> None:
        if not tag_id or not isinstance(tag_id, str):
            msg = "an OutputTag needs a non-empty string as its id"
            raise InvalidArgument(msg, got=repr(tag_id))
        self.tag_id = tag_id
        if isinstance(type_info, list):
            # As in PyFlink, a list of types means a row of them.
            from millstream.common.typeinfo import Types

            type_info = Types.ROW(type_info)
        self.type_info = type_info

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and other.tag_id == self.tag_id

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r})"
