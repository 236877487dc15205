"""The cluster that `millstream doctor -Dspark.master=...` is to check: starts an application there and asks around."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from millstream import __version__
from millstream.cli import cluster_checks as checks
from millstream.cli.checks import Finding
from millstream.errors import MillstreamError

__all__ = ["examine_cluster"]

_SECONDS_FOR_EXECUTORS = 20.0
_SETTLE = 2.0


def examine_cluster(settings: Mapping[str, str]) -> Iterator[Finding]:
    """Every finding about the cluster that `spark.master` names."""
    from millstream.spark.session import make_session

    master = settings["spark.master"]
    spark = {key: value for key, value in settings.items() if key.startswith("spark.")}
    spark.setdefault("spark.app.name", "millstream doctor")
    yield checks.check_security(spark)
    try:
        session = make_session(spark)
    except MillstreamError as error:
        tried = str(error.evidence.get("tried", "")).replace("\n", ", ")
        yield checks.check_master(
            master, f"{error.what} ({tried})" if tried else error.what, error.hint or ""
        )
        return
    try:
        yield checks.check_master(master)
        yield from _examine(session, settings)
    finally:
        with contextlib.suppress(Exception):
            session.stop()


def _examine(session: Any, settings: Mapping[str, str]) -> Iterator[Finding]:
    from millstream.common.configuration import Configuration
    from millstream.common.dependencies import declared
    from millstream.spark.dependencies import environment_python
    from millstream.spark.executors import examine, master_has, new_token
    from millstream.spark.failures import translate

    context = session.sparkContext
    hosts = _hosts(session)
    conf = context.getConf()
    driver = f"{conf.get('spark.driver.host')}:{conf.get('spark.driver.port')}"
    if not hosts:
        has = master_has(str(context.master), conf.get("spark.master.ui.port", "8080"))
        problem = (
            f"no executor has come; the master has {has}; the driver is at {driver}"
            if has
            else None
        )
        yield checks.check_executors([], 0, driver, problem)
        return
    slots = int(context._jsc.sc().defaultParallelism())
    yield checks.check_executors(hosts, slots, driver)
    wanted = declared(Configuration.from_dict(dict(settings)))
    shipped = environment_python(
        session, wanted, settings.get("millstream.state.dir"), context.pythonExec
    )
    context.pythonExec = shipped or context.pythonExec
    folder = settings.get("execution.checkpointing.dir") or settings.get("state.checkpoints.dir")
    token = new_token()
    with _LookedAt(folder, token) as shared:
        try:
            asked = shared.path if shared.problem is None else None
            executors = examine(session, folder=asked, token=token)
        except Exception as error:
            told = translate(error)
            yield Finding("Python there", "fail", _in_one_line(told), told.hint or "")
            return
        yield checks.check_pythons(
            tuple(sys.version_info[:3]), executors, len(hosts) - len(executors)
        )
        yield checks.check_packages(__version__, executors)
        unread = [found.name for found in executors if found.wrote and not shared.has(found.wrote)]
        yield checks.check_folder(folder, executors, unread, shared.problem)
        yield checks.check_clocks(executors)


def _in_one_line(error: MillstreamError) -> str:
    facts = [f"{name}: {value}".replace("\n", ", ") for name, value in error.evidence.items()]
    return "; ".join([error.what, *facts[:4]])


def _hosts(session: Any) -> list[str]:
    """The executors, once their number has stayed the same for a moment."""
    from millstream.spark.executors import executor_hosts

    deadline = time.monotonic() + _SECONDS_FOR_EXECUTORS
    hosts, since = executor_hosts(session), time.monotonic()
    while time.monotonic() < deadline and not (hosts and time.monotonic() - since >= _SETTLE):
        time.sleep(0.1)
        now = executor_hosts(session)
        if now != hosts:
            hosts, since = now, time.monotonic()
    return hosts


class _LookedAt:
    """The folder of the checkpoints, with a file of the driver's in it for as long as it is looked at."""

    def __init__(self, folder: str | None, token: str) -> None:
        self.problem: str | None = None
        self.path: str | None = None
        self._token = token
        self._storage: Any = None
        self._made = False
        if folder is None:
            return
        from millstream.storage.open import open_storage
        from millstream.storage.storage import stable

        try:
            self.path = stable(folder).rstrip("/")
            self._made = "://" not in self.path and not os.path.exists(self.path)
            self._storage = open_storage(self.path)
            self._storage.write(token, token.encode())
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"
            self._storage = None

    def has(self, name: str) -> bool:
        """True if the driver sees a file that an executor has written, and can read it."""
        try:
            return self._storage is not None and self._storage.read(name) == name.encode()
        except (OSError, ValueError):
            return False

    def __enter__(self) -> _LookedAt:
        return self

    def __exit__(self, *_: object) -> None:
        if self._storage is None:
            return
        with contextlib.suppress(Exception):
            for name in self._storage.list(""):
                if name.startswith(self._token):
                    self._storage.delete(name)
            if self._made:
                os.rmdir(str(self.path))
