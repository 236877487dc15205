"""The REST API and the dashboard of a session: one address for all its jobs.

Each job's process has a server of its own, which only the session may ask. What is asked of a job is handed to its
process; lists are put together from all of them; of a job that has ended, what its paths answered at the end is kept
(`millstream.rest.archive`). Who may ask is checked here, by the rules of `millstream.rest.security`, and again there.
"""

from __future__ import annotations

import asyncio
import os
import re
from typing import Any
from urllib.parse import quote, urlsplit

import h11
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from millstream import __version__
from millstream.errors import MillstreamError
from millstream.redaction import shown
from millstream.rest.app import RestApp, as_json, read_body
from millstream.rest.control import Control
from millstream.rest.jobs import Jobs
from millstream.rest.logs import audit
from millstream.rest.pages import FlinkPage, own_page
from millstream.rest.routes import Services
from millstream.rest.security import READING, Refused, RequestRules
from millstream.rest.settings import RestSettings
from millstream.rest.values import aggregated
from millstream.session.dispatcher import Dispatcher
from millstream.session.history import JobRecord
from millstream.session.logs import last_lines
from millstream.session.process import ENDED, JobProcess
from millstream.session.programs import pack

__all__ = ["SessionApp", "make_app"]

_OF_JOB = re.compile(r"/(?:millstream/)?jobs/([0-9a-f]{32})(?:/.*)?")
_OF_PROCESS = re.compile(r"/taskmanagers/[^/]+(?:/.*)?")
_RUN = re.compile(r"/jars/([^/]+)/run")
_ANSWER_SECONDS = 25.0
_SHOWN = 100
"""So many jobs that have ended are listed."""


class RunBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a request that starts a program may say: Flink's names. No code, no path, no setting."""

    arguments: list[str] = msgspec.field(name="programArgsList", default_factory=list)
    parallelism: int | None = None


