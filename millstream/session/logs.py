"""What the programs of a session print: a file for each, which does not grow without end."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["LogPump", "follow", "last_lines", "older"]

_CHUNK = 1 << 16
# What was printed just before the end is on its way; what a program has started may hold the pipe for ever.
_AFTER_THE_END = 2.0


def older(path: Path) -> Path:
    """Where a log goes that has become too large."""
    return path.with_name(f"{path.name}.1")


class LogPump:
    """Copies from a pipe into a file, in a thread of its own, until the pipe ends or `stop` is called."""

    def __init__(self, source: int, path: Path, most: int) -> None:
        self._source = source
        self._path = path
        self._most = most
        self._stopping: float | None = None
        self._thread = threading.Thread(target=self._run, name="millstream-log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """The program has ended: take what is there, and no more."""
        self._stopping = time.monotonic() + _AFTER_THE_END
        self._thread.join()

    def _run(self) -> None:
        file: BinaryIO | None = None
        size = 0
        try:
            while self._stopping is None or time.monotonic() < self._stopping:
                if not select.select([self._source], [], [], 0.25)[0]:
                    if self._stopping is not None:
                        return
                    continue
                part = os.read(self._source, min(_CHUNK, self._most))
                if not part:
                    return
                if file is not None and size + len(part) > self._most:
                    file.close()
                    file = None
                    os.replace(self._path, older(self._path))
                if file is None:
                    file, size = _create(self._path), 0
                file.write(part)
                size += len(part)
        except OSError:
            # A disk that is full: the program must not wait for its output to be taken.
            self._drain()
        finally:
            os.close(self._source)
            if file is not None:
                file.close()

    def _drain(self) -> None:
        while self._stopping is None or time.monotonic() < self._stopping:
            if select.select([self._source], [], [], 0.25)[0] and not os.read(self._source, _CHUNK):
                return


def _create(path: Path) -> BinaryIO:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "wb", buffering=0)


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a log."""
    text = path.read_bytes() if path.exists() else b""
    if text.count(b"\n") <= count and older(path).exists():
        # A line may have begun in the one and ended in the other.
        text = older(path).read_bytes() + text
    return text.decode(errors="replace").splitlines()[-count:]


def follow(
    path: Path,
    over: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
    lines: int | None = None,
) -> Iterator[str]:
    """All of a log, or its last `lines`, and what comes to it until `over` says that nothing will. A part may end
    anywhere in a line."""
    file: BinaryIO | None = None
    before = older(path).read_bytes() if older(path).exists() else b""
    try:
        if lines is not None:
            if path.exists():
                file = path.open("rb")
                before += file.read()
            before = b"".join(before.splitlines(keepends=True)[-lines:])
        if before:
            yield before.decode(errors="replace")
        while True:
            ended = over()
            if file is None and path.exists():
                file = path.open("rb")
            part = file.read() if file is not None else b""
            if part:
                yield part.decode(errors="replace")
            elif ended:
                return
            elif file is not None and _is_another(file, path):
                file.close()
                file = None
            else:
                sleep(0.2)
    finally:
        if file is not None:
            file.close()


def _is_another(file: BinaryIO, path: Path) -> bool:
    """True if the log has become too large and begun anew."""
    try:
        return os.fstat(file.fileno()).st_ino != path.stat().st_ino
    except FileNotFoundError:
        return False
