"""A program as it travels to a session: one zip file with the script, what it may import, and what it ships.

It is packed where the command is given, so that the caller's files may change or vanish afterwards, and unpacked into
a folder that is named by its content: whoever submits the same program again finds it there.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import msgspec

from millstream.errors import DependencyError, SessionError

__all__ = ["PackedProgram", "SubmittedProgram", "pack", "unpack"]

MOST_FILES = 10_000
MOST_BYTES = 512 << 20
"""What is beside a script is looked for, not named: a limit for a script in a folder that holds a whole disk."""

_HOME = "program"
_SHIPPED = "shipped"
_KEYS = ("python.files", "python.archives", "python.requirements")


class SubmittedProgram(msgspec.Struct, frozen=True, kw_only=True):
    """What is to run: paths of it that are inside of the package are relative, with the keys that name them."""

    name: str
    script: str | None = None
    module: str | None = None
    arguments: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    overrides: dict[str, str] = {}
    pyflink: bool = False
    traceback: bool = False
    # Whether its jobs take over from those of their names that run.
    upgrade: bool = False
    # The words that name it on the caller's command line.
    words: tuple[str, ...] = ()
    folder: str = ""


class PackedProgram(msgspec.Struct, frozen=True):
    """A program and the bytes of its package."""

    program: SubmittedProgram
    package: bytes


def pack(
    *,
    script: str | None,
    module: str | None,
    arguments: tuple[str, ...] = (),
    paths: tuple[str, ...] = (),
    overrides: Mapping[str, str] | None = None,
    pyflink: bool = False,
    traceback: bool = False,
    upgrade: bool = False,
    words: tuple[str, ...] = (),
) -> PackedProgram:
    """Pack a program as it is now."""
    packing = _Package()
    home = Path(script).absolute().parent if script else Path.cwd()
    inside = None
    if script:
        packing.add(f"{_HOME}/{Path(script).name}", Path(script))
        inside = f"{_HOME}/{Path(script).name}"
        packing.beside(home, _imported(Path(script)))
    elif module and _is_beside(home, module.partition(".")[0]):
        packing.beside(home, {module.partition(".")[0]})
    settings = dict(overrides or {})
    for key in _KEYS:
        if settings.get(key):
            settings[key] = packing.shipped(key, settings[key])
    program = SubmittedProgram(
        name=script or module or "",
        script=inside,
        module=module,
        arguments=arguments,
        # Those that Python imports from are the files that are shipped anyway.
        paths=tuple(settings["python.files"].split(",")) if paths else (),
        overrides=settings,
        pyflink=pyflink,
        traceback=traceback,
        upgrade=upgrade,
        words=words,
        folder=str(Path.cwd()),
    )
    return PackedProgram(program, packing.close())


def unpack(program: SubmittedProgram, package: bytes, folder: Path) -> tuple[SubmittedProgram, str]:
    """The program with the paths of its unpacked files, and the name of its package."""
    name = hashlib.sha256(package).hexdigest()[:32]
    place = folder / name
    if not place.exists():
        _unpack(package, place)

    def there(path: str) -> str:
        inside, mark, target = path.partition("#")
        if not inside.startswith((f"{_HOME}/", f"{_SHIPPED}/")):
            return path
        # A requirements file may be followed by a folder of packages, an archive by its name.
        after = there(target) if target.startswith(f"{_SHIPPED}/") else target
        return f"{place / inside}{mark}{after}"

    overrides = {
        key: ",".join(map(there, value.split(","))) if key in _KEYS else value
        for key, value in program.overrides.items()
    }
    return (
        msgspec.structs.replace(
            program,
            script=None if program.script is None else there(program.script),
            paths=tuple(map(there, program.paths)),
            overrides=overrides,
        ),
        name,
    )


def home_of(package: str, folder: Path) -> Path:
    """Where a program's own files are unpacked."""
    return folder / package / _HOME


