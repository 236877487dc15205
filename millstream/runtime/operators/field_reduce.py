"""`FieldReduce`: sum, min, max, min_by and max_by of a window's records (Flink's `SumAggregator` and kin).

The same meaning as the rolling ones of `aggregate.py` (rule 46), as a reduce function that any window can use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.api.functions import ReduceFunction
from millstream.errors import InvalidArgument, TypeMismatchError
from millstream.graph.operators import Key, RollingOp
from millstream.runtime.codegen.fields import combiner_of, misfit, reader_of

__all__ = ["FieldReduce", "checked_field"]


class FieldReduce(ReduceFunction):
    """Combines two records by one of their fields; the other fields are those of the first.

    >>> FieldReduce("sum", 1, "Window").reduce(("a", 1, "x"), ("a", 2, "y"))
    ('a', 3, 'x')
    >>> FieldReduce("max_by", 1, "Window").reduce(("a", 1, "x"), ("a", 2, "y"))
    ('a', 2, 'y')
    """

    def __init__(self, kind: str, field: int | str, name: str) -> None:
        self.kind = kind
        self.field = field
        self._name = name
        self._operator = RollingOp(Key(), kind, field)
        self._combine = combiner_of(self._operator)
        self._read = reader_of(field)

    def reduce(self, value1: Any, value2: Any) -> Any:
        """The two as one."""
        try:
            result = self._combine(value1, value2)
            if self.kind == "sum" and isinstance(
                self._read(result), str | bytes | bytearray | list | tuple
            ):
                raise misfit(self._operator, self._name, value2)
        except (LookupError, AttributeError, TypeError) as error:
            raise self._misfit(value1, value2, error) from error
        return result

    def _misfit(self, value1: Any, value2: Any, error: Exception) -> TypeMismatchError:
        # The first record is to blame if it has no such field; it came without having been looked at.
        try:
            self._read(value1)
        except (LookupError, AttributeError, TypeError):
            return misfit(self._operator, self._name, value1, error)
        return misfit(self._operator, self._name, value2, error)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # What reads and combines is made anew, so that it need not travel.
        return FieldReduce, (self.kind, self.field, self._name)


def checked_field(call: str, field: Any, declared: Any) -> int | str:
    """A field's position or name, if it can be one of the declared type.

    >>> checked_field("sum", 1, None)
    1
    """
    if (
        isinstance(field, bool)
        or not isinstance(field, int | str)
        or (isinstance(field, int) and field < 0)
    ):
        msg = f"{call} needs a field's position or name"
        raise InvalidArgument(msg, got=repr(field), hint="positions count from 0")
    names = getattr(declared, "get_field_names", lambda: None)()
    if isinstance(field, str) and names is not None and field not in names:
        raise InvalidArgument(f"{call}: there is no field {field!r}", fields=", ".join(names))
    return field