class SessionApp(RestApp):
    """Answers for all jobs of a session."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        token: str,
        programs: dict[str, str],
        settings: RestSettings,
        port: int,
        flink_page: FlinkPage | None,
    ) -> None:
        services = Services(
            Jobs(),
            Control(any_savepoint_dir=settings.any_savepoint_dir),
            refresh_interval=settings.refresh_interval,
        )
        rules = RequestRules(settings, port, flink_page=flink_page is not None)
        super().__init__(services, rules, own_page(), flink_page)
        self._dispatcher = dispatcher
        self._token = token
        self._programs = programs

    async def _routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        request = Request(scope, receive)
        answer = await self._session_answer(method, path, request)
        if answer is None:
            await super()._routed(scope, receive, send)
        else:
            await answer(scope, receive, send)

    async def _session_answer(self, method: str, path: str, request: Request) -> Response | None:
        of_job = _OF_JOB.fullmatch(path)
        if of_job is not None:
            return await self._of_job(of_job[1], request)
        if method == "POST" and (run := _RUN.fullmatch(path)):
            return await self._start(run[1], request)
        if method not in READING:
            return None
        if path == "/jars" and self._programs:
            return _answer(self._jars())
        if path in ("/jobs", "/jobs/overview", "/millstream/jobs", "/taskmanagers"):
            return _answer(await self._list(path))
        if path == "/overview":
            return _answer(await self._overview())
        if path == "/jobs/metrics":
            return _answer(await self._figures(request))
        if _OF_PROCESS.fullmatch(path):
            for process in self._dispatcher.processes():
                answer = await self._forward(process, request)
                if answer is not None and answer.status_code == 200:
                    return answer
        return None

    # -- one job -------------------------------------------------------------------------------------------

    async def _of_job(self, id_: str, request: Request) -> Response | None:
        path = request.scope["path"]
        method = self._method(path, request)
        process = self._dispatcher.process_of(id_)
        if process is not None and id_ in process.web:
            if method not in READING:
                client = "?" if request.client is None else request.client.host
                audit.info("%s %s asked by %s", method, path, client)
            answer = await self._forward(process, request, process.web[id_], method)
            if answer is not None:
                return answer
        record = next((job for job in self._dispatcher.jobs() if job.id == id_), None)
        if record is None:
            return None
        if method not in READING:
            raise Refused(409, f"the job has ended: {record.status}")
        if path.endswith(f"/jobs/{id_}/log"):
            return _answer({"lines": last_lines(self._dispatcher.log_of(record), 500)})
        document = self._dispatcher.history.document(id_, path)
        if document is not None:
            return Response(bytes(document), headers=_JSON)
        if path == f"/jobs/{id_}/status":
            return _answer({"status": record.status})
        if path == f"/jobs/{id_}":
            return _answer(_overview_line(record))
        raise Refused(404, "only the record of this job is left: millstream history shows it")

    def _method(self, path: str, request: Request) -> str:
        """The method that the process is asked with: a page of Flink's cancels by GET, and may do so only here."""
        state = request.scope["millstream"]
        if not (path.endswith("/yarn-cancel") and state["on_page"]):
            return request.method
        self._rules.check_page(state["headers"])
        return "PATCH"

    async def _forward(
        self,
        process: JobProcess,
        request: Request,
        address: str | None = None,
        method: str = "GET",
    ) -> Response | None:
        """What the process of a job answers; None if it does not."""
        where = address or next(iter(process.web.values()), None)
        if where is None:
            return None
        body = b"" if request.method in READING else await read_body(request)
        query = request.scope.get("query_string", b"").decode("latin-1")
        path = request.scope["path"]
        path = path.removesuffix("/yarn-cancel") if method == "PATCH" else path
        target = quote(path, safe="/:") + (f"?{query}" if query else "")
        try:
            status, kind, content = await _ask(
                where, method, target, body, self._token, _ANSWER_SECONDS
            )
        except (OSError, TimeoutError, h11.ProtocolError):
            return None
        return Response(content, status, {"content-type": kind, "cache-control": "no-store"})

    # -- all of them ---------------------------------------------------------------------------------------

    async def _from_all(self, target: str) -> list[Any]:
        """What each process answers to the same question, as far as they do."""
        addresses = dict.fromkeys(
            address
            for process in self._dispatcher.processes()
            for address in list(process.web.values())
        )

        async def answer_of(address: str) -> Any:
            try:
                status, _, content = await _ask(address, "GET", target, b"", self._token, 5.0)
            except (OSError, TimeoutError, h11.ProtocolError):
                return None
            return msgspec.json.decode(content) if status == 200 else None

        answers = await asyncio.gather(*(answer_of(address) for address in addresses))
        return [answer for answer in answers if answer is not None]

    async def _list(self, path: str) -> Any:
        """A list of all processes in one, with the jobs whose processes are gone."""
        answers = await self._from_all(path)
        if path == "/taskmanagers":
            managers = {row["id"]: row for answer in answers for row in answer["taskmanagers"]}
            return {"taskmanagers": list(managers.values())}
        key = "id" if path == "/jobs" else "jid"
        rows = {row[key]: row for answer in answers for row in answer["jobs"]}
        ended = [job for job in self._dispatcher.history.all() if job.id not in rows][-_SHOWN:]
        line = {
            "/jobs": _short_line,
            "/jobs/overview": _overview_line,
            "/millstream/jobs": _own_line,
        }
        merged: dict[str, Any] = {"jobs": [*(line[path](job) for job in ended), *rows.values()]}
        if path == "/millstream/jobs":
            merged |= {"version": __version__, "pid": os.getpid()}
        return merged

    async def _overview(self) -> Any:
        states = [row["status"] for row in (await self._list("/jobs"))["jobs"]]
        managers = len((await self._list("/taskmanagers"))["taskmanagers"])
        return {
            "taskmanagers": managers,
            "slots-total": managers,
            "slots-available": 0,
            "jobs-running": sum(state not in ENDED for state in states),
            "jobs-finished": states.count("FINISHED"),
            "jobs-cancelled": states.count("CANCELED"),
            "jobs-failed": states.count("FAILED"),
            "flink-version": f"Millstream {__version__}",
            "flink-commit": "",
        }

    async def _figures(self, request: Request) -> Any:
        """Figures over all jobs."""
        wanted = [name for name in request.query_params.get("get", "").split(",") if name]
        if not wanted:
            names = [
                row["id"] for answer in await self._from_all("/jobs/metrics") for row in answer
            ]
            return [{"id": name} for name in dict.fromkeys(names)]
        kinds = [k for k in request.query_params.get("agg", "min,max,avg,sum,skew").split(",") if k]
        if not set(kinds) <= {"min", "max", "avg", "sum", "skew"}:
            raise Refused(400, "agg is some of min, max, avg, sum, skew")
        query = f"/jobs/metrics?get={','.join(wanted)}&agg=sum"
        rows = [
            {row["id"]: float(row["sum"]) for row in answer}
            for answer in await self._from_all(query)
        ]
        return aggregated(rows, wanted, kinds)

    # -- starting ------------------------------------------------------------------------------------------

    def _jars(self) -> Any:
        files = [
            {"id": name, "name": name, "uploaded": 0, "entry": []}
            for name in sorted(self._programs)
        ]
        return {"address": "", "files": files}

    async def _start(self, name: str, request: Request) -> Response:
        """Start a program that the session's configuration names."""
        path = self._programs.get(name)
        if path is None:
            raise Refused(404, "no program of this name may be started here")
        try:
            body = msgspec.json.decode(await read_body(request) or b"{}", type=RunBody)
        except (msgspec.DecodeError, RecursionError) as error:
            raise Refused(400, f"the body cannot be read: {error}") from None
        if body.parallelism is not None and not 1 <= body.parallelism <= 32768:
            raise Refused(400, "parallelism is 1 or more")
        client = "?" if request.client is None else request.client.host
        audit.info("program %s started by %s", name, client)
        settings = (
            {} if body.parallelism is None else {"parallelism.default": str(body.parallelism)}
        )

        def submit() -> Any:
            packed = pack(
                script=path,
                module=None,
                arguments=tuple(body.arguments),
                overrides=settings,
                words=(path,),
            )
            return self._dispatcher.submit(packed.program, packed.package)

        try:
            process = await asyncio.to_thread(submit)
        except (MillstreamError, OSError) as error:
            raise Refused(500, f"the program cannot be started: {error}") from None
        deadline = asyncio.get_running_loop().time() + _ANSWER_SECONDS
        while not process.known.is_set():
            if asyncio.get_running_loop().time() > deadline:
                raise Refused(504, "the program is still starting: /jobs shows it when it runs")
            await asyncio.sleep(0.05)
        submitted = self._dispatcher.wait(process)
        if submitted is None or submitted.job is None:
            why = "it has ended" if submitted is None else submitted.error
            raise Refused(400, f"the program did not start: {why}")
        return _answer({"jobid": submitted.job})


