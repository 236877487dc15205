"""An archive of Spark's classes, so that Java need not load and check them anew: written when a program ends.

Of the seconds until a first result most are Java's, which reads, checks and links some twenty thousand classes of
Spark's each time. Java can write them to a file as it has them in memory, and map that file the next time. The file
fits one Java and one set of jars; where it does not, Java says nothing and starts as without.

```
first start     -XX:ArchiveClassesAtExit=.../spark-<key>.<pid>.new     Java writes it on its way out
second start    .new, if it is complete ──▶ spark-<key>.jsa            -XX:SharedArchiveFile=...
```
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Mapping
from pathlib import Path

import pyspark

__all__ = ["SETTING", "archive_options", "cache_folder"]

SETTING = "spark.millstream.class-archive"
"""What says "false" if there is to be none."""

# Who says any of these decides about archives.
_OWN = ("SharedArchiveFile", "ArchiveClassesAtExit", "-Xshare")
# What a complete archive begins with, in this machine's byte order: Java writes it last.
_MAGIC = {
    (0xF00BABA8).to_bytes(4, "little"),
    (0xF00BABA8).to_bytes(4, "big"),
}
# Java has something to say of archives that do not fit, on standard output.
_QUIET = "-Xlog:disable"
# Who was to write an archive has been killed, if there is none by then.
_GIVEN_UP_SECONDS = 600.0
# There may be several Javas, or several Sparks; each archive has some 160 MB.
_KEPT = 3


def cache_folder() -> Path | None:
    """Where this user's archives are; None if there is no such place that is the user's alone."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if not os.path.isabs(base):
        return None
    folder = Path(base) / "millstream"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError:
        return None
    # Whoever can write there could have Java run anything.
    private = found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return folder if private else None


def archive_options(settings: Mapping[str, str]) -> str:
    """Options for the Java of a Spark with these settings: to use an archive, or to write one. None if the user has an
    archive of their own, or wants none."""
    own = _own_options(settings)
    if settings.get(SETTING) == "false" or any(word in own for word in _OWN):
        return ""
    folder, java = cache_folder(), _java()
    if folder is None or java is None:
        return ""
    try:
        name = f"spark-{_key(java, settings)}"
        archive = folder / f"{name}.jsa"
        if not archive.exists():
            _adopt(folder, name, archive)
        if archive.exists():
            # What was used last goes last.
            os.utime(archive)
            return f"{_QUIET} -XX:SharedArchiveFile={archive}"
        if _claimed(folder / f"{name}.writer"):
            return f"{_QUIET} -XX:ArchiveClassesAtExit={folder / name}.{os.getpid()}.new"
    except OSError:
        # Full, read-only, or somebody else has just been there.
        pass
    return ""


def _java() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    return None if not java or not os.path.exists(java) else Path(os.path.realpath(java))


def _key(java: Path, settings: Mapping[str, str]) -> str:
    """Names what an archive depends on: the Java, Spark's jars, and what else is on the class path."""
    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    parts = [
        str(java),
        str(java.stat().st_mtime_ns),
        home,
        str(os.stat(os.path.join(home, "jars")).st_mtime_ns),
        pyspark.__version__,
        settings.get("spark.driver.extraClassPath", ""),
        # The choice of a garbage collector, for one.
        _own_options(settings),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _own_options(settings: Mapping[str, str]) -> str:
    """What Java is told by the user."""
    variables = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
    given = [settings.get("spark.driver.extraJavaOptions", "")]
    return " ".join(given + [os.environ.get(name, "") for name in variables])


def _adopt(folder: Path, name: str, archive: Path) -> None:
    """Take what the Java of an earlier program has written, if it is complete."""
    for new in folder.glob(f"{name}.*.new"):
        if _is_complete(new):
            new.rename(archive)
            (folder / f"{name}.writer").unlink(missing_ok=True)
        elif time.time() - new.stat().st_mtime > _GIVEN_UP_SECONDS:
            new.unlink(missing_ok=True)
    if archive.exists():
        kept = sorted(folder.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime)
        for old in kept[:-_KEPT]:
            old.unlink(missing_ok=True)


def _claimed(writer: Path) -> bool:
    """True if this program is the one to have an archive written; one is enough."""
    with contextlib.suppress(FileNotFoundError):
        if time.time() - writer.stat().st_mtime < _GIVEN_UP_SECONDS:
            return False
        writer.unlink(missing_ok=True)
    try:
        os.close(os.open(writer, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def _is_complete(new: Path) -> bool:
    with new.open("rb") as file:
        return file.read(4) in _MAGIC
