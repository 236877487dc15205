"""PyFlink's module paths below `millstream`: a program may replace `pyflink` by `millstream` in its imports.

A module here has the names that it defines; PyFlink's module of the same path may have more: classes that stand in
another module here (`KeyedStream` in `data_stream`), what it imports itself, and what Millstream does not have. The
loader below answers for those, and the finder for modules that are not there at all, both from what
`millstream.pyflink` knows. That package is the top layer and is asked only when a name is missing, so a program that
needs none of this does not load it. Before it comes what savepoints name and has moved since (`millstream.v`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

from millstream import v

__all__ = ["install"]

_SHARED = ("millstream.common", "millstream.datastream", "millstream.metrics")
"""The packages that PyFlink has too."""


class SharedModule(ModuleType):
    """A module that also has the names of PyFlink's module of the same path.

    >>> from millstream.datastream.data_stream import KeyedStream
    >>> KeyedStream.__module__
    'millstream.datastream.keyed_stream'
    """

    def __getattr__(self, name: str) -> Any:
        moved = v.former(self.__name__, name)
        if moved is not None:
            return moved
        path = vars(self).get("__path__")
        # `from package import module` asks the package first; a module that is there is loaded next.
        own = path and PathFinder.find_spec(f"{self.__name__}.{name}", path)
        if not own and not name.startswith("_"):
            served = import_module("millstream.pyflink.served")
            value = served.name(self.__name__, name)
            if value is not None:
                return value
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        # A function that names the module takes it to a worker by its name.
        return import_module, (self.__name__,)


class _SharedLoader(SourceFileLoader):
    """Loads a module from its file as always, as a `SharedModule`."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return SharedModule(spec.name)


class _AbsentLoader(Loader):
    """Makes a module that has no file: its names are PyFlink's, or have moved."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return SharedModule(spec.name, "Names that stand elsewhere.")

    def exec_module(self, module: ModuleType) -> None:
        pass


class _NamesFinder(MetaPathFinder):
    """Finds the modules below `millstream`, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("millstream."):
            return None
        # Not `path`: tools that import a file look for it in folders of their own.
        parent = sys.modules.get(fullname.rpartition(".")[0])
        spec = PathFinder.find_spec(fullname, parent.__path__ if parent else path, target)
        if spec is None and v.is_former(fullname):
            return ModuleSpec(fullname, _AbsentLoader(), is_package=True)
        if spec is None:
            served = import_module("millstream.pyflink.served")
            return ModuleSpec(fullname, _AbsentLoader()) if served.module(fullname) else None
        if fullname.startswith(_SHARED) and type(spec.loader) is SourceFileLoader:
            spec.loader = _SharedLoader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Answer for PyFlink's names from now on; `import millstream` does it."""
    if not any(type(finder) is _NamesFinder for finder in sys.meta_path):
        sys.meta_path.insert(0, _NamesFinder())
