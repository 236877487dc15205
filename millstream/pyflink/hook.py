"""The finder that serves `pyflink` and its modules."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from millstream.errors import ModuleNotAvailable
from millstream.pyflink.answers import missing_module
from millstream.pyflink.catalogue import modules
from millstream.pyflink.printing import print_like_java, print_like_python
from millstream.pyflink.resolve import complete, find, home

__all__ = ["VARIABLE", "install", "is_installed", "uninstall"]

VARIABLE = "MILLSTREAM_PYFLINK"
"""Set where workers should find `pyflink` too."""

_VERSION = "2.3.0"
_PACKAGES = ("pyflink", "pyflink.datastream.formats")


class _Module(ModuleType):
    """One of the modules served. Pickled by name, together with the finder that knows the name."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _load, (self.__name__,)

    def __getattr__(self, name: str) -> Any:
        # PyFlink's modules also hold what they import from each other, and programs use that.
        if f"{self.__name__}.{name}" in modules():
            return import_module(f"{self.__name__}.{name}")
        module = None if name.startswith("_") else home(name)
        if module is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return find(module, name)


def _load(name: str) -> ModuleType:
    install()
    return import_module(name)


class _PyFlinkFinder(MetaPathFinder, Loader):
    """Finds `pyflink` and everything below it, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "pyflink":
            return None
        if fullname in modules() or fullname in (*_PACKAGES, "pyflink.version"):
            return ModuleSpec(fullname, self, is_package=_is_package(fullname))
        instead = missing_module(fullname)
        if instead is None:
            return None
        raise ModuleNotAvailable(f"{fullname} is not available under Millstream", hint=instead)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name, "PyFlink's names, Millstream's classes.")

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        if name in ("pyflink", "pyflink.version"):
            module.__dict__["__version__"] = _VERSION
        if name in modules():
            names = modules()[name].names
            module.__dict__.update({attribute: find(name, attribute) for attribute in names})
            module.__dict__["__all__"] = names


def _is_package(name: str) -> bool:
    return name in _PACKAGES or any(other.startswith(name + ".") for other in modules())


_FINDER = _PyFlinkFinder()
_added: list[tuple[type, str]] = []


def is_installed() -> bool:
    """True if `import pyflink` gives Millstream's."""
    return _FINDER in sys.meta_path


def install() -> None:
    """Serve `pyflink` from now on, before an installed one."""
    if is_installed():
        return
    _forget()
    sys.meta_path.insert(0, _FINDER)
    # Python workers are children of Spark's JVM, which is a child of this process.
    os.environ[VARIABLE] = "1"
    _added.extend(complete())
    print_like_java()


def uninstall() -> None:
    """Leave `pyflink` to others again."""
    if is_installed():
        sys.meta_path.remove(_FINDER)
        print_like_python()
        while _added:
            delattr(*_added.pop())
        os.environ.pop(VARIABLE, None)
        _forget()


def _forget() -> None:
    """A `pyflink` that was imported before belongs to the other finder."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyflink"]:
        del sys.modules[name]
