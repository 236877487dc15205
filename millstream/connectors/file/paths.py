"""Paths as users write them, made into paths that mean the same in every process."""

from __future__ import annotations

import os
import re
from typing import Any

from millstream.errors import InvalidArgument
from millstream.storage.urls import check_scheme, is_url

__all__ = ["local_path", "stable_path"]

_FILE = re.compile(r"file:(//[^/]*(?=/))?")


def stable_path(path: str | os.PathLike[str]) -> str:
    """A URL as it is, if there is something that can read it, or an absolute path without a scheme: a worker may have
    another working folder than the program.

    >>> stable_path("file:///data/in"), stable_path("/data/../in"), stable_path("memory://in")
    ('/data/in', '/in', 'memory://in')
    """
    given: Any = path
    text: str = os.fspath(given) if isinstance(given, (str, os.PathLike)) else ""
    if not text or not isinstance(text, str):
        raise InvalidArgument("a path must be a text that is not empty", got=repr(path))
    if is_url(text):
        check_scheme(text)
        return text
    if text.startswith("file:"):
        text = _FILE.sub("", text)
    return os.path.abspath(text)


# The name from the time when there were no others.
local_path = stable_path
