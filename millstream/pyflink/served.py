"""What `millstream.names` asks: is this module or name one of PyFlink's?"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from millstream.errors import ModuleNotAvailable
from millstream.pyflink.answers import missing_module
from millstream.pyflink.catalogue import modules
from millstream.pyflink.resolve import find, home

__all__ = ["module", "name"]


def _theirs(own: str) -> str:
    return "pyflink." + own.removeprefix("millstream.")


def module(own: str) -> bool:
    """Whether PyFlink has a module of this path with names of the DataStream API.

    A module of another part of PyFlink raises and says what to do instead.

    >>> module("millstream.datastream.connectors.kafka")
    True
    >>> module("millstream.nonsense")
    False
    """
    theirs = _theirs(own)
    if theirs in modules():
        return True
    instead = missing_module(theirs)
    if instead is None:
        return False
    raise ModuleNotAvailable(
        f"{own} is not available: Millstream does not have {theirs}", hint=instead
    )


def name(own: str, wanted: str) -> Any:
    """What a name of PyFlink's is here, if PyFlink has it in (or imports it into) its module of this path; or None.

    >>> name("millstream.datastream.data_stream", "KeyedStream")
    <class 'millstream.datastream.keyed_stream.KeyedStream'>
    >>> name("millstream.datastream.data_stream", "Nonsense") is None
    True
    """
    theirs = modules().get(_theirs(own))
    if theirs is None:
        return None
    if f"{theirs.name}.{wanted}" in modules():
        return import_module(f"{own}.{wanted}")
    if wanted in theirs.names:
        return find(theirs.name, wanted)
    # PyFlink's modules also hold what they import from each other, and programs use that.
    defined = home(wanted)
    return None if defined is None else find(defined, wanted)
