"""Who may ask: names in the `Host` header, origins, tokens. Pure functions of a request's headers, held by
tests/unit/rest/test_security.py.

A web page that somebody has open can send requests to this machine. Three things keep it out. Its own name is not among
those of the server, so that it cannot make its name lead here and read answers (DNS rebinding: `Host`). A request that
changes something says where it comes from (`Origin`, `Sec-Fetch-Site`), and has to carry what a form or an image cannot
send: a JSON content type, or the header `X-Millstream`. And nothing is changed by GET, but for Flink's own page, if it
is served: its cancel has to come from a page of this server (`Referer`).
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from millstream.rest.settings import RestSettings

__all__ = ["Headers", "Refused", "RequestRules", "response_headers"]

READING = ("GET", "HEAD")
OWN_HEADER = "x-millstream"


class Headers:
    """The headers of a request, by their names in lower case; those that came more than once with all values."""

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name.decode("latin-1").lower(), []).append(
                value.decode("latin-1")
            )

    def one(self, name: str) -> str | None:
        """The value of a header that came once, None of one that did not come, '' of one that came twice."""
        values = self._values.get(name, [])
        return None if not values else values[0] if len(values) == 1 else ""


class Refused(Exception):
    """The request is not answered, with which status and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class RequestRules:
    """What a request must be like to be answered by the server that listens on a port."""

    def __init__(self, settings: RestSettings, port: int, *, flink_page: bool = False) -> None:
        self._token = settings.token
        self._flink_page = flink_page
        self._port = port
        address = settings.bind_address
        # Whoever listens on all addresses has no name of its own. A number is none that could be made to lead here.
        self._any_number = address in ("", "0.0.0.0", "::")
        names = {"127.0.0.1", "localhost", "[::1]", _bracketed(address)}
        if self._any_number:
            names.add(socket.gethostname().lower())
        self._hosts = {f"{name}:{port}" for name in names} | {
            host for host in settings.allowed_hosts if _port_of(host)
        }
        # Behind a proxy at a usual port a browser leaves the port out.
        self._hosts |= {host for host in settings.allowed_hosts if not _port_of(host)}
        self._hosts |= {f"{host}:{port}" for host in settings.allowed_hosts if not _port_of(host)}
        if port == 80:
            self._hosts |= names

    def check(self, method: str, headers: Headers, *, public: bool = False) -> None:
        """Raise `Refused` if the request is not to be answered; what is public needs no token."""
        if not self._known(headers.one("host")):
            raise Refused(403, "this server does not go by the name in the Host header")
        if not public:
            self._check_token(headers)
        if method not in READING:
            self._check_origin(headers)
            kind = (headers.one("content-type") or "").partition(";")[0].strip().lower()
            if kind != "application/json" and headers.one(OWN_HEADER) is None:
                why = "a change needs the content type application/json or the header X-Millstream"
                raise Refused(403, why)

    def check_page(self, headers: Headers) -> None:
        """Raise `Refused` unless the request comes from a page of this server: for a change by GET."""
        if not self._flink_page:
            raise Refused(404, "not here")
        self._check_origin(headers)
        if headers.one("origin") is None and not self._own(headers.one("referer")):
            raise Refused(403, "this comes from no page of this server")

    def _check_token(self, headers: Headers) -> None:
        if self._token is None:
            return
        scheme, _, given = (headers.one("authorization") or "").partition(" ")
        same = hmac.compare_digest(given.strip().encode("latin-1"), self._token)
        if scheme.lower() != "bearer" or not same:
            raise Refused(401, "a token is needed: Authorization: Bearer ...")

    def _check_origin(self, headers: Headers) -> None:
        site = headers.one("sec-fetch-site")
        if site is not None and site not in ("same-origin", "none"):
            raise Refused(403, "this comes from a page of another server")
        origin = headers.one("origin")
        if origin is not None and not self._own(origin):
            raise Refused(403, "this comes from a page of another server")

    def _own(self, address: str | None) -> bool:
        if not address:
            return False
        try:
            parts = urlsplit(address)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and self._known(parts.netloc)

    def _known(self, host: str | None) -> bool:
        if not host:
            return False
        host = host.strip().lower()
        if host in self._hosts:
            return True
        if not self._any_number:
            return False
        name, _, port = host.rpartition(":")
        return port == str(self._port) and _is_number(name)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address.lower()


def _port_of(host: str) -> str:
    return host.rpartition(":")[2] if ":" in host and not host.endswith("]") else ""


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


_POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
# Flink's page brings styles inside of its elements, and one script of a line, which loads its style sheet.
_FLINK_POLICY = (
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:;"
    " script-src 'self' 'unsafe-hashes' 'sha256-MhtPZXr7+LpJUY5qtMutB+qWfQtMaPccfe7QXtCcEYc=';"
    " worker-src 'self' blob:; base-uri 'self'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
)


def response_headers(*, flink_page: bool = False) -> list[tuple[bytes, bytes]]:
    """What every answer carries: only this server's own files, in no frame, as what they are said to be."""
    return [
        (b"content-security-policy", (_FLINK_POLICY if flink_page else _POLICY).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
    ]
