"""Signatures: with a key, nothing is read that was not written by somebody who has the key.

Without a key (`millstream.state.hmac-key-file`) files are written and read as ever. With one, a signature (HMAC-SHA256)
stands behind every block of a state file, in the first line of a manifest, and before everything else that is read
back. It is checked before what it stands for is decoded. A block's covers those before it and the file's name, so
blocks and files that were swapped, cut or taken from elsewhere are noticed.

The key itself stays in its file: each process reads it, and it never travels with the job.
"""

from __future__ import annotations

import hmac
import os
import stat
from typing import Any, NoReturn

from millstream.errors import ConfigurationError, StateNotSigned

__all__ = ["SIZE", "Seal", "signed", "verified"]

SIZE = 32
_SHORTEST = 16
_OPTION = "millstream.state.hmac-key-file"


class Seal:
    """Signs and checks with one key.

    >>> seal = Seal(b"sixteen bytes at least")
    >>> data = signed(seal, "a", b"1")
    >>> verified(seal, "a", data)
    b'1'
    >>> verified(seal, "b", data)
    Traceback (most recent call last):
    ...
    millstream.errors.StateNotSigned: ...
    """

    __slots__ = ("_mac",)

    def __init__(self, key: bytes) -> None:
        self._mac = hmac.new(key, digestmod="sha256")

    def __repr__(self) -> str:
        return "Seal(...)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key does not leave its process")

    @staticmethod
    def of(path: str | None) -> Seal | None:
        """The seal with the key in a file; None if there is no file."""
        return None if path is None else Seal(_key_in(path))

    def first(self, name: str) -> bytes:
        """What stands for the signature of a block before the first one of a file."""
        return self._of(b"N", name.encode("utf-8", "surrogatepass"))

    def block(self, before: bytes, body: bytes) -> bytes:
        """The signature of a block; `before` is that of the block before it."""
        return self._of(b"B", before, body)

    def manifest(self, body: bytes | memoryview) -> bytes:
        """The signature of a manifest, which says itself what it is of: savepoints may be moved."""
        return self._of(b"M", body)

    def small(self, name: str, data: bytes | memoryview) -> bytes:
        """The signature of a small file."""
        return self._of(b"F", self.first(name), data)

    def _of(self, *parts: bytes | memoryview) -> bytes:
        mac = self._mac.copy()
        for part in parts:
            mac.update(part)
        return mac.digest()


def same(first: bytes, second: bytes) -> bool:
    """True if two signatures are equal; how long it takes says nothing of where they differ."""
    return hmac.compare_digest(first, second)


def signed(seal: Seal | None, name: str, data: bytes) -> bytes:
    """A small file as it is written."""
    return data if seal is None else seal.small(name, data) + data


def verified(seal: Seal | None, name: str, data: bytes) -> bytes:
    """What a small file holds."""
    if seal is None:
        return data
    content = data[SIZE:]
    if not same(seal.small(name, content), data[:SIZE]):
        raise forged(name)
    return content


def unsigned(name: str) -> StateNotSigned:
    """The error for a file without a signature."""
    return StateNotSigned(
        f"the file {name} is not signed, and the job reads only what is signed with its key",
        file=name,
        hint="if you trust who wrote it: millstream savepoint sign PATH NEW_PATH --hmac-key-file FILE,"
        f" and start from NEW_PATH; without {_OPTION} nothing is checked",
    )


def forged(name: str) -> StateNotSigned:
    """The error for a file with another signature."""
    return StateNotSigned(
        f"the signature of the file {name} is not that of the key",
        file=name,
        hint=f"if {_OPTION} names the key that it was written with, somebody else has changed the file:"
        " restore it from a copy, or start from another savepoint with -s",
    )


def _key_in(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            key = file.read()
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise _unusable(path, f"cannot be read ({why})", cause=None) from None
    if os.name == "posix" and mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise _unusable(path, "can be read or changed by others", permissions=stat.filemode(mode))
    if len(key) < _SHORTEST:
        raise _unusable(path, f"is too short, {_SHORTEST} bytes are the least", found=len(key))
    return key


def _unusable(path: str, why: str, **evidence: Any) -> ConfigurationError:
    return ConfigurationError(
        f"the file of the key {why}",
        option=_OPTION,
        file=path,
        hint="on every machine of the job: head -c 32 /dev/urandom > FILE, once, then copy it; chmod 600 FILE",
        **evidence,
    )
