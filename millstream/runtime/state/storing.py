"""What is done to a value when it is put into a state: it is made to fit the declared type, as a copy of its own, or
refused with the state's name. What a state holds can then be written and read again, whatever it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.common.typeinfo import TupleTypeInfo
from millstream.errors import MillstreamError, StateNotSerializable, TypeMismatchError, told
from millstream.runtime.base.text import shorten
from millstream.runtime.state.codec import ValueCodec
from millstream.runtime.state.table import ATOMIC, isolate
from millstream.runtime.wire.codec import dumps

__all__ = ["Storing", "not_serializable", "which_entry"]


class Storing:
    """How values are put into one state; `role` says what is put: its values, the keys of a map.

    >>> from millstream.common.typeinfo import Types
    >>> from millstream.runtime.state.codec import codec_for
    >>> storing = Storing("counter/count", codec_for(Types.INT()))
    >>> storing.fit(True), storing.fit(2**31)
    (1, -2147483648)
    >>> storing.fit("x")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    millstream.errors.TypeMismatchError: [TYPE_MISMATCH] a value of the state 'count' does not fit its declared ...

    `fit` need not be called for values whose class is in `ready`, nor for an int from `low` to `high`.
    """

    __slots__ = ("_convert", "_fits", "_name", "_role", "_wanted", "fit", "high", "low", "ready")

    def __init__(self, name: str, codec: ValueCodec, role: str = "value") -> None:
        self._name = name
        self._role = role
        self._wanted = codec.type_info
        self._convert = codec.fit
        self.low, self.high = codec.low, codec.high
        self.ready = ATOMIC if codec.fit is None else codec.ready
        self._fits = _check_of(codec)
        self.fit: Callable[[Any], Any] = self._fit_plain if codec.plain else self._fit_pickled
        if self._fits is not None:
            self.fit = self._fit_checked

    def _fit_checked(self, value: Any) -> Any:
        assert self._fits is not None
        return value if self._fits(value) else self._fit_plain(value)

    def _fit_plain(self, value: Any) -> Any:
        assert self._convert is not None
        try:
            return self._convert(value)
        except TypeMismatchError as error:
            raise self._refused(error) from None

    def _fit_pickled(self, value: Any) -> Any:
        convert = self._convert
        try:
            return isolate(value if convert is None else convert(value))
        except TypeMismatchError as error:
            raise self._refused(error) from None
        except MillstreamError:
            raise
        except Exception as error:
            raise not_serializable(self._name, value, error) from None

    def _refused(self, error: TypeMismatchError) -> TypeMismatchError:
        uid, _, state = self._name.rpartition("/")
        evidence = {"uid": uid, "state": state, **error.evidence}
        return TypeMismatchError(
            f"{'an' if self._role[0] in 'aeiou' else 'a'} {self._role} of the state '{state}' "
            f"does not fit its declared type {self._wanted!r}",
            **evidence,
            hint="put what the type says, or declare the state with the type of what is put",
        )


def _check_of(codec: ValueCodec) -> Callable[[Any], bool] | None:
    """What says of a tuple that it fits already; then nobody can change it, and it need not be copied."""
    kind = codec.type_info
    check = kind.check_expression("v") if isinstance(kind, TupleTypeInfo) else "False"
    if not codec.plain or check in (None, "False"):
        return None
    made: Callable[[Any], bool] = eval(f"lambda v: {check}", {})
    return made


def not_serializable(
    name: str, value: Any, error: Exception, key: Any = None
) -> StateNotSerializable:
    """The error for a value that cannot be pickled, or not be unpickled."""
    uid, _, state = name.rpartition("/")
    return StateNotSerializable(
        f"a value of the state '{state}' cannot be kept: {type(value).__name__} cannot be pickled and read again",
        uid=uid,
        state=state,
        key=None if key is None else shorten(key),
        value=shorten(value),
        cause=told(error),
        hint="keep plain values, and make connections, locks and open files in open()",
    )


def which_entry(name: str, entries: list[Any], error: Exception) -> Exception:
    """The error for a block that cannot be written, with the entry that it was."""
    for entry in entries:
        key, value = entry if isinstance(entry, tuple) and len(entry) == 2 else (None, entry)
        try:
            dumps(value)
        except Exception as cause:
            return not_serializable(name, value, cause, key)
    return error
