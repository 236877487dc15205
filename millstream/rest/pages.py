"""The files that are served, in tables made at the start: a path is looked up there and reaches no file system."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath

from millstream.errors import ConfigurationError

__all__ = ["FlinkPage", "Served", "own_page"]

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".ttf": "font/ttf",
    ".woff2": "font/woff2",
    ".xml": "application/xml",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".map": "application/json",
}
_LARGEST = 16 << 20


@dataclass(frozen=True)
class Served:
    """One file."""

    body: bytes
    type: str


def type_of(name: str) -> str:
    """What a file is said to be."""
    return _TYPES.get(PurePosixPath(name).suffix.lower(), "application/octet-stream")


def own_page() -> dict[str, Served]:
    """The dashboard, by path: `/`, and everything of it below `/assets/`. Empty if the package has none."""
    root = resources.files("millstream").joinpath("web")
    if not root.is_dir():
        return {}
    table = {
        f"/assets/{name}": Served(file.read_bytes(), type_of(name))
        for name, file in _files(root, "")
        if PurePosixPath(name).suffix.lower() in _TYPES
    }
    index = table.get("/assets/index.html")
    if index is not None:
        table["/"] = index
    return table


def _files(folder: Traversable, below: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{below}{entry.name}/")
        else:
            yield f"{below}{entry.name}", entry


class FlinkPage:
    """Flink's own web page, which a user may have: the files of `web/` in its jar, or in a folder."""

    def __init__(self, path: str) -> None:
        try:
            self._table = dict(_from_jar(path) if Path(path).is_file() else _from_folder(path))
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise _no_page(path, str(error)) from None
        if "index.html" not in self._table:
            raise _no_page(path, "there is no index.html in it")

    def get(self, name: str) -> Served | None:
        """The file that stands below `/flink/` under a name."""
        return self._table.get(name or "index.html")


def _from_jar(path: str) -> Iterator[tuple[str, Served]]:
    with zipfile.ZipFile(path) as jar:
        for entry in jar.infolist():
            if entry.filename.startswith("web/") and not entry.is_dir():
                if entry.file_size > _LARGEST:
                    raise ValueError(f"{entry.filename} is too large")
                name = entry.filename.removeprefix("web/")
                yield name, Served(jar.read(entry), type_of(name))


def _from_folder(path: str) -> Iterator[tuple[str, Served]]:
    root = Path(path)
    root = root / "web" if (root / "web").is_dir() else root
    for file in sorted(root.rglob("*")):
        if file.is_file() and not file.is_symlink():
            name = file.relative_to(root).as_posix()
            yield name, Served(file.read_bytes(), type_of(name))


def _no_page(path: str, cause: str) -> ConfigurationError:
    return ConfigurationError(
        "Flink's web page is not there",
        path=path,
        cause=cause,
        hint="set millstream.rest.flink-page to the jar flink-runtime-web, or to a folder with its web/ (docs/rest.md)",
    )
