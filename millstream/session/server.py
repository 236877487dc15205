"""The socket of a session, which only its user can open, and what is asked through it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from millstream import __version__
from millstream.errors import MillstreamError, SessionError, told
from millstream.redaction import get_logger
from millstream.session.dispatcher import Dispatcher
from millstream.session.folder import SessionFacts
from millstream.session.messages import Channel, peer_uid
from millstream.session.programs import SubmittedProgram

__all__ = ["SessionServer"]

_log = get_logger("millstream.session")

# What a client sends before its request is complete.
_REQUEST_SECONDS = 60.0


class SessionServer:
    """Listens in a thread of its own, and answers each client in one."""

    def __init__(
        self,
        path: Path,
        dispatcher: Dispatcher,
        facts: Callable[[], SessionFacts],
        on_stop: Callable[[], None],
    ) -> None:
        self._path = path
        self._dispatcher = dispatcher
        self._facts = facts
        self._on_stop = on_stop
        self._stopped = threading.Event()
        # Whoever holds the session's lock is the only one who may: this is what a killed one has left.
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Nobody else may connect, also in the moment before the mode is set; the folder is for its owner alone.
        before = os.umask(0o177)
        try:
            self._socket.bind(str(path))
        finally:
            os.umask(before)
        self._socket.listen(64)
        self._thread = threading.Thread(target=self._main, name="millstream-session", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering; who is being answered is answered."""
        self._stopped.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _main(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if not self._stopped.is_set():
                    _log.warning("the session cannot take a connection: %s", error)
                    self._stopped.wait(0.5)
                continue
            threading.Thread(
                target=self._serve, args=(connection,), name="millstream-client", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        channel = Channel(connection)
        try:
            if peer_uid(connection) not in (os.geteuid(), 0):
                _log.warning("another user wants to talk to the session")
                return
            connection.settimeout(_REQUEST_SECONDS)
            message = channel.receive()
            if message is not None:
                channel.send(self._answered(message, channel))
        except (OSError, SessionError) as error:
            # It has gone, or is none of ours.
            _log.debug("a client of the session is gone: %s", error)
        finally:
            channel.close()

    def _answered(self, message: Any, channel: Channel) -> dict[str, Any]:
        try:
            handler = _HANDLERS.get(message.get("do")) if isinstance(message, dict) else None
            if handler is None:
                raise SessionError(
                    "the session does not know what it is asked for",
                    asked=str(message)[:200],
                    session=__version__,
                    hint="session and command have to be of one version",
                )
            return {"ok": handler(self, message, channel)}
        except MillstreamError as error:
            return {"error": msgspec.to_builtins(_as_message(error))}
        except OSError:
            raise
        except Exception as error:
            _log.exception("what a client has asked for has failed")
            return {"error": {"text": told(error)}}

    # -- what is asked -------------------------------------------------------------------------------------

    def _submit(self, message: dict[str, Any], channel: Channel) -> Any:
        package = channel.receive_bytes(int(message["bytes"]))
        program = msgspec.convert(message["program"], SubmittedProgram)
        process = self._dispatcher.submit(program, package, message.get("environment"))
        submitted = self._dispatcher.wait(process, channel.gone)
        if submitted is None:
            raise SessionError("whoever has submitted the program has gone")
        return {"id": submitted.id, "job": submitted.job, "error": submitted.error}

    def _list(self, message: dict[str, Any], channel: Channel) -> Any:
        return {
            "running": msgspec.to_builtins(self._dispatcher.running()),
            "ended": msgspec.to_builtins(self._dispatcher.history.all()),
        }

    def _ask(self, message: dict[str, Any], channel: Channel) -> Any:
        timeout = float(message.get("timeout", 600.0))
        more = {
            key: message[key] for key in message if key not in ("do", "job", "action", "timeout")
        }
        return self._dispatcher.ask(message["job"], message["action"], timeout, **more)

    def _find(self, message: dict[str, Any], channel: Channel) -> Any:
        return msgspec.to_builtins(self._dispatcher.find(message["job"]))

    def _stop(self, message: dict[str, Any], channel: Channel) -> Any:
        self._on_stop()
        return {}

    def _status(self, message: dict[str, Any], channel: Channel) -> Any:
        return msgspec.to_builtins(self._facts()) | {"jobs": len(self._dispatcher.running())}


_HANDLERS: dict[str | None, Callable[[SessionServer, dict[str, Any], Channel], Any]] = {
    "submit": SessionServer._submit,
    "list": SessionServer._list,
    "ask": SessionServer._ask,
    "find": SessionServer._find,
    "stop": SessionServer._stop,
    "status": SessionServer._status,
}


def _as_message(error: MillstreamError) -> dict[str, Any]:
    evidence = {name: str(value) for name, value in error.evidence.items()}
    return {"what": error.what, "hint": error.hint, "evidence": evidence, "text": str(error)}
