"""Named places at which a test may end the process (the kill points of `docs/reliability.md`).

```
MILLSTREAM_FAILPOINT="before manifest:3"  SIGKILL when this process comes to that place for the third time
MILLSTREAM_FAILPOINT="@<path>"            the same from a file, which is read again whenever a task begins
MILLSTREAM_FAILPOINT_ONCE=<path>          only if this file can be created; the place is written into it
MILLSTREAM_FAILPOINT_ROLE=driver|worker   only in processes of this kind
```

Without the variable a place costs one comparison.
"""

from __future__ import annotations

import os
import signal

__all__ = ["look_again", "reached", "role"]

_given = os.environ.get("MILLSTREAM_FAILPOINT", "")
_wanted = ""
_left = 0
_last = ""
_role = "driver"


def reached(place: str) -> None:
    """The process has come to a place."""
    if place == _wanted:
        _count()


def role(name: str) -> None:
    """Say what kind of process this is, at the beginning and whenever a file with a place may have changed."""
    global _wanted, _left, _last, _role
    _role = name
    if not _given:
        return
    text = _given
    if text.startswith("@"):
        try:
            with open(text[1:], encoding="utf-8") as file:
                text = file.read().strip()
        except FileNotFoundError:
            text = ""
    if os.environ.get("MILLSTREAM_FAILPOINT_ROLE", name) != name:
        text = ""
    if text != _last:
        _last = text
        place, _, count = text.rpartition(":")
        _wanted, _left = place, int(count) if place else 0


def look_again() -> None:
    """Read the file with the place again, if there is one."""
    role(_role)


def _count() -> None:
    global _left
    _left -= 1
    if _left <= 0 and _first():
        os.kill(os.getpid(), signal.SIGKILL)


def _first() -> bool:
    """True if no process has been killed in the name of this marker."""
    marker = os.environ.get("MILLSTREAM_FAILPOINT_ONCE")
    if not marker:
        return True
    try:
        descriptor = os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(_wanted)
    return True


role("driver")
