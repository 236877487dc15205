"""The variable or attribute that keeps a function from travelling is found, however deep it is."""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest

from millstream.runtime.driver.culprits import culprit_in

LOCK = threading.Lock()


class Client:
    """Holds what cannot travel, one step further in."""

    def __init__(self) -> None:
        self.pools = {"main": [LOCK]}


class Uses:
    def __init__(self) -> None:
        self.name = "fine"
        self.client = Client()

    def call(self, value: Any) -> Any:
        return value


class Slotted:
    __slots__ = ("lock", "unset")

    def __init__(self) -> None:
        self.lock = LOCK


def closing_over() -> Any:
    fine, lock = [1], LOCK
    return lambda value: (value, fine, lock)


def inside_of_another() -> Any:
    inner = closing_over()
    return lambda value: inner(value)


def by_default(value: Any, *, lock: Any = LOCK) -> Any:
    return value, lock


def by_global() -> Any:
    # As a function of a program is: by value, with the globals that it names.
    code = "def locked(value):\n    return [lock for _ in value]\n"
    scope: dict[str, Any] = {"lock": LOCK, "__name__": "__main__"}
    exec(code, scope)
    return scope["locked"]


@pytest.mark.parametrize(
    ("part", "way"),
    [
        (closing_over(), "variable 'lock'"),
        (inside_of_another(), "variable 'lock' of variable 'inner'"),
        (by_global(), "global variable 'lock'"),
        (functools.partial(print, LOCK), "argument 0"),
        (functools.partial(print, file=LOCK), "argument 'file'"),
        (Uses(), "item 0 of entry 'main' of attribute 'pools' of attribute 'client'"),
        (Uses().call, "item 0 of entry 'main' of attribute 'pools' of attribute 'client'"),
        (Slotted(), "attribute 'lock'"),
        ({"a": (1, LOCK)}, "item 1 of entry 'a'"),
    ],
)
def test_the_way_to_it(part: Any, way: str) -> None:
    found = culprit_in(part)
    assert found is not None
    assert found.startswith(f"{way}: <unlocked _thread.lock object")


def test_defaults_of_a_function_of_the_program() -> None:
    by_default.__module__ = "__main__"
    try:
        assert str(culprit_in(by_default)).startswith("the default of 'lock': <unlocked")
    finally:
        by_default.__module__ = __name__


def test_nothing_is_found_in_what_travels_or_is_the_culprit_itself() -> None:
    assert culprit_in(len) is None
    assert culprit_in(LOCK) is None


def test_what_contains_itself_comes_to_an_end() -> None:
    around: dict[str, Any] = {"lock": LOCK}
    around["again"] = around
    assert str(culprit_in(around)).startswith("entry 'lock': ")
