"""What the paths of a job answer once it has ended, all of them at once (Flink's `ArchivedJson`), for whoever shows it
when its process is gone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from millstream.rest.control import Control
from millstream.rest.routes import ROUTES, Call, Endpoint, Services, Text
from millstream.rest.security import Refused
from millstream.rest.start import server_of_process

__all__ = ["archive"]

# Paths with one of these have no answer of their own: there is one for each subtask, checkpoint or request.
_OTHERS = (":subtaskindex", ":checkpointid", ":triggerid", ":name")


def archive(id_: str) -> dict[str, Any]:
    """By path, what the server of this process answers for a job; nothing if it shows none of this id."""
    server = server_of_process()
    job = None if server is None else server.jobs.get(id_)
    if server is None or job is None:
        return {}
    services = Services(server.jobs, Control(any_savepoint_dir=False))
    vertices = [vertex.id for vertex in job.shape.vertices]
    found = {}
    for endpoint in ROUTES:
        for path, parts in _paths(endpoint, id_, vertices):
            try:
                answer = endpoint.handler(Call(services, parts, {}, b"", "", time.time()))
            except Refused:
                continue
            if not isinstance(answer, Text):
                found[path] = answer
    return found


def _paths(
    endpoint: Endpoint, id_: str, vertices: list[str]
) -> Iterator[tuple[str, dict[str, str]]]:
    if endpoint.method != "GET" or endpoint.page_only or ":jobid" not in endpoint.path:
        return
    if any(part in endpoint.path for part in _OTHERS):
        return
    path = endpoint.path.replace(":jobid", id_)
    if ":vertexid" not in path:
        yield path, {"jobid": id_}
        return
    for vertex in vertices:
        yield path.replace(":vertexid", vertex), {"jobid": id_, "vertexid": vertex}
