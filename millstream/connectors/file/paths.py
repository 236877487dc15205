"""Paths as users write them, made into paths that mean the same in every process."""

from __future__ import annotations

import os
import re
from typing import Any

from millstream.errors import InvalidArgument, NotSupportedYet

__all__ = ["local_path"]

_FILE = re.compile(r"file:(//[^/]*(?=/))?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def local_path(path: str | os.PathLike[str]) -> str:
    """An absolute path without a scheme: a worker may have another working folder than the program.

    >>> local_path("file:///data/in"), local_path("/data/../in")
    ('/data/in', '/in')
    """
    given: Any = path
    text: str = os.fspath(given) if isinstance(given, (str, os.PathLike)) else ""
    if not text or not isinstance(text, str):
        raise InvalidArgument("a path must be a text that is not empty", got=repr(path))
    if text.startswith("file:"):
        text = _FILE.sub("", text)
    elif _SCHEME.match(text):
        raise NotSupportedYet(
            "this file system is not available yet",
            path=text,
            hint="use a folder that every worker can see under the same path",
        )
    return os.path.abspath(text)
