"""Carries what a program depends on to where its functions run.

On the driver `stage` gives every file a name that holds its checksum, so that a name means one content for ever; the
engine ships the files. In each process that runs functions `prepare` puts them in place: archives are unpacked and
packages installed once per machine, in a folder that all processes of the user share, under a lock.

```
<state folder or temp>/millstream-dependencies-<user>/
  <checksum>/       unpacked, or installed; there is such a folder only when it is complete
  <checksum>.lock   held by every process that uses it; what nobody has used for long is removed
```
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import shutil
import site
import stat
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import IO

from millstream.common.dependencies import Declared
from millstream.errors import DependencyError
from millstream.redaction import get_logger

__all__ = [
    "Dependencies",
    "Prepared",
    "ShippedFile",
    "kept",
    "prepare",
    "prepared",
    "stage",
    "staged_path",
]

_log = get_logger("millstream.job")

_UNUSED_DAYS = 14
_LINES_OF_PIP = 15


@dataclass(frozen=True)
class ShippedFile:
    """One file on its way. `shipped` is its name there; `folder` says that it is a packed folder."""

    kind: str
    name: str
    shipped: str
    folder: bool = False
    executable: bool = False


@dataclass(frozen=True)
class Dependencies:
    """What a job's workers need. `base` is the folder on their own disks, if the user has named one."""

    parts: tuple[ShippedFile, ...] = ()
    base: str | None = None

    def of(self, kind: str) -> list[ShippedFile]:
        """The parts of one kind: file, archive, requirements, packages, cached; and, where the environment is shipped
        too, installed (packages) and module (of the program)."""
        return [part for part in self.parts if part.kind == kind]


@dataclass(frozen=True)
class Prepared:
    """What is in place on this machine: folders for `sys.path`, the working folder, cached files by name."""

    paths: tuple[str, ...] = ()
    working_folder: str | None = None
    cached: tuple[tuple[str, str], ...] = ()


# -- on the driver ---------------------------------------------------------------------------------------


def stage(declared: Declared, base: str | None) -> Dependencies:
    """The files that a program has declared, copied as they are now."""
    parts = [_stage("file", path) for path in declared.files]
    parts += [_stage("archive", archive.path, archive.target) for archive in declared.archives]
    if declared.environment:
        parts += [_stage("module", path) for path in own_modules()]
    if declared.requirements is not None:
        packages = [_stage("requirements", declared.requirements)]
        if declared.package_folder is not None:
            packages.append(_stage("packages", declared.package_folder))
        parts += [_installed(packages, base)] if declared.environment else packages
    for cached in declared.cached_files:
        parts.append(_stage("cached", cached.path, cached.name, cached.executable))
    return Dependencies(tuple(parts), base)


# What is shipped in another way, or is there.
_NOT_OWN = frozenset({"__main__", "millstream", "pyflink", "pyspark", "py4j"})


def own_modules() -> list[str]:
    """The files and folders of what the program has imported that is not installed: modules beside it, and projects
    that are worked on where they are. Functions of theirs are shipped by name."""
    standard = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    standard += [*site.getsitepackages(), site.getusersitepackages()]
    found = set()
    for name, module in list(sys.modules.items()):
        if "." in name or name in _NOT_OWN:
            continue
        folders = list(getattr(module, "__path__", None) or ())
        file = folders[0] if folders else getattr(module, "__file__", None)
        if isinstance(file, str) and os.path.exists(file):
            path = os.path.abspath(file)
            if not any(Path(path).is_relative_to(place) for place in standard):
                found.add(path)
    return sorted(found)


def _installed(packages: list[ShippedFile], base: str | None) -> ShippedFile:
    """Requirements that pip has installed here, for hosts that have no pip, or no network."""
    place = _Place(Dependencies(tuple(packages), base), staged_path)
    return replace(_stage("installed", place.packages()[0]), name=packages[0].name)


def staged_path(part: ShippedFile) -> str:
    """Where the driver has the file that it ships."""
    return str(_staging() / part.shipped)


