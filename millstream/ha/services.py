"""From the configuration to an election and the records beside it (Flink's `HighAvailabilityServices`)."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import quote

from millstream.errors import ConfigurationError, RuntimeUnusable, told
from millstream.ha.election import LeaderElection
from millstream.ha.file import FileElection
from millstream.ha.records import JobRecords, new_id
from millstream.ha.zookeeper import ZooKeeperElection
from millstream.storage.open import open_storage
from millstream.storage.storage import Storage, shown_root, stable

__all__ = ["HighAvailability", "check", "join"]


@dataclass(frozen=True)
class HighAvailability:
    """What the configuration says of it. Times are in seconds; `type` is "zookeeper" or "file"."""

    type: str
    storage_dir: str
    cluster_id: str = "/default"
    quorum: str | None = None
    root: str = "/millstream"
    session_timeout: float = 10.0
    lease_timeout: float = 10.0
    watch_process: bool = True
    quiet: bool = False
    """True if a driver that stands by was told to: it says so once and not as something unexpected."""
    optional: bool = False
    """True if a job that cannot take part runs all the same, and one that finds another driver at work, without having
    been told to stand by, is refused."""

    @property
    def timeout(self) -> float:
        """How long a leader may be silent."""
        return self.session_timeout if self.type == "zookeeper" else self.lease_timeout

    @property
    def folder(self) -> str:
        """The folder of this cluster."""
        return f"{stable(self.storage_dir).rstrip('/')}/{_folder(self.cluster_id)}"


def _folder(text: str) -> str:
    return quote(text.strip("/"), safe="").replace(".", "%2E") or "default"


def check(settings: HighAvailability) -> None:
    """Raise if an election cannot be joined whatever else there is."""
    if settings.type == "zookeeper":
        if not settings.quorum:
            raise ConfigurationError(
                "high availability with ZooKeeper needs to know its servers",
                hint="set high-availability.zookeeper.quorum to host:port,host:port",
            )
        if any(part in (".", "..") for part in settings.root.split("/")):
            raise ConfigurationError(
                "a path in ZooKeeper has no relative parts",
                path=settings.root,
                hint="set high-availability.zookeeper.path.root to one without '.' and '..'",
            )
        if find_spec("kazoo") is None:
            raise RuntimeUnusable(
                "high availability with ZooKeeper needs kazoo, which is not installed",
                hint="pip install 'millstream[zookeeper]'",
            )


def _usable(root: str) -> Storage:
    """The folder, which can be written to. A driver that stands by would find out when it is to take over."""
    trial = f".trial-{new_id()}"
    try:
        storage = open_storage(root)
        storage.check_private()
        storage.write(trial, b"")
        storage.delete(trial)
        return storage
    except OSError as error:
        raise ConfigurationError(
            "the folder of high availability cannot be used",
            folder=shown_root(root),
            cause=told(error),
            hint="set high-availability.storageDir to a folder, or the URL of one, that this user may write to",
        ) from error


def join(settings: HighAvailability, name: str) -> tuple[LeaderElection, JobRecords]:
    """Take part in the election of a name, which is one part of a path; what its leaders leave each other."""
    check(settings)
    storage = _usable(f"{settings.folder}/{name}")
    records = JobRecords(storage)
    if settings.type == "file":
        election: LeaderElection = FileElection(
            storage.folder("leader"),
            name,
            ttl=settings.lease_timeout,
            watch_process=settings.watch_process,
        )
    else:
        assert settings.quorum is not None
        path = f"/{settings.root.strip('/')}/{_folder(settings.cluster_id)}/{name}"
        election = ZooKeeperElection(
            settings.quorum,
            path,
            name,
            session_timeout=settings.session_timeout,
            watch_process=settings.watch_process,
        )
    return election, records
