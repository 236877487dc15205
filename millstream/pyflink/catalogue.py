"""What PyFlink has: its modules, their classes and functions, with methods and parameters.

Read from `api.txt`, which `scripts/pyflink_names.py` writes from an installed PyFlink.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

__all__ = ["Member", "PyFlinkClass", "PyFlinkModule", "modules"]


@dataclass(frozen=True)
class Member:
    """A method with its parameters, or an attribute, which has none."""

    name: str
    parameters: tuple[str, ...] | None = None


@dataclass
class PyFlinkClass:
    """A class; one inside another is called `Outer.Inner`."""

    name: str
    members: list[Member] = field(default_factory=list)


@dataclass
class PyFlinkModule:
    """A module and what can be imported from it."""

    name: str
    classes: dict[str, PyFlinkClass] = field(default_factory=dict)
    functions: dict[str, Member] = field(default_factory=dict)
    passed_on: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """What can be imported from the module."""
        outer = [name for name in self.classes if "." not in name]
        return [*outer, *self.functions, *self.passed_on]


def _member(text: str) -> Member:
    """
    >>> _member("add_all(other, prefix=)")
    Member(name='add_all', parameters=('other', 'prefix='))
    >>> _member("STRING")
    Member(name='STRING', parameters=None)
    """
    name, bracket, rest = text.partition("(")
    if not bracket:
        return Member(name)
    return Member(name, tuple(filter(None, rest.rstrip(")").split(", "))))


@cache
def modules() -> dict[str, PyFlinkModule]:
    """All modules by name.

    >>> "Duration" in modules()["pyflink.common.time"].classes
    True
    """
    modules: dict[str, PyFlinkModule] = {}
    module = PyFlinkModule("")
    definition = PyFlinkClass("")
    for line in files("millstream.pyflink").joinpath("api.txt").read_text("utf-8").splitlines():
        kind, _, rest = line.partition(" ")
        if line.startswith("["):
            module = modules[line[1:-1]] = PyFlinkModule(line[1:-1])
        elif line.startswith("  "):
            definition.members.append(_member(line.strip()))
        elif kind == "class":
            definition = module.classes[rest] = PyFlinkClass(rest)
        elif kind == "def":
            function = _member(rest)
            module.functions[function.name] = function
        elif kind == "from":
            module.passed_on.append(rest)
    return modules
