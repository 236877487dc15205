"""Objects that are keys, made again from what their canonical form says of them.

The canonical form of an object names what makes it, as `__reduce_ex__` gave it, and holds what it is made of
(`keys.py`). That is enough to make the object again in any process that knows the class. A class that can be imported
is; one of the user's script travels with the job (`classes_in`), because on a worker no name leads to it.

**A canonical form may come out of a file that somebody else wrote**, so it does not get to call whatever it names:
of the standard library only classes of values; of other modules only classes; functions only if this process has seen
the program's own keys use them. Without `trusted` it is the standard library's values and numpy's, and nothing else.
"""

from __future__ import annotations

import copyreg
import enum
import importlib
import io
import pickle
import sys
import zoneinfo
from types import MethodType
from typing import Any

import cloudpickle

from millstream.api.functions import Function
from millstream.errors import KeyClassNotFound
from millstream.v import former_name

__all__ = ["KNOWN", "Shipping", "canonical_name", "classes_in", "make", "note_program", "value_of"]

# What the keys of this process are made by: its name to itself. The program's own is always the latest.
KNOWN: dict[str, Any] = {}

_program = ("", b"")

_VALUES = frozenset(
    [
        *("builtins.complex", "builtins.range", "builtins.slice", "builtins.object"),
        *("builtins.bytearray", "builtins.frozenset", "builtins.set", "builtins.dict"),
        *(f"builtins.{kind}" for kind in ("int", "float", "str", "bytes", "tuple", "list", "bool")),
        *(f"collections.{kind}" for kind in ("Counter", "OrderedDict", "defaultdict", "deque")),
        *(f"datetime.{kind}" for kind in ("date", "datetime", "time", "timedelta", "timezone")),
        *(f"uuid.{kind}" for kind in ("UUID", "SafeUUID")),
        *("decimal.Decimal", "fractions.Fraction", "types.SimpleNamespace"),
        *(f"ipaddress.IPv{n}{kind}" for n in "46" for kind in ("Address", "Network", "Interface")),
        *(f"pathlib.{kind}Path" for kind in ("PurePosix", "PureWindows", "Posix", "Windows")),
        *("array.array", "array._array_reconstructor"),
        "None.ZoneInfo._unpickle",
        *(f"numpy.{core}.multiarray.{name}" for core in ("_core", "core") for name in ("scalar",)),
        *("numpy._core.multiarray._reconstruct", "numpy.core.multiarray._reconstruct"),
        *("numpy.dtype", "numpy.ndarray"),
        "pandas._libs.tslibs.timestamps._unpickle_timestamp",
        "pandas._libs.tslibs.timedeltas._timedelta_unpickle",
    ]
)
# Nothing checks that the bytes of an array are what its type says.
_LAYOUTS = frozenset(name for name in _VALUES if name.endswith(("._reconstruct", ".ndarray")))
_ON_CLASSES = (copyreg.__newobj__, copyreg.__newobj_ex__, getattr)  # type: ignore[attr-defined]
# Where a name alone does not lead to it: a method written in C does not say in which module it is.
_NAMES = {
    **{f"{method.__module__}.{method.__name__}": method for method in _ON_CLASSES},
    "None.ZoneInfo._unpickle": zoneinfo.ZoneInfo._unpickle,  # type: ignore[attr-defined]
    "builtins.NoneType": type(None),
}
_STANDARD = sys.stdlib_module_names


# -- classes that travel with the job --------------------------------------------------------------------------