class _Package:
    """A zip file that is the same for the same content."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        self._zip = zipfile.ZipFile(self._bytes, "w", zipfile.ZIP_DEFLATED)
        self._names: set[str] = set()
        self._size = 0

    def add(self, name: str, path: Path) -> None:
        """Add a file, once."""
        if name in self._names:
            return
        self._names.add(name)
        content = path.read_bytes()
        self._size += len(content)
        if len(self._names) > MOST_FILES or self._size > MOST_BYTES:
            raise DependencyError(
                "there is too much beside the program to take it along",
                last=str(path),
                allowed=f"{MOST_FILES} files, {MOST_BYTES >> 20} MB",
                hint="put the program into a folder of its own, and ship the rest with -pyfs or -pyarch",
            )
        info = zipfile.ZipInfo(name)
        info.external_attr = stat.S_IMODE(path.stat().st_mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self._zip.writestr(info, content)

    def add_tree(self, name: str, path: Path) -> None:
        """Add a file, or a folder with all that is in it."""
        if path.is_file():
            self.add(name, path)
            return
        for file in _files(path):
            self.add(f"{name}/{file.relative_to(path).as_posix()}", file)

    def beside(self, home: Path, imported: set[str]) -> None:
        """Add what a program in a folder may import: modules, packages, and folders that it names in an import."""
        for path in sorted(home.iterdir()):
            is_module = path.suffix == ".py" and path.is_file()
            is_package = path.is_dir() and (
                (path / "__init__.py").is_file() or path.name in imported
            )
            if is_module or is_package:
                self.add_tree(f"{_HOME}/{path.name}", path)

    def shipped(self, key: str, value: str) -> str:
        """Add the files that a key names; its value inside of the package."""
        found = []
        for number, word in enumerate(value.split(",")):
            path, mark, target = word.partition("#")
            place = self._ship(f"{_SHIPPED}/{key}-{number}", path)
            if target and key == "python.requirements":
                target = self._ship(f"{_SHIPPED}/{key}-packages", target)
            found.append(f"{place}{mark}{target}")
        return ",".join(found)

    def _ship(self, name: str, given: str) -> str:
        path = Path(given.removeprefix("file://") if given.startswith("file:///") else given)
        if not path.exists():
            raise DependencyError(
                "what the program depends on is not there",
                path=given,
                looked_for=str(path.absolute()),
                hint="paths are relative to the folder in which the command is given",
            )
        self.add_tree(f"{name}/{path.absolute().name}", path)
        return f"{name}/{path.absolute().name}"

    def close(self) -> bytes:
        """Complete the package, and give its bytes."""
        self._zip.close()
        return self._bytes.getvalue()


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder, in order, without what Python and others have only cached there."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_dir():
            yield from () if (path / "pyvenv.cfg").exists() else _files(path)
        elif path.is_file():
            yield path


def _imported(script: Path) -> set[str]:
    """The first names of what a script imports; a script that cannot be read fails when it runs."""
    try:
        tree = ast.parse(script.read_bytes())
    except (SyntaxError, ValueError):
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _is_beside(home: Path, name: str) -> bool:
    return (home / f"{name}.py").is_file() or (home / name).is_dir()


def _unpack(package: bytes, place: Path) -> None:
    hidden = Path(tempfile.mkdtemp(prefix=".", dir=place.parent))
    try:
        with zipfile.ZipFile(io.BytesIO(package)) as archive:
            for info in archive.infolist():
                parts = PurePosixPath(info.filename).parts
                if not parts or parts[0] == "/" or ".." in parts or "\\" in info.filename:
                    raise SessionError("the package has a file outside of it", file=info.filename)
                target = hidden.joinpath(*parts)
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                target.write_bytes(archive.read(info))
                target.chmod((info.external_attr >> 16) & 0o700 | 0o600)
        os.rename(hidden, place)
    except OSError:
        shutil.rmtree(hidden, ignore_errors=True)
        # Somebody else may have unpacked the same meanwhile.
        if not place.exists():
            raise
    except BaseException as error:
        shutil.rmtree(hidden, ignore_errors=True)
        if isinstance(error, zipfile.BadZipFile):
            raise SessionError("the package of the program cannot be read") from None
        raise