async def _ask(
    address: str, method: str, target: str, body: bytes, token: str, seconds: float
) -> tuple[int, str, bytes]:
    """One request to the server of a process: status, content type, content."""
    parts = urlsplit(address)
    async with asyncio.timeout(seconds):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            connection = h11.Connection(h11.CLIENT)
            headers = [
                ("host", parts.netloc),
                ("authorization", f"Bearer {token}"),
                ("connection", "close"),
                ("x-millstream", "session"),
                ("content-length", str(len(body))),
            ]
            if body:
                headers.append(("content-type", "application/json"))
            writer.write(
                connection.send(h11.Request(method=method, target=target, headers=headers)) or b""
            )
            writer.write(connection.send(h11.Data(data=body)) or b"")
            writer.write(connection.send(h11.EndOfMessage()) or b"")
            await writer.drain()
            return await _read(connection, reader)
        finally:
            writer.close()


async def _read(connection: h11.Connection, reader: asyncio.StreamReader) -> tuple[int, str, bytes]:
    status, kind = 502, "application/json"
    content: list[bytes] = []
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(1 << 16))
        elif isinstance(event, h11.Response):
            status = event.status_code
            found = dict(event.headers).get(b"content-type")
            kind = kind if found is None else found.decode("latin-1")
        elif isinstance(event, h11.Data):
            content.append(bytes(event.data))
        else:
            return status, kind, b"".join(content)


_JSON = {"content-type": "application/json", "cache-control": "no-store"}


def _answer(value: Any) -> Response:
    return Response(as_json(value), headers=_JSON)


def _milliseconds(seconds: float | None) -> int:
    return -1 if seconds is None else round(seconds * 1000)


def _times(job: JobRecord) -> dict[str, int]:
    end = job.started_at if job.ended_at is None else job.ended_at
    return {
        "start-time": _milliseconds(job.started_at),
        "end-time": _milliseconds(job.ended_at),
        "duration": _milliseconds(end - job.started_at),
    }


def _short_line(job: JobRecord) -> dict[str, Any]:
    return {"id": job.id, "status": job.status}


def _overview_line(job: JobRecord) -> dict[str, Any]:
    last = job.started_at if job.ended_at is None else job.ended_at
    return {
        "jid": job.id,
        "name": shown(job.name),
        "jobType": "STREAMING",
        "schedulerType": "Default",
        **_times(job),
        "state": job.status,
        "last-modification": _milliseconds(last),
        "tasks": {"total": 0},
        "pending-operators": 0,
    }


def _own_line(job: JobRecord) -> dict[str, Any]:
    return {
        "jid": job.id,
        "name": shown(job.name),
        "state": job.status,
        **_times(job),
        "epoch": job.epoch,
        "records": job.records,
        "records_per_second": 0.0,
        "restarts": job.restarts,
    }


def make_app(
    dispatcher: Dispatcher,
    token: str,
    programs: dict[str, str],
    jobs: Jobs,
    settings: RestSettings,
    port: int,
    flink_page: FlinkPage | None = None,
) -> SessionApp:
    """The application of a session."""
    return SessionApp(dispatcher, token, programs, settings, port, flink_page)
