"""What a program depends on beside its own code, declared on the environment."""

from __future__ import annotations

import os

from millstream.common import options
from millstream.common.configuration import Configuration
from millstream.errors import InvalidArgument

__all__ = ["DependencySettings"]


class DependencySettings:
    """A part of `StreamExecutionEnvironment`. Everything is kept in the configuration, as in PyFlink."""

    _configuration: Configuration

    def add_python_file(self, file_path: str) -> None:
        """Let functions import from a Python file, a zip file or a folder; what was added last is found first.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> env.add_python_file("/jobs/helpers.py")
        >>> env.get_configuration().get_string("python.files", "")
        '/jobs/helpers.py'
        """
        self._append(options.PYTHON_FILES.key, _path(file_path))

    def set_python_requirements(
        self, requirements_file_path: str, requirements_cache_dir: str | None = None
    ) -> None:
        """Install packages with pip on every machine that runs functions, once; if a folder of packages is given
        (`pip download -d FOLDER -r FILE`), from it alone.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> env.set_python_requirements("/jobs/requirements.txt", "/jobs/packages")
        >>> env.get_configuration().get_string("python.requirements", "")
        '/jobs/requirements.txt#/jobs/packages'
        """
        text = _path(requirements_file_path)
        if requirements_cache_dir is not None:
            text += "#" + _path(requirements_cache_dir)
        self._configuration.set_string(options.PYTHON_REQUIREMENTS.key, text)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Unpack an archive in the working folder of the functions, in a folder of its own name or `target_dir`.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> env.add_python_archive("/jobs/data.zip", "data")  # open("data/words.txt") in a function
        >>> env.get_configuration().get_string("python.archives", "")
        '/jobs/data.zip#data'
        """
        text = _path(archive_path)
        self._append(
            options.PYTHON_ARCHIVES.key, text if target_dir is None else f"{text}#{target_dir}"
        )

    def set_python_executable(self, python_exec: str) -> None:
        """The Python of the workers: a path on their machines, or one inside an archive (`env.zip/bin/python`).

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.set_python_executable("/usr/bin/python3.12")
        """
        if not isinstance(python_exec, str) or not python_exec:
            raise InvalidArgument("a Python executable is a path", got=repr(python_exec))
        self._configuration.set_string(options.PYTHON_EXECUTABLE.key, python_exec)

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """Give every machine that runs functions a copy of a file or folder;
        `runtime_context.get_distributed_cache().get_file(name)` says where it is.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment("in-process")
        >>> env.register_cached_file("/models/small.bin", "model")
        >>> env.get_configuration().get_string("pipeline.cached-files", "")
        "name:'model',path:'/models/small.bin'"
        """
        if not isinstance(name, str) or not name:
            raise InvalidArgument("a cached file needs a name", got=repr(name))
        text = f"name:{_quote(name)},path:{_quote(_path(file_path))}"
        if executable:
            text += ",executable:true"
        self._append(options.CACHED_FILES.key, text, between=";")

    def add_jars(self, *jars_path: str) -> None:
        """Give Spark Java libraries (`spark.jars`), for its own readers and writers.

        >>> from millstream.datastream import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> env.add_jars("file:///jars/reader.jar")
        >>> env.get_configuration().get_string("pipeline.jars", "")
        "['file:///jars/reader.jar']"
        """
        self._extend(options.JARS.key, jars_path)

    def add_classpaths(self, *classpaths: str) -> None:
        """Give Spark Java libraries that every host already has under the same path."""
        self._extend(options.CLASSPATHS.key, classpaths)

    def _append(self, key: str, value: str, between: str = ",") -> None:
        known = self._configuration.get_string(key, "")
        self._configuration.set_string(key, f"{known}{between}{value}" if known else value)

    def _extend(self, key: str, values: tuple[str, ...]) -> None:
        known = Configuration.parse_list_value(self._configuration.get_string(key, ""))
        self._configuration.set_string(key, str([*known, *values]))


def _path(given: str) -> str:
    """The path as it is now: the program may change its working folder before it is run."""
    text = os.fspath(given) if isinstance(given, (str, os.PathLike)) else ""
    if not text or not isinstance(text, str):
        raise InvalidArgument("a path must be a text that is not empty", got=repr(given))
    return text if ":/" in text else os.path.abspath(text)


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
