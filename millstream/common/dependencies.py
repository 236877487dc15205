"""What a program depends on beside its own code: files, archives, packages, libraries.

Declared on the environment or by configuration; `millstream.runtime.task.dependencies` carries it to the workers.
Answers to Flink's `PythonDependencyInfo` and `DistributedCache`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from millstream.common import options
from millstream.common.configuration import Configuration
from millstream.errors import ConfigurationError, InvalidArgument

__all__ = ["Archive", "CachedFile", "Declared", "DistributedCache", "declared"]


@dataclass(frozen=True)
class Archive:
    """An archive, and the folder below the workers' working folder that it is unpacked into."""

    path: str
    target: str


@dataclass(frozen=True)
class CachedFile:
    """A file or folder that functions find by name."""

    name: str
    path: str
    executable: bool = False


@dataclass(frozen=True)
class Declared:
    """Everything that a program has declared, with the paths as they were given."""

    files: tuple[str, ...] = ()
    archives: tuple[Archive, ...] = ()
    requirements: str | None = None
    package_folder: str | None = None
    cached_files: tuple[CachedFile, ...] = ()
    executable: str | None = None
    jars: tuple[str, ...] = ()
    environment: bool = False
    environment_packages: tuple[str, ...] = ()


class DistributedCache:
    """The files that `env.register_cached_file` has given to all workers.

    >>> DistributedCache({"model": "/tmp/model.bin"}).get_file("model")
    PosixPath('/tmp/model.bin')
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def get_file(self, name: str) -> Path:
        """Where the file or folder of that name is on this machine."""
        if name not in self._files:
            raise InvalidArgument(
                f"no file is registered under the name {name!r}",
                registered=", ".join(sorted(self._files)) or "nothing",
                hint=f"env.register_cached_file(path, {name!r})",
            )
        return Path(self._files[name])


def declared(configuration: Configuration) -> Declared:
    """What the options of a configuration declare.

    >>> found = declared(Configuration().set_string("python.archives", "a.zip,b.zip#data"))
    >>> [archive.target for archive in found.archives]
    ['a.zip', 'data']
    """
    requirements = options.get(configuration, options.PYTHON_REQUIREMENTS) or ""
    file, _, folder = requirements.partition("#")
    return Declared(
        files=_words(options.get(configuration, options.PYTHON_FILES)),
        archives=tuple(
            _archive(text) for text in _words(options.get(configuration, options.PYTHON_ARCHIVES))
        ),
        requirements=file or None,
        package_folder=folder or None,
        cached_files=_cached_files(options.get(configuration, options.CACHED_FILES) or ""),
        executable=options.get(configuration, options.PYTHON_EXECUTABLE),
        jars=(
            *_list(options.get(configuration, options.JARS)),
            *(_local(path) for path in _list(options.get(configuration, options.CLASSPATHS))),
        ),
        environment=options.get(configuration, options.SHIP_ENVIRONMENT),
        environment_packages=_words(options.get(configuration, options.ENVIRONMENT_PACKAGES)),
    )


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _list(text: str | None) -> list[str]:
    return Configuration.parse_list_value(text) if text else []


def _local(url: str) -> str:
    """A place that is there on every host, as Spark writes it."""
    return re.sub(r"^(file:(//)?)?(?=/)", "local:", url)


def _archive(text: str) -> Archive:
    path, _, target = text.partition("#")
    name = target or Path(path).name
    if Path(name).is_absolute() or ".." in Path(name).parts:
        msg = "an archive is unpacked into a folder below the workers' working folder"
        raise ConfigurationError(msg, key=options.PYTHON_ARCHIVES.key, target=name)
    return Archive(path, name)


_FIELD = re.compile(r"\s*(name|path|executable):\s*('(?:[^']|'')*'|\"[^\"]*\"|[^,;]*)\s*(,|;|$)")


def _cached_files(text: str) -> tuple[CachedFile, ...]:
    """
    >>> _cached_files("name:a,path:'/x,y',executable:true;name:b,path:/z")
    (CachedFile(name='a', path='/x,y', executable=True), CachedFile(name='b', path='/z', executable=False))
    """
    files: list[CachedFile] = []
    fields: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _FIELD.match(text, position)
        if match is None:
            break
        key, value, end = match.groups()
        fields[key] = value[1:-1].replace("''", "'") if value[:1] in ("'", '"') else value
        position = match.end()
        if end != ",":
            if "name" not in fields or "path" not in fields:
                position = -1
                break
            flag = fields.get("executable", "false").lower() == "true"
            files.append(CachedFile(fields["name"], fields["path"], flag))
            fields = {}
    if position != len(text):
        key = options.CACHED_FILES.key
        raise ConfigurationError(
            f"the configuration value of {key!r} cannot be read",
            key=key,
            value=text[:200],
            wanted="name:...,path:...,executable:true;name:...,path:...",
        )
    return tuple(files)
