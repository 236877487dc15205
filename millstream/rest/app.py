"""The ASGI application: checks who asks, limits what is sent, finds what answers.

A request passes, in this order: its turn (`budget`), its `Host`, token and origin (`security`), the table of files
(`pages`), the table of paths (`routes`). What a handler raises becomes an answer without a trace of the stack."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from millstream.redaction import get_logger, shown
from millstream.rest.budget import WAIT_SECONDS, Budget
from millstream.rest.openapi import openapi
from millstream.rest.pages import FlinkPage, Served
from millstream.rest.routes import ROUTES, Call, Endpoint, Services, Text
from millstream.rest.security import READING, Headers, Refused, RequestRules, response_headers

__all__ = ["BODY_BYTES", "RestApp", "as_json", "read_body"]

_log = get_logger("millstream.rest")

BODY_BYTES = 1 << 20
"""The largest body of a request."""

REQUEST_SECONDS = 30.0
"""What a request may take, until its answer has been sent."""

_NO_PAGE = "This is Millstream's REST API. There is no web page in this package; docs/rest.md lists the paths.\n"
_FLINK = "/flink"


class RestApp:
    """Answers every request to the server."""

    def __init__(
        self,
        services: Services,
        rules: RequestRules,
        pages: dict[str, Served],
        flink_page: FlinkPage | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._services = services
        self._rules = rules
        self._pages = pages
        self._flink_page = flink_page
        self._seconds = seconds
        # Who has its own thread for requests limits what they take of the processor.
        self.budget: Budget | None = None
        self._openapi = as_json(openapi())
        self._router = Router(
            [self._route(endpoint) for endpoint in ROUTES],
            redirect_slashes=False,
            default=_not_found,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        on_page = self._flink_page is not None and scope["path"].startswith(f"{_FLINK}/")
        started = False

        async def guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                added = response_headers(flink_page=on_page)
                message = {**message, "headers": [*message.get("headers", []), *added]}
            await send(message)

        async def refuse(status: int, why: str) -> None:
            if not started:
                await _refusal(status, why)(scope, receive, guarded)

        try:
            async with asyncio.timeout(self._seconds):
                await self._answer(scope, receive, guarded, on_page=on_page)
        except Refused as refused:
            await refuse(refused.status, refused.why)
        except TimeoutError:
            await refuse(408, "the request took too long")
        except Exception:
            _log.exception("a request failed: %s %s", scope["method"], shown(scope["path"]))
            await refuse(500, "the request failed; the driver's log says why")

    async def _answer(self, scope: Scope, receive: Receive, send: Send, *, on_page: bool) -> None:
        if self.budget is not None:
            await self.budget.turn()
        method, path = scope["method"], scope["path"]
        headers = Headers(scope["headers"])
        # The dashboard's own files are the same for everybody: a browser has to have them before it can send a token.
        public = method in READING and (path in ("/", "/health") or path in self._pages)
        self._rules.check(method, headers, public=public)
        answer: Response | None = None
        if method in READING:
            answer = self._file(path)
        if answer is None and on_page:
            path = path.removeprefix(_FLINK)
        if answer is not None:
            await answer(scope, receive, send)
            return
        if path.startswith("/v1/"):
            path = path.removeprefix("/v1")
        state = {"headers": headers, "on_page": on_page}
        await self._routed(
            {**scope, "path": path, "root_path": "", "millstream": state}, receive, send
        )

    async def _routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that may be answered, by its path."""
        await self._router(scope, receive, send)

    def _file(self, path: str) -> Response | None:
        served = self._pages.get(path)
        if served is None and self._flink_page is not None:
            if path == _FLINK:
                return Response(status_code=308, headers={"location": f"{_FLINK}/"})
            if path.startswith(f"{_FLINK}/"):
                served = self._flink_page.get(path.removeprefix(f"{_FLINK}/"))
        if served is not None:
            return Response(served.body, headers=_headers(served.type, "no-cache"))
        if path == "/openapi.json":
            return Response(self._openapi, headers=_headers("application/json", "no-cache"))
        if path == "/":
            return Response(_NO_PAGE, headers=_headers("text/plain; charset=utf-8"))
        return None

    def _route(self, endpoint: Endpoint) -> Route:
        path = "/".join(
            f"{{{part[1:]}}}" if part.startswith(":") else part for part in endpoint.path.split("/")
        )

        async def handle(request: Request) -> Response:
            return await self._handle(endpoint, request)

        return Route(path, handle, methods=[endpoint.method], name=_name(endpoint.handler))

    async def _handle(self, endpoint: Endpoint, request: Request) -> Response:
        if endpoint.page_only:
            state = request.scope["millstream"]
            if not state["on_page"]:
                return await _missing(request)
            self._rules.check_page(state["headers"])
        body = b"" if request.method in READING else await read_body(request)
        call = Call(
            self._services,
            request.path_params,
            dict(request.query_params),
            body,
            "?" if request.client is None else request.client.host,
            self._services.clock(),
        )
        result = endpoint.handler(call)
        if isinstance(result, Text):
            content = result.text.encode(errors="replace")
            return Response(content, endpoint.status, _headers("text/plain; charset=utf-8"))
        return Response(as_json(result), endpoint.status, _headers("application/json"))


def _headers(kind: str, cache: str = "no-store") -> dict[str, str]:
    return {"content-type": kind, "cache-control": cache}


def _name(handler: Callable[..., Any]) -> str:
    return handler.__name__.strip("_")


async def read_body(request: Request) -> bytes:
    """The body, as long as it is not too large; nobody waits for one that announces itself as that."""
    announced = request.headers.get("content-length", "0")
    if not announced.isdigit() or len(announced) > 12 or int(announced) > BODY_BYTES:
        raise Refused(413, f"a body has at most {BODY_BYTES} bytes")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES:
            raise Refused(413, f"a body has at most {BODY_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


async def _missing(request: Request) -> Response:
    # Without the key `errors`: Flink's page would show it as a notice, for each thing that it finds not to be here.
    content = as_json({"message": "there is nothing at this path"})
    return Response(content, 404, _headers("application/json"))


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await (await _missing(Request(scope)))(scope, receive, send)


def _refusal(status: int, why: str) -> Response:
    headers = _headers("application/json")
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if status == 429:
        headers["retry-after"] = f"{WAIT_SECONDS:.0f}"
    if status in (408, 413):
        headers["connection"] = "close"
    return Response(as_json({"errors": [shown(why)]}), status, headers)


def as_json(value: Any) -> bytes:
    """JSON, whatever characters are in it."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Half a character in a name: written as an escape it travels.
        return json.dumps(value).encode()
