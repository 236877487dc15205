"""Whether there is somebody where a cluster's master should be, before Spark is started: it would try for a minute."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable

from millstream.errors import ClusterUnreachable, ConfigurationError

__all__ = ["addresses", "lost_master", "require_master"]

_SECONDS = 10.0
_ONE_TRY = 3.0
_PAUSE = 0.5
_WEB_PORTS = {"http": 80, "https": 443}

# What Spark takes; anything else it refuses with a stack of Java's.
_KNOWN = re.compile(
    r"local|local\[.+\]|local-cluster\[.+\]|yarn|k8s://.+|spark://[^,/]+:\d+(,[^,/]+:\d+)*"
)

_HINT = (
    "start the master, or put spark.master right (a standalone master says its URL in its log and on its page, and it "
    "is not the port of that page); look for a firewall between this machine and it"
)


def addresses(master: str) -> list[tuple[str, int]]:
    """The hosts and ports that a master's URL names; none where Spark finds them otherwise (YARN).

    >>> addresses("spark://a:7077,b:7078"), addresses("k8s://https://api"), addresses("yarn")
    ([('a', 7077), ('b', 7078)], [('api', 443)], [])
    """
    if master.startswith("spark://"):
        found = [word.rpartition(":") for word in master.removeprefix("spark://").split(",")]
        return [(host, int(port)) for host, _, port in found if host and port.isdigit()]
    match = re.match(r"k8s://(?:(https?)://)?([^/:]+)(?::(\d+))?", master)
    if match is None:
        return []
    return [(match[2], int(match[3] or _WEB_PORTS[match[1] or "https"]))]


def require_master(
    master: str,
    *,
    seconds: float = _SECONDS,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return if one of the addresses can be connected to; else, when the time is up, say what each of them did. A
    master that is just being started again is waited for."""
    if not _KNOWN.fullmatch(master):
        raise ConfigurationError(
            "this is no address of a Spark master",
            key="spark.master",
            found=master,
            hint="write local[*], spark://host:port, yarn or k8s://https://host:port",
        )
    tried = addresses(master)
    if not tried:
        return
    deadline = clock() + seconds
    while True:
        problems = {}
        for host, port in tried:
            problem = _try(host, port)
            if problem is None:
                return
            problems[f"{host}:{port}"] = problem
        if clock() >= deadline:
            raise ClusterUnreachable(
                f"the cluster's master cannot be reached: {master}",
                tried="\n".join(f"{address}: {problem}" for address, problem in problems.items()),
                seconds=round(seconds),
                hint=_HINT,
            )
        sleep(_PAUSE)


def _try(host: str, port: int) -> str | None:
    try:
        with socket.create_connection((host, port), timeout=_ONE_TRY):
            return None
    except OSError as error:
        return f"{type(error).__name__}: {error}"


def lost_master(master: str, error: BaseException) -> ClusterUnreachable | None:
    """The error, if Spark has found somebody at the address who did not answer as a master does."""
    text = str(error)
    # What the master's silence looks like to whoever goes on building on it.
    signs = ("masters are unresponsive", "Application has been killed", "stopped SparkContext")
    if not addresses(master) or not any(sign in text for sign in signs):
        return None
    first = next((line for line in text.splitlines() if line.strip()), "")
    return ClusterUnreachable(
        f"the cluster's master does not answer: {master}",
        tried=", ".join(f"{host}:{port}" for host, port in addresses(master)),
        spark_says=first[:300],
        hint=f"{_HINT}; another version of Spark, or another spark.authenticate.secret, looks the same",
    )
