"""A real Kafka broker for tests and demonstrations: one node, on this machine alone, gone when the block ends.

>>> with kafka_broker() as servers:  # doctest: +SKIP
...     source = KafkaSource.builder().set_bootstrap_servers(servers)

The jars come from Maven once and stay in `~/.cache/millstream` (or `$XDG_CACHE_HOME/millstream`). Who wants to see what
a program does when its broker goes away uses `KafkaBroker` itself, which can be killed and started again with its data.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import signal
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from millstream.errors import RuntimeUnusable
from millstream.testing import java_servers
from millstream.testing.java_servers import (
    JavaProcess,
    fetched_jars,
    free_ports,
    java_command,
    tail,
)

__all__ = ["KafkaBroker", "kafka_broker", "kafka_jars", "missing_tools"]

VERSION = "4.3.1"
_LOGGING = "2.25.4"
_START_SECONDS = 90.0
_ARTIFACTS = {
    "org.apache.kafka:kafka_2.13": VERSION,
    "org.apache.logging.log4j:log4j-slf4j-impl": _LOGGING,
}
_LOG4J = """rootLogger.level=WARN
rootLogger.appenderRef.console.ref=console
appender.console.name=console
appender.console.type=Console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c: %m%n
"""
# One node, small: as little memory, as few partitions and as little waiting as possible.
_SERVER = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # One that was killed is let in again only when its old session has run out.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.dedupe.buffer.size": "20000000",
    # Tests write records of any time: by the default those of 1970 are removed at the next check.
    "log.retention.ms": "-1",
}
_JAVA = ["-Xms256m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


@contextlib.contextmanager
def kafka_broker(**settings: Any) -> Iterator[str]:
    """A broker while the block runs; gives its bootstrap servers. Takes what `KafkaBroker` takes."""
    with KafkaBroker(**settings) as broker:
        yield broker.servers


class KafkaBroker:
    """A broker that can be killed and started again, with its data and at its address.

    `properties` are added to the broker's own (Kafka's names). With `users`, names and passwords, there is a second
    listener at `sasl_servers` that wants them (SASL_PLAINTEXT, PLAIN). The broker does not outlive this process,
    whatever ends it.

    >>> with KafkaBroker() as broker:  # doctest: +SKIP
    ...     broker.kill()
    ...     broker.start()
    """

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self._properties = dict(properties or {})
        self._users = dict(users or {})
        self._folder: Path | None = None
        self._java: JavaProcess | None = None
        ports = free_ports(3)
        self._port, self._controller, self._sasl = ports
        self.servers = f"127.0.0.1:{self._port}"
        """Where clients begin."""
        self.sasl_servers = f"127.0.0.1:{self._sasl}"
        """Where clients begin that log in."""

    def __enter__(self) -> KafkaBroker:
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
        jars = kafka_jars()
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="millstream-kafka-"))
            self._prepare(self._folder, jars)
        command = _java(jars, self._folder, "kafka.Kafka", str(self._folder / "server.properties"))
        self._java = JavaProcess(command, self._folder / "broker.log")
        self._await()

    def kill(self) -> None:
        """End it as a crash does: at once, with nothing said. Its data stays."""
        self._end(signal.SIGKILL)

    def fill_disk(self, most: int) -> None:
        """Have it fail, until it is started again, to write files of more than so many bytes, as on a disk that is full
        (on Linux). A broker whose only disk is full ends itself."""
        import resource  # not everywhere

        if self._java is not None:
            resource.prlimit(self._java.pid, resource.RLIMIT_FSIZE, (most, most))

    def wait(self, seconds: float = 60.0) -> None:
        """Wait until it has ended by itself."""
        if self._java is not None:
            self._java.wait(seconds)

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

    def _prepare(self, folder: Path, jars: Path) -> None:
        (folder / "log4j2.properties").write_text(_LOG4J)
        protocols = ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"]
        listeners = [f"PLAINTEXT://{self.servers}"]
        settings = dict(_SERVER)
        if self._users:
            protocols.append("SASL_PLAINTEXT:SASL_PLAINTEXT")
            listeners.append(f"SASL_PLAINTEXT://{self.sasl_servers}")
            settings["sasl.enabled.mechanisms"] = "PLAIN"
            logins = "".join(f' user_{name}="{word}"' for name, word in self._users.items())
            settings["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required{logins};"
            )
        settings |= {
            "listeners": ",".join([*listeners, f"CONTROLLER://127.0.0.1:{self._controller}"]),
            "advertised.listeners": ",".join(listeners),
            "listener.security.protocol.map": ",".join(protocols),
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "log.dirs": str(folder / "data"),
            **self._properties,
        }
        properties = folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        properties.chmod(0o600)
        cluster = urlsafe_b64encode(uuid.UUID(bytes=secrets.token_bytes(16)).bytes).decode()[:22]
        # An id that begins with "-" would be taken for an option.
        cluster = cluster if cluster[0] not in "-_" else "m" + cluster[1:]
        done = subprocess.run(
            _java(jars, folder, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeUnusable(
                "the broker's folder could not be made", said=tail(done.stdout + done.stderr)
            )

    def _await(self) -> None:
        assert self._java is not None
        if self._java.listens(self._port, _START_SECONDS):
            return
        if not self._java.running:
            self._failed("the Kafka broker has ended while it started")
        self._failed(f"the Kafka broker did not answer within {_START_SECONDS:.0f} s")

    def _failed(self, what: str) -> NoReturn:
        assert self._folder is not None
        said = (self._folder / "broker.log").read_text(errors="replace")
        self.close()
        raise RuntimeUnusable(what, said=tail(said), hint="free memory (it needs 400 MB), or ports")


def missing_tools() -> str | None:
    """What a machine lacks to run a broker, or None. Jars that are cached need no Maven.

    >>> missing_tools() is None or "install" in missing_tools()
    True
    """
    return java_servers.missing_tools("Kafka", VERSION)


def kafka_jars() -> Path:
    """The folder of the broker's jars; Maven fetches them the first time."""
    return fetched_jars("Kafka", VERSION, _ARTIFACTS)


def _java(jars: Path, folder: Path, *main: str) -> list[str]:
    java = java_command()
    assert java is not None
    logging = f"-Dlog4j2.configurationFile=file:{folder / 'log4j2.properties'}"
    return [java, *_JAVA, logging, "-cp", str(jars / "*"), *main]
