"""What the configuration says of the REST server, checked before anything listens."""

from __future__ import annotations

import ipaddress
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from millstream.common import options
from millstream.common.configuration import Configuration
from millstream.errors import ConfigurationError
from millstream.redaction import remember

__all__ = ["RestSettings", "is_loopback", "read_token", "rest_settings"]

TOKEN_CHARACTERS = 43
"""So many characters of base64 are 256 bits."""


@dataclass(frozen=True)
class RestSettings:
    """How the server listens, and what it allows. One of them counts for all jobs of a process: the first's."""

    port: int = 8081
    bind_address: str = "127.0.0.1"
    token: bytes | None = field(default=None, repr=False)
    refresh_interval: int = 3000
    allowed_hosts: tuple[str, ...] = ()
    any_savepoint_dir: bool = False
    flink_page: str | None = None


def rest_settings(configuration: Configuration) -> RestSettings:
    """The settings of a configuration; raises if they would let others in without a token."""
    address = options.get(configuration, options.REST_BIND_ADDRESS).strip("[]")
    token_file = options.get(configuration, options.REST_TOKEN_FILE)
    if token_file is None and not is_loopback(address):
        raise ConfigurationError(
            "the REST API is to be reached from other machines, and nothing says who may",
            bind_address=address,
            hint=f"set {options.REST_TOKEN_FILE.key} to a file with a token, or leave out"
            f" {options.REST_BIND_ADDRESS.key} and come through a tunnel (docs/rest.md)",
        )
    hosts = options.get(configuration, options.REST_ALLOWED_HOSTS) or ""
    return RestSettings(
        port=options.get(configuration, options.REST_PORT),
        bind_address=address,
        token=None if token_file is None else read_token(token_file),
        refresh_interval=options.get(configuration, options.WEB_REFRESH_INTERVAL),
        allowed_hosts=tuple(host.strip().lower() for host in hosts.split(",") if host.strip()),
        any_savepoint_dir=options.get(configuration, options.REST_ANY_SAVEPOINT_DIR),
        flink_page=options.get(configuration, options.REST_FLINK_PAGE),
    )


def is_loopback(address: str) -> bool:
    """True if only this machine can reach the address.

    >>> (
    ...     is_loopback("127.0.0.1"),
    ...     is_loopback("::1"),
    ...     is_loopback("localhost"),
    ...     is_loopback("0.0.0.0"),
    ... )
    (True, True, True, False)
    """
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        # A name may lead anywhere, and elsewhere tomorrow.
        return False


def read_token(path: str) -> bytes:
    """The token in a file, which nobody but its owner may read."""
    key = options.REST_TOKEN_FILE.key
    try:
        # Of the open file, so that it is the one that is read.
        with Path(path).open("rb") as file:
            facts = os.fstat(file.fileno())
            token = file.read(4096).strip()
    except (OSError, ValueError) as error:
        msg = "the token of the REST API cannot be read"
        hint = f"make one: (umask 077; python -c 'import secrets; print(secrets.token_urlsafe(32))' > {path})"
        raise ConfigurationError(msg, option=key, file=path, cause=str(error), hint=hint) from None
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise ConfigurationError(
            "the token of the REST API can be read by others",
            file=path,
            mode=f"{stat.S_IMODE(facts.st_mode):04o}",
            hint=f"chmod 600 {path}",
        )
    if len(token) < TOKEN_CHARACTERS or not token.isascii() or b" " in token:
        raise ConfigurationError(
            "the token of the REST API is no token that nobody can guess",
            file=path,
            characters=len(token),
            wanted=f"one line of {TOKEN_CHARACTERS} characters (256 random bits) or more",
            hint=f"umask 077; python -c 'import secrets; print(secrets.token_urlsafe(32))' > {path}",
        )
    remember(token.decode())
    return token
