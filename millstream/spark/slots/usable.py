"""Whether slots can be used: by this system and this PySpark, and by the Python that runs the workers."""

from __future__ import annotations

import os
import shutil
import site
import socket
import sys
from pathlib import Path

import millstream

__all__ = ["usable", "workers_import_us"]


def usable() -> bool:
    """True if this machine, this Python and this PySpark have what the daemon needs."""
    from pyspark.serializers import SpecialLengths

    return (
        sys.platform == "linux"
        and hasattr(SpecialLengths, "START_OF_INIT_MESSAGE")
        and hasattr(socket, "send_fds")
    )


def _is_ours(python: str | None) -> bool:
    """True of this Python in this environment: virtual ones of the same Python lead to the same file."""
    if python is None:
        return False
    here, there = os.path.abspath(sys.executable), os.path.abspath(python)
    folders = {os.path.realpath(os.path.dirname(path)) for path in (here, there)}
    return len(folders) == 1 and os.path.realpath(here) == os.path.realpath(there)


def workers_import_us(python: str | None) -> bool:
    """True if the workers of a local Spark find this package before a task has told them where it is. A daemon that
    cannot be imported fails every Python function of a session."""
    python = python or os.environ.get("PYSPARK_PYTHON") or sys.executable
    if not _is_ours(shutil.which(python)):
        return False
    assert millstream.__file__ is not None
    root = Path(millstream.__file__).parents[1]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    linked = [
        line
        for folder in folders
        for file in sorted(Path(folder).glob("*.pth"))
        for line in file.read_text(errors="replace").splitlines()
    ]
    return any(entry and Path(entry).absolute() == root for entry in (*given, *folders, *linked))
