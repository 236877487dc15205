"""A real ZooKeeper for tests and demonstrations: one server, on this machine alone, gone when the block ends.

>>> with ZooKeeperServer() as server:  # doctest: +SKIP
...     configuration.set_string("high-availability.zookeeper.quorum", server.quorum)

The jars come from Maven once and stay in `~/.cache/millstream` (or `$XDG_CACHE_HOME/millstream`).
"""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path

from millstream.errors import RuntimeUnusable
from millstream.testing import java_servers
from millstream.testing.java_servers import JavaProcess, fetched_jars, free_ports, java_command

__all__ = ["ZooKeeperServer", "missing_tools"]

VERSION = "3.9.5"
_ARTIFACTS = {
    "org.apache.zookeeper:zookeeper": VERSION,
    # Without these it dies and says nothing.
    "io.dropwizard.metrics:metrics-core": "4.1.12.1",
    "org.xerial.snappy:snappy-java": "1.1.10.5",
    "org.slf4j:slf4j-simple": "2.0.13",
}
_JAVA = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_START_SECONDS = 30.0


class ZooKeeperServer:
    """A server that can be killed and started again, with its data and at its address.

    Sessions may be as short as a second, and end half a second after their time at the latest.

    >>> with ZooKeeperServer() as server:  # doctest: +SKIP
    ...     server.kill()
    ...     server.start()
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._java: JavaProcess | None = None
        self._port = free_ports(1)[0]
        self.quorum = f"127.0.0.1:{self._port}"
        """Where clients find it."""

    def __enter__(self) -> ZooKeeperServer:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self) -> None:
        """Start it, and wait until it answers. Nothing happens if it runs."""
        if self._java is not None and self._java.running:
            return
        jars = fetched_jars("ZooKeeper", VERSION, _ARTIFACTS)
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="millstream-zookeeper-"))
        config, log = self._folder / "zoo.cfg", self._folder / "zookeeper.log"
        config.write_text(
            f"tickTime=500\ndataDir={self._folder / 'data'}\nclientPort={self._port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nminSessionTimeout=1000\n"
            "maxSessionTimeout=120000\n"
        )
        java = java_command()
        assert java is not None
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        self._java = JavaProcess([java, *_JAVA, "-cp", f"{jars}/*", main, str(config)], log)
        if not self._java.listens(self._port, _START_SECONDS):
            said = java_servers.tail(log.read_text(errors="replace"))
            self.close()
            raise RuntimeUnusable("ZooKeeper did not start", said=said)

    def kill(self) -> None:
        """End it as a crash does: at once, with nothing said. Its data stays."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order. Its data stays."""
        self._end(signal.SIGTERM)

    def close(self) -> None:
        """End it and remove its data."""
        self._end(signal.SIGKILL)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _end(self, how: signal.Signals) -> None:
        java, self._java = self._java, None
        if java is not None:
            java.end(how)


def missing_tools() -> str | None:
    """What a machine lacks to run a server, or None.

    >>> missing_tools() is None or "install" in missing_tools()
    True
    """
    return java_servers.missing_tools("ZooKeeper", VERSION)
