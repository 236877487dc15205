"""The folder of a session: its socket, who it is, the programs it was given, logs and the history of its jobs.

`~/.millstream/sessions/NAME`, or below `MILLSTREAM_SESSIONS_DIR`. Everything in it is for its owner alone. A session
holds a lock on it for as long as it lives: what a session that was killed has left behind is known by that.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from pathlib import Path

import msgspec

from millstream.errors import ConfigurationError, SessionError

__all__ = ["SessionFacts", "SessionFolder", "sessions", "sessions_root"]

VARIABLE = "MILLSTREAM_SESSIONS_DIR"
DEFAULT = "default"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# The kernel's limit for the path of a socket is 108 bytes with its end.
_SOCKET_BYTES = 107


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a session writes down of itself, for whoever wants to reach it."""

    name: str
    pid: int
    started_at: float
    version: str
    web: str | None = None
    engine: dict[str, str] = {}
    standing_by: str | None = None
    """While another session leads: which, as far as is known."""


def sessions_root() -> Path:
    """Where the folders of sessions are."""
    given = os.environ.get(VARIABLE)
    return Path(given).absolute() if given else Path.home() / ".millstream" / "sessions"


class SessionFolder:
    """The paths of one session.

    >>> SessionFolder("nightly", Path("/tmp/sessions")).socket
    PosixPath('/tmp/sessions/nightly/socket')
    """

    def __init__(self, name: str = DEFAULT, root: Path | None = None) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigurationError(
                "this is no name for a session",
                name=name,
                hint="use up to 64 letters, digits, '.', '_' and '-', the first a letter or a digit",
            )
        self.name = name
        self.path = (root or sessions_root()) / name
        self.socket = self.path / "socket"
        self.log = self.path / "session.log"
        self.logs = self.path / "logs"
        self.programs = self.path / "programs"
        self.token = self.path / "token"
        self._facts = self.path / "session.json"
        self._temporary = self.path / "temporary"
        self._lock = self.path / "lock"
        self._shared = self.path / "shared"
        self._held: int | None = None

    def make(self) -> None:
        """Make the folder, for its owner alone; an error if others could change what is in it."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            facts = self.path.stat()
        except OSError as error:
            raise SessionError(
                "the folder of the session cannot be made",
                folder=str(self.path),
                cause=str(error),
                hint=f"set {VARIABLE} to a folder of yours",
            ) from None
        if facts.st_uid != os.geteuid():
            raise SessionError(
                "the folder of the session belongs to somebody else",
                folder=str(self.path),
                hint=f"set {VARIABLE} to a folder of yours",
            )
        if stat.S_IMODE(facts.st_mode) & 0o077:
            self.path.chmod(0o700)
        if len(os.fsencode(self.socket)) > _SOCKET_BYTES:
            raise SessionError(
                "the path of the session's socket is longer than the system allows",
                path=str(self.socket),
                allowed=f"{_SOCKET_BYTES} bytes",
                hint=f"set {VARIABLE} to a shorter path",
            )
        for folder in (self.logs, self.programs):
            folder.mkdir(mode=0o700, exist_ok=True)

    def take(self) -> bool:
        """Hold the lock from now until this process ends; False if another process does."""
        # Not inherited: a job's process that outlives its session for a moment must not seem to be it.
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # More than once: somebody may be looking at it (`alive`) right now.
        for _ in range(20):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._held = descriptor
                return True
            time.sleep(0.02)
        os.close(descriptor)
        return False

    def make_temporary(self) -> Path:
        """A folder for what goes with the session; that of one that was killed is removed."""
        with contextlib.suppress(OSError):
            shutil.rmtree(self._temporary.read_text(), ignore_errors=True)
        made = Path(tempfile.mkdtemp(prefix="millstream-session-"))
        self._temporary.write_text(str(made))
        return made

    @property
    def storage(self) -> str:
        """Where the history is: in this folder, or in what sessions that stand by for each other share."""
        try:
            return self._shared.read_text()
        except OSError:
            return str(self.path)

    def share(self, root: str | None) -> None:
        """Note where the history is, if it is not in this folder, for when the session is gone."""
        if root is None:
            self._shared.unlink(missing_ok=True)
        else:
            self._shared.write_text(root)

    def let_go(self) -> None:
        """The session ends in order: nobody is to find its socket."""
        with contextlib.suppress(OSError):
            shutil.rmtree(self._temporary.read_text(), ignore_errors=True)
        for path in (self.socket, self._facts, self.token, self._temporary):
            path.unlink(missing_ok=True)
        if self._held is not None:
            os.close(self._held)
            self._held = None

    @property
    def alive(self) -> bool:
        """True if a session has it, in whatever process."""
        try:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            # Shared, so that two that look at the same time do not take each other for a session.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def write_facts(self, facts: SessionFacts) -> None:
        """Say who the session is."""
        hidden = self.path / ".session.json"
        hidden.write_bytes(msgspec.json.encode(facts))
        os.replace(hidden, self._facts)

    def facts(self) -> SessionFacts | None:
        """Who the session is, or was; None if it has ended in order."""
        try:
            return msgspec.json.decode(self._facts.read_bytes(), type=SessionFacts)
        except (OSError, msgspec.DecodeError):
            return None


def sessions(root: Path | None = None) -> list[SessionFolder]:
    """All that have a folder."""
    where = root or sessions_root()
    try:
        names = sorted(entry.name for entry in where.iterdir() if entry.is_dir())
    except OSError:
        return []
    return [SessionFolder(name, where) for name in names if _NAME.fullmatch(name)]
