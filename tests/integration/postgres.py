"""A PostgreSQL server of the tests' own: on a free port of this machine, in a folder that goes again."""

from __future__ import annotations

import glob
import os
import pwd
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Server", "find_binaries", "postgres", "start_server"]

_USER = "millstream"
_DATABASE = "postgres"
_INSTALLED = "/usr/lib/postgresql/*/bin"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "max_connections": "50",
    "shared_buffers": "16MB",
}


class Server:
    """A server that runs; `dsn` is how to connect to it."""

    def __init__(self, folder: Path, binaries: Path, port: int, password: str) -> None:
        self.folder = folder
        self.binaries = binaries
        self.password = password
        self.dsn: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": port,
            "user": _USER,
            "password": password,
            "dbname": _DATABASE,
        }

    def control(self, *arguments: str) -> None:
        """Run pg_ctl."""
        data = str(self.folder / "data")
        _run(self.folder, [str(self.binaries / "pg_ctl"), "-D", data, "-w", *arguments])


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The server, the same for all tests of a run."""
    folder = Path(tempfile.mkdtemp(prefix="millstream-postgres-", dir="/tmp"))
    try:
        server = start_server(folder)
        yield server
        server.control("stop", "-m", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def start_server(folder: Path) -> Server:
    """Make a cluster in an empty folder and start it."""
    binaries = find_binaries()
    user = _server_user()
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    password = secrets.token_hex(8)
    passwords = folder / "password"
    passwords.write_text(password)
    passwords.chmod(0o644)  # the folder itself is closed to others
    _run(
        folder,
        [
            str(binaries / "initdb"),
            f"--pgdata={folder / 'data'}",
            f"--username={_USER}",
            f"--pwfile={passwords}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ],
    )
    for attempts_left in (2, 1, 0):
        server = Server(folder, binaries, _free_port(), password)
        settings = {**_SETTINGS, "port": str(server.dsn["port"])}
        options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        try:
            server.control("start", "-t", "60", "-l", str(folder / "log"), "-o", options)
            return server
        except AssertionError:
            # Somebody may have taken the port in between.
            if not attempts_left:
                raise
    raise AssertionError("not reached")


def find_binaries() -> Path:
    """The folder of initdb and pg_ctl; as root on Debian they are installed if there are none."""
    found = _installed()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install()
        found = _installed()
    if found is None:
        pytest.fail(
            "these tests need PostgreSQL's initdb and pg_ctl, and found none on PATH or in"
            f" {_INSTALLED}; install the server (Debian, Ubuntu: sudo apt-get install postgresql;"
            " macOS: brew install postgresql)",
            pytrace=False,
        )
    return found


def _installed() -> Path | None:
    on_path = shutil.which("pg_ctl")
    folders = [Path(on_path).resolve().parent] if on_path else []
    # 9.6 is older than 15.
    installed = sorted(
        glob.glob(_INSTALLED), key=lambda name: [int(n) for n in re.findall(r"\d+", name)]
    )
    folders += [Path(name) for name in reversed(installed)]
    return next((f for f in folders if (f / "initdb").exists() and (f / "pg_ctl").exists()), None)


def _install() -> None:
    """Install the server, but no cluster of the system's own."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "--no-install-recommends"]
    subprocess.run(["apt-get", "update"], env=environment, capture_output=True, check=False)
    subprocess.run(
        [*install, "postgresql-common"], env=environment, capture_output=True, check=False
    )
    settings = Path("/etc/postgresql-common/createcluster.conf")
    if settings.exists():
        settings.write_text(settings.read_text() + "\ncreate_main_cluster = false\n")
    done = subprocess.run(
        [*install, "postgresql"], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(f"apt-get could not install postgresql:\n{done.stderr[-2000:]}", pytrace=False)


def _server_user() -> pwd.struct_passwd | None:
    """Whom the server runs as: it refuses to be root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    pytest.fail("the server cannot run as root, and there is no user postgres or nobody")


def _run(folder: Path, command: list[str]) -> None:
    user = _server_user()
    identity: dict[str, Any] = (
        {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    )
    # A server that is started keeps its streams, so they must not be pipes that are read to their end.
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=90,
            check=False,
            **identity,
        )
        output.seek(0)
        said = output.read()
    log = folder / "log"
    if done.returncode and log.exists():
        said += log.read_text()
    assert done.returncode == 0, f"{os.path.basename(command[0])} failed:\n{said[-3000:]}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