class Shipping(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles as cloudpickle does, and notes the classes whose definition it has to take along."""

    def __init__(self, file: Any, classes: dict[str, type]) -> None:
        super().__init__(file)
        self._classes = classes

    def reducer_override(self, obj: Any) -> Any:
        made = super().reducer_override(obj)
        if made is not NotImplemented and isinstance(obj, type) and not issubclass(obj, Function):
            self._classes[canonical_name(obj)] = obj
        return made


def classes_in(part: Any, classes: dict[str, type]) -> bytes:
    """`part` as cloudpickle writes it; the classes that cannot be imported by name are put into `classes`."""
    out = io.BytesIO()
    Shipping(out, classes).dump(part)
    return out.getvalue()


def note_program(run: str, classes: bytes) -> None:
    """The run whose keys are made from here on, with its classes, which are not unpickled before one is needed."""
    global _program
    if _program[0] != run:
        _program = run, classes
        KNOWN.clear()


def canonical_name(thing: Any) -> str:
    """The name of a class or function in a canonical form."""
    # A class of a function loses the first part of its qualified name on the way to a worker.
    module, name = thing.__module__, thing.__qualname__.rpartition("<locals>.")[2]
    if type(module) is str and module.startswith("millstream."):
        module, name = former_name(module, name)
    return f"{module}.{name}"


# -- making an object ------------------------------------------------------------------------------------------


def make(parts: list[Any], *, trusted: bool) -> Any:
    """The object that a canonical form describes, as `pickle` would make it."""
    function, arguments, state, items, pairs = parts
    made = _made(function, arguments, trusted)
    if not trusted and isinstance(state, tuple) and canonical_name(type(made)).startswith("numpy."):
        _check_dtype(made, state)
    if state is not None:
        _set_state(made, state)
    if items is not None:
        made.extend(items)
    if pairs is not None:
        for name, item in pairs.items():
            made[name] = item
    return made


def _made(function: Any, arguments: tuple[Any, ...], trusted: bool) -> Any:
    if function in _ON_CLASSES:
        kind, *rest = arguments
        _check_maker(kind, trusted)
        if function is getattr:
            return getattr(kind, rest[0])
        if function is copyreg.__newobj__:  # type: ignore[attr-defined]
            return kind.__new__(kind, *rest)
        return kind.__new__(kind, *rest[0], **rest[1])
    # A method of a class stands where the class does.
    _check_maker(function.__self__ if type(function) is MethodType else function, trusted)
    return function(*arguments)


def _check_maker(maker: Any, trusted: bool) -> None:
    """Raise unless a canonical form may have it called."""
    name = canonical_name(maker)
    if not trusted:
        if name not in _VALUES or name in _LAYOUTS:
            raise _distrusted(name)
        return
    if name in _VALUES or KNOWN.get(name) is maker:
        return
    if not isinstance(maker, type):
        why = "it is a function, which a key from a file does not get to call"
        raise _unknown(name, why, "give the class of the key no __reduce__ of its own")
    if name.partition(".")[0] in _STANDARD and not issubclass(maker, enum.Enum | BaseException):
        raise _unknown(name, "it is no class of values")


def _check_dtype(made: Any, state: tuple[Any, ...]) -> None:
    """Raise if the state of a numpy type would have it take bytes for addresses."""
    simple = (
        getattr(made, "kind", "") in "biufcSUmM" and not any(state[2:5]) and not any(state[7:8])
    )
    if not simple:
        raise _distrusted(canonical_name(type(made)))


def _set_state(made: Any, state: Any) -> None:
    setter = getattr(made, "__setstate__", None)
    if setter is not None:
        setter(state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        made.__dict__.update(state)
    for name, item in (slots or {}).items():
        object.__setattr__(made, name, item)


def value_of(name: str, *, trusted: bool) -> Any:
    """What a name leads to: a class, a function, or the only one of its kind."""
    if not trusted:
        if name not in _VALUES and name not in _NAMES:
            raise _distrusted(name)
        return _NAMES.get(name) or _imported(name)
    if name in KNOWN:
        return KNOWN[name]
    return _NAMES.get(name) or _found(name)


def _found(name: str) -> Any:
    program = _classes_of_program()
    return program[name] if name in program else _imported(name)


def _imported(name: str) -> Any:
    parts = name.split(".")
    for count in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:count])
        try:
            value: Any = sys.modules.get(module) or importlib.import_module(module)
        except ImportError:
            continue
        try:
            for part in parts[count:]:
                value = getattr(value, part)
        except AttributeError:
            break
        return value
    raise _unknown(
        name, "it is not there", "define it in a module that can be imported, or in this program"
    )


def _classes_of_program() -> dict[str, Any]:
    global _program
    run, classes = _program
    if classes:
        for name, kind in pickle.loads(classes).items():
            KNOWN.setdefault(name, kind)
        _program = run, b""
    return KNOWN


def _distrusted(name: str) -> KeyClassNotFound:
    why = "it belongs to a program, whose classes are not used unasked"
    return _unknown(name, why, "pass allow_pickle=True if you trust whoever wrote the savepoint")


def _unknown(name: str, why: str, hint: str | None = None) -> KeyClassNotFound:
    msg = f"a key cannot be made again, because {name} cannot be used: {why}"
    return KeyClassNotFound(msg, name=name, hint=hint)
