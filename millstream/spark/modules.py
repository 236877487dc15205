"""Modules of programs in a worker that serves several of them.

What a program imports from beside its script, and what is shipped with it, is found by name. Two programs may each
have a `helpers.py`. So each has a search path and modules of its own, which are put in place before its tasks: objects
of one program always meet the module that they are from.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable, Iterable
from importlib import invalidate_caches
from types import ModuleType

__all__ = ["ProgramModules", "enter_program"]

_KEPT = 64


class ProgramModules:
    """The paths and modules of programs, one of which is in place."""

    def __init__(self) -> None:
        self._base = list(sys.path)
        self._current: Hashable = None
        self._paths: dict[Hashable, list[str]] = {}
        self._modules: dict[Hashable, dict[str, ModuleType]] = {}

    def enter(self, program: Hashable, path: Iterable[str]) -> None:
        """Put a program's modules in place, and its search path."""
        if program == self._current:
            return
        if self._current is not None:
            self._put_away(self._current)
        known = self._paths.get(program)
        if known is None:
            known = [*self._base, *(entry for entry in path if entry not in self._base)]
        sys.path[:] = known
        sys.modules.update(self._modules.pop(program, {}))
        # What was there at the last look of an import may be another program's.
        invalidate_caches()
        self._current = program

    def _put_away(self, program: Hashable) -> None:
        own = tuple(
            os.path.join(os.path.abspath(entry), "")
            for entry in sys.path
            if entry not in self._base
        )
        modules = {
            name: module for name, module in list(sys.modules.items()) if _is_below(module, own)
        }
        for name in modules:
            del sys.modules[name]
        while len(self._paths) >= _KEPT:
            oldest = next(iter(self._paths))
            del self._paths[oldest]
            self._modules.pop(oldest, None)
        self._paths.pop(program, None)
        self._paths[program] = list(sys.path)
        self._modules[program] = modules


def _is_below(module: ModuleType, folders: tuple[str, ...]) -> bool:
    """True of a module that was loaded from one of the folders (or zip files)."""
    file = getattr(module, "__file__", None)
    if file is None:
        places = getattr(module, "__path__", None)
        # A folder without an __init__.py.
        file = next((os.path.join(place, "") for place in places), None) if places else None
    return isinstance(file, str) and bool(folders) and os.path.abspath(file).startswith(folders)


_programs: ProgramModules | None = None


def enter_program(path: tuple[str, ...], *more: Hashable) -> None:
    """In a worker, before a task: the modules of its program, which is known by its path and what it ships."""
    global _programs
    if _programs is None:
        _programs = ProgramModules()
    _programs.enter((path, *more), path)
