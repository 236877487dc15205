"""What a Python worker says of itself and of its host.

These functions are shipped by value, and use nothing but Python's own modules: they must run where neither Millstream
nor what it needs is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = ["look"]

# What a worker imports before the first record.
_NEEDED = ("pyarrow", "pandas", "cloudpickle", "msgspec", "millstream")


def look(
    folder: str | None, token: str, own: bool, pause: float
) -> Callable[[Iterable[int]], Iterator[dict[str, Any]]]:
    """A function for the tasks of a stage: each of them yields what it has found. `folder` is looked at too, if it is
    given: a file of the driver's is read there, and one is written. `own` says that it is a path."""

    def run(numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
        for number in numbers:
            yield _facts(folder, f"{token}-{number}", token, own)
            # So that one executor does not do the work of all.
            time.sleep(pause)

    return run


def _facts(folder: str | None, name: str, token: str, own: bool) -> dict[str, Any]:
    executor, host = _executor()
    facts: dict[str, Any] = {
        "executor": executor,
        "host": host,
        "python": sys.executable,
        "version": list(sys.version_info[:3]),
        "time": time.time(),
        "missing": {},
        "versions": {},
    }
    for module in _NEEDED:
        try:
            found = importlib.import_module(module)
            facts["versions"][module] = str(getattr(found, "__version__", ""))
        except Exception as error:
            facts["missing"][module] = f"{type(error).__name__}: {error}"
    if folder:
        facts["folder"] = _try_folder(folder, name, token, own)
    return facts


def _try_folder(folder: str, name: str, token: str, own: bool) -> dict[str, str]:
    """What is wrong with the folder here, or the name of the file that was written to it."""
    try:
        if not own:
            storage = importlib.import_module("millstream.storage.open").open_storage(folder)
            if storage.read(token) != token.encode():
                return {"problem": "the driver's file holds something else"}
            storage.write(name, name.encode())
            return {"wrote": name}
        with open(os.path.join(folder, token), "rb") as file:
            if file.read() != token.encode():
                return {"problem": "the driver's file holds something else"}
        with open(os.path.join(folder, name), "wb") as file:
            file.write(name.encode())
        return {"wrote": name}
    except Exception as error:
        return {"problem": f"{type(error).__name__}: {error}"}


def _executor() -> tuple[str, str]:
    """The executor's number and host as Spark names them: words of the command that started it, which is the parent of
    this process's parent. Where that cannot be seen, the host alone."""
    process = os.getppid()
    for _ in range(3):
        try:
            with open(f"/proc/{process}/cmdline", "rb") as file:
                words = file.read().decode("utf-8", "replace").split("\0")
            if "--executor-id" in words:
                return words[words.index("--executor-id") + 1], words[words.index("--hostname") + 1]
            with open(f"/proc/{process}/stat") as file:
                process = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return "", socket.gethostname()