@cache
def _staging() -> Path:
    """The files that this process ships, for as long as it lives: an executor may come late."""
    folder = tempfile.mkdtemp(prefix="millstream-staged-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _stage(kind: str, given: str, name: str | None = None, executable: bool = False) -> ShippedFile:
    path = Path(given.removeprefix("file://") if given.startswith("file:///") else given).absolute()
    if not path.exists():
        raise DependencyError(
            f"what the program depends on is not there ({_WHAT[kind]})",
            path=given,
            looked_for=str(path),
            hint="paths are relative to the folder in which the program is started",
        )
    if kind == "packages" and not path.is_dir():
        raise DependencyError(
            "the place of the packages is not a folder",
            path=given,
            hint="pip download -d FOLDER -r requirements.txt makes one",
        )
    staged = _staging()
    descriptor, temporary = tempfile.mkstemp(dir=staged)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if path.is_dir():
                _pack(path, file, hidden=kind != "module")
            else:
                with path.open("rb") as source:
                    shutil.copyfileobj(source, file)
        with open(temporary, "rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()[:24]
        shipped = f"{checksum}-{path.name}" + (".zip" if path.is_dir() else "")
        os.replace(temporary, staged / shipped)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return ShippedFile(kind, name or path.name, shipped, path.is_dir(), executable)


_WHAT = {
    "file": "add_python_file, python.files",
    "archive": "add_python_archive, python.archives",
    "requirements": "set_python_requirements, python.requirements",
    "packages": "set_python_requirements, python.requirements",
    "installed": "set_python_requirements, python.requirements",
    "module": "imported by the program",
    "cached": "register_cached_file, pipeline.cached-files",
}


def _pack(folder: Path, file: IO[bytes], *, hidden: bool = True) -> None:
    """A folder as a zip file that is the same for the same content; of a package that nobody has asked to be shipped
    only what is meant to be shown."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if "__pycache__" in path.parts or not path.is_file():
                continue
            if not hidden and _is_private(path.relative_to(folder)):
                continue
            info = zipfile.ZipInfo(path.relative_to(folder).as_posix())
            info.external_attr = stat.S_IMODE(path.stat().st_mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            with path.open("rb") as source, archive.open(info, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target)


def _is_private(path: Path) -> bool:
    """
    >>> [
    ...     _is_private(Path(name))
    ...     for name in ("models.py", ".env", "tests/data.csv", "etc/server.key")
    ... ]
    [False, True, True, True]
    """
    return (
        any(part.startswith(".") for part in path.parts)
        or "tests" in path.parts[:-1]
        or path.suffix in (".pem", ".key", ".p12", ".pfx", ".jks", ".keystore")
    )


# -- where functions run ---------------------------------------------------------------------------------

_prepared: dict[Dependencies, Prepared] = {}
_held: list[int] = []


def prepare(
    dependencies: Dependencies, find: Callable[[ShippedFile], str], *, first: bool = True
) -> Prepared:
    """Put everything in place for this process, once; `find` says where a shipped file is. The folders go to the front
    of `sys.path`, or to its end."""
    if not dependencies.parts:
        return Prepared()
    if dependencies not in _prepared:
        _prepared[dependencies] = _Place(dependencies, find).prepare()
    made = _prepared[dependencies]
    # Each time: a worker serves programs in turn, each with a path of its own.
    known = set(sys.path)
    sys.path[0 if first else len(sys.path) : 0 if first else len(sys.path)] = [
        path for path in made.paths if path not in known
    ]
    return made


def prepared(dependencies: Dependencies) -> Prepared:
    """What `prepare` has put in place in this process."""
    return _prepared.get(dependencies, Prepared())


class _Place:
    """The folder of this machine's dependencies, seen by one job."""

    def __init__(self, dependencies: Dependencies, find: Callable[[ShippedFile], str]) -> None:
        self._all = dependencies
        self._find = find
        self._ready = _root(dependencies.base)

    def prepare(self) -> Prepared:
        """Put every file of the job in place."""
        # The one that was added last is found first, as in PyFlink.
        paths = [path for part in reversed(self._all.of("file")) for path in self._file(part)]
        paths += [path for part in self._all.of("module") for path in self._module(part)]
        paths += [str(self._folder(part)) for part in self._all.of("installed")]
        paths += self.packages()
        cached = tuple((part.name, str(self._cached(part))) for part in self._all.of("cached"))
        made = Prepared(tuple(paths), self._working_folder(), cached)
        _remove_unused(self._ready)
        return made

    def _file(self, part: ShippedFile) -> Iterator[str]:
        shipped = self._find(part)
        if not part.folder and zipfile.is_zipfile(shipped):
            # Python imports from it as it is.
            yield shipped
            return

        def fill(folder: Path) -> None:
            if part.folder:
                _unpack(shipped, folder / part.name)
            else:
                shutil.copyfile(shipped, folder / part.name)

        made = self._once(f"file-{part.shipped}", fill)
        if part.folder:
            yield str(made / part.name)
        if not part.folder or (made / part.name / "__init__.py").exists():
            yield str(made)

    def _module(self, part: ShippedFile) -> Iterator[str]:
        shipped = self._find(part)

        def fill(folder: Path) -> None:
            if part.folder:
                _unpack(shipped, folder / part.name)
            else:
                shutil.copyfile(shipped, folder / part.name)

        yield str(self._once(f"module-{part.shipped}", fill))

    def _folder(self, part: ShippedFile) -> Path:
        return self._once(f"folder-{part.shipped}", _Unpacking(self._find(part), part))

    def _cached(self, part: ShippedFile) -> Path:
        shipped = self._find(part)

        def fill(folder: Path) -> None:
            target = folder / "it"
            if part.folder:
                _unpack(shipped, target)
            else:
                shutil.copyfile(shipped, target)
            if part.executable:
                target.chmod(0o755)

        return self._once(f"cached-{part.shipped}-{part.executable}", fill) / "it"

    def _working_folder(self) -> str | None:
        archives = self._all.of("archive")
        if not archives:
            return None
        # Each archive once, whatever the jobs call it; the working folder only points there.
        unpacked = {}
        for part in archives:
            shipped = self._find(part)
            fill = _Unpacking(shipped, part)
            unpacked[part.name] = self._once(f"archive-{part.shipped}", fill)
        key = _checksum(*(f"{name}={place.name}" for name, place in sorted(unpacked.items())))

        def point(folder: Path) -> None:
            for name, place in unpacked.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).symlink_to(place)

        return str(self._once(f"working-{key}", point))

    def packages(self) -> list[str]:
        """The folder into which pip has installed the requirements."""
        requirements = self._all.of("requirements")
        if not requirements:
            return []
        packages = self._all.of("packages")
        file = self._find(requirements[0])
        folder_of_packages = self._find(packages[0]) if packages else None

        def install(folder: Path) -> None:
            with tempfile.TemporaryDirectory(dir=self._ready) as scratch:
                command = [sys.executable, "-m", "pip", "install", "--ignore-installed"]
                command += ["--no-input", "--disable-pip-version-check", "--target", str(folder)]
                if folder_of_packages is not None:
                    _unpack(folder_of_packages, Path(scratch))
                    command += ["--no-index", "--find-links", scratch]
                _run_pip([*command, "-r", file], requirements[0].name)

        # What is built or chosen depends on the Python that will import it.
        key = _checksum(
            *(part.shipped for part in (*requirements, *packages)),
            sys.version,
            sysconfig.get_platform(),
        )
        return [str(self._once(f"packages-{key}", install))]

    def _once(self, key: str, fill: Callable[[Path], None]) -> Path:
        return _once(self._ready, key, fill)


def kept(base: str | None, key: str, fill: Callable[[Path], None]) -> Path:
    """A folder that is filled once on this machine, for all processes of the user, and removed when nobody has needed
    it for long. The key is a checksum of what it holds, or of what that is made from."""
    root = _root(base)
    place = _once(root, key, fill)
    _remove_unused(root)
    return place


def _once(ready: Path, key: str, fill: Callable[[Path], None]) -> Path:
    """The folder of that name, which the first process of this machine that needs it fills."""
    place = ready / _checksum(key)
    lock = os.open(f"{place}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        if not place.is_dir():
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.is_dir():
                _fill(place, fill)
            fcntl.flock(lock, fcntl.LOCK_SH)
    except BaseException:
        os.close(lock)
        raise
    # Until this process ends, nobody removes the folder.
    _held.append(lock)
    os.utime(lock)
    return place


@dataclass(frozen=True)
class _Unpacking:
    shipped: str
    part: ShippedFile

    def __call__(self, folder: Path) -> None:
        _unpack(self.shipped, folder)


def _fill(place: Path, fill: Callable[[Path], None]) -> None:
    temporary = Path(f"{place}.new")
    # Of a process that was killed; whoever holds the lock is the only one here.
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        fill(temporary)
        os.rename(temporary, place)
    except OSError as error:
        raise DependencyError(
            f"a dependency could not be put in place: {error}", folder=str(place)
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _run_pip(command: list[str], requirements: str) -> None:
    _log.info("installing %s", requirements)
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        last = [line for line in done.stdout.splitlines() if line.strip()][-_LINES_OF_PIP:]
        raise DependencyError(
            f"pip could not install {requirements}",
            python=sys.executable,
            exit_code=done.returncode,
            pip_says="\n".join(last) or "nothing",
            hint="put them into the folder of packages, for the workers' Python: pip download -d FOLDER -r FILE"
            if "--no-index" in command
            else "try the same with pip on that machine; where there is no network, give "
            "set_python_requirements a folder of packages (pip download -d FOLDER -r FILE)",
        )


def _unpack(file: str, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                _extract(archive, info, folder)
    elif tarfile.is_tarfile(file):
        with tarfile.open(file) as tar:
            # Refuses what would land outside the folder.
            if hasattr(tarfile, "tar_filter"):
                tar.extractall(folder, filter="tar")
            else:
                # Before Python 3.11.4.
                tar.extractall(folder, [_inside(member, folder) for member in tar])
    else:
        raise DependencyError(
            "this is not an archive", file=Path(file).name, hint="pack it as .zip, .tar or .tar.gz"
        )


def _inside(member: tarfile.TarInfo, folder: Path) -> tarfile.TarInfo:
    """A member of an archive that lands in the folder, and leads to nothing outside; an error if it does not."""
    root = os.path.realpath(folder)
    names = [member.name]
    if member.issym():
        names.append(os.path.join(os.path.dirname(member.name), member.linkname))
    elif member.islnk():
        names.append(member.linkname)
    for name in names:
        if os.path.commonpath([root, os.path.realpath(os.path.join(root, name))]) != root:
            raise DependencyError("an archive has files that would land outside", file=member.name)
    member.mode &= 0o755
    return member


def _extract(archive: zipfile.ZipFile, info: zipfile.ZipInfo, folder: Path) -> None:
    """`ZipFile.extract` forgets who may run a file, and makes files of links."""
    mode = info.external_attr >> 16
    if stat.S_ISLNK(mode):
        target = (folder / info.filename).absolute()
        if not target.is_relative_to(folder) or ".." in Path(info.filename).parts:
            raise DependencyError("an archive has a link outside its folder", name=info.filename)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(archive.read(info).decode())
        return
    made = archive.extract(info, folder)
    if mode and not info.is_dir():
        os.chmod(made, stat.S_IMODE(mode) | stat.S_IRUSR | stat.S_IWUSR)


def _remove_unused(ready: Path) -> None:
    """Remove what no process holds and nobody has needed for long."""
    oldest = time.time() - _UNUSED_DAYS * 86400
    for lock in ready.glob("*.lock"):
        with contextlib.suppress(OSError), lock.open("a+") as file:
            if lock.stat().st_mtime < oldest:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The lock's file stays: another process may be about to take it.
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)


def _root(base: str | None) -> Path:
    """The folder of this user's dependencies on this machine."""
    parent = Path(base) if base else Path(tempfile.gettempdir())
    parent.mkdir(parents=True, exist_ok=True)
    root = parent / f"millstream-dependencies-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        root.mkdir(mode=0o700)
    facts = root.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o022:
        # Code is imported from there.
        raise DependencyError(
            "the folder for dependencies belongs to somebody else, or others may write to it",
            folder=str(root),
            hint="remove it, or set millstream.state.dir to a folder of your own",
        )
    return root


def _checksum(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:24]
