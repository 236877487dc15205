"""How the command line reaches a session."""

from __future__ import annotations

import os
import socket
from typing import Any

import msgspec

from millstream.errors import SessionError
from millstream.session.folder import SessionFolder, sessions
from millstream.session.history import JobRecord
from millstream.session.messages import Channel
from millstream.session.programs import PackedProgram

__all__ = ["SessionClient"]


class SessionClient:
    """Asks the session of a name; each question is a connection of its own."""

    def __init__(self, name: str) -> None:
        self.folder = SessionFolder(name)

    def ask(self, what: str, /, *, package: bytes = b"", **more: Any) -> Any:
        """The session's answer."""
        channel = self._connect()
        try:
            channel.send({"do": what, **more})
            if package:
                channel.connection.sendall(package)
            answer = channel.receive()
        except ConnectionError:
            answer = None
        except UnicodeEncodeError as no_text:
            raise SessionError(
                "what is sent to a session has to be text in UTF-8",
                found=ascii(no_text.object),
                hint="give names and arguments without such bytes, or run the program in the foreground",
            ) from None
        finally:
            channel.close()
        if answer is None:
            raise SessionError(
                f"the session '{self.folder.name}' has not answered",
                hint=f"it may have ended: see millstream session list, and {self.folder.log}; if others stand by for "
                "it, one of them may go on with what it was given (millstream list --session)",
            )
        if "error" in answer:
            error = answer["error"]
            if "what" not in error:
                raise SessionError(error["text"], hint=f"see {self.folder.log}")
            raise SessionError(error["what"], hint=error["hint"], **error["evidence"])
        return answer["ok"]

    def _connect(self) -> Channel:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(str(self.folder.socket))
        except OSError:
            connection.close()
            raise self.missing() from None
        return Channel(connection)

    def missing(self) -> SessionError:
        """Why there is nobody to ask, and what to do."""
        name = self.folder.name
        named = "" if name == "default" else f" --name {name}"
        start = f"start one with millstream session start -d{named}"
        facts = self.folder.facts()
        if self.folder.alive and facts is not None and facts.standing_by is not None:
            return SessionError(
                f"the session '{name}' stands by for another, and takes no jobs",
                leader=facts.standing_by,
                hint="ask the session that leads, on its host; millstream session list shows those of this one",
            )
        if self.folder.alive:
            return SessionError(
                f"the session '{name}' is starting or ending, and takes no requests",
                folder=str(self.folder.path),
                hint=f"wait for it; {self.folder.log} says what it does",
            )
        others = [other.name for other in sessions(self.folder.path.parent) if other.alive]
        if facts is not None:
            return SessionError(
                f"the session '{name}' has died (it was process {facts.pid})",
                log=str(self.folder.log),
                hint=f"{start} --recover: the jobs that it ran go on from their checkpoints",
            )
        return SessionError(
            f"there is no session '{name}'",
            folder=str(self.folder.path),
            running=", ".join(others) or "none",
            hint=f"{start}" + ("" if not others else ", or name another with --session"),
        )

    def submit(self, packed: PackedProgram) -> dict[str, Any]:
        """Run a program in the session; its answer, once a job of it runs."""
        answer: dict[str, Any] = self.ask(
            "submit",
            program=packed.program,
            bytes=len(packed.package),
            package=packed.package,
            environment={
                # What is no text in JSON is left out.
                key: value
                for key, value in os.environ.items()
                if _is_text(key) and _is_text(value)
            },
        )
        return answer

    def jobs(self) -> tuple[list[JobRecord], list[JobRecord]]:
        """The jobs that run, and those that have ended."""
        answer = self.ask("list")
        return (
            msgspec.convert(answer["running"], list[JobRecord]),
            msgspec.convert(answer["ended"], list[JobRecord]),
        )

    def find(self, wanted: str) -> JobRecord:
        """The job with a name or an id."""
        return msgspec.convert(self.ask("find", job=wanted), JobRecord)


def _is_text(word: str) -> bool:
    return all(not 0xD800 <= ord(character) <= 0xDFFF for character in word)
