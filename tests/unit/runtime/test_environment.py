"""The driver's environment as an archive: what is in it, that it is made once, and which Python starts it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import venv
import zipfile
from email.message import Message
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from millstream.errors import ConfigurationError
from millstream.runtime.driver import environment
from millstream.runtime.task.dependencies import _pack

SMALL = ["cloudpickle", "six"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[Distribution]:
    """An environment of two packages: all of it would take seconds to pack."""
    found = [dist for dist in environment.chosen(SMALL) if dist.name in (*SMALL, "millstream")]
    monkeypatch.setattr(environment, "chosen", lambda packages: found)
    return found


def test_what_is_chosen() -> None:
    # What other tests have imported would be chosen too.
    program = "from millstream.runtime.driver import environment as e; print(*(d.name for d in e.chosen()))"
    names = set(subprocess.check_output([sys.executable, "-c", program], text=True).lower().split())
    assert {"millstream", "pyarrow", "pandas", "numpy", "msgspec", "cloudpickle", "lmdb"} <= names
    # Spark's own, and what nobody imports in a job.
    assert not names & {"pyspark", "py4j", "pip", "setuptools", "ruff", "moto", "deltalake"}


def test_what_only_drivers_use_stays_with_them() -> None:
    program = (
        "import millstream.datastream, sys; from millstream.runtime.driver import environment as e; "
        "print(any(n.endswith('.notebook') for n in sys.modules), *(d.name for d in e.chosen()))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    imported, *names = ran.stdout.lower().split()
    assert imported == "true"
    assert "millstream" in names
    assert not {"ipython", "ipykernel", "ipywidgets", "jedi", "kazoo"} & {*names}


def test_what_is_named_is_shipped_with_what_it_needs() -> None:
    names = {dist.name.lower() for dist in environment.chosen(["SQLAlchemy"])}
    assert {"sqlalchemy", "typing_extensions", "millstream", "pyarrow"} <= names
    everything = {dist.name.lower() for dist in environment.chosen(["*"])}
    assert {"ruff", "moto"} <= everything
    assert not everything & {"pip", "setuptools", "pyspark"}
    with pytest.raises(ConfigurationError, match="not installed here: no-such-thing"):
        environment.chosen(["no-such-thing"])


def test_no_tests_no_caches_of_others_no_commands_no_addresses(small: list[Distribution]) -> None:
    names = [name for name, _ in environment._files(environment.chosen([]))]
    assert "lib/millstream/spark/worker.py" in names
    assert "lib/six.py" in names
    assert all(name.startswith("lib/") for name in names)
    # The project is installed from its folder here; that has tests, documents and a git folder.
    assert not [name for name in names if "/tests/" in name or "/." in name]
    assert not [name for name in names if name.endswith(("direct_url.json", "RECORD", ".pth"))]
    assert not [name for name in names if "/pip/" in name or "bin/" in name]


def test_it_is_packed_once(small: list[Distribution], tmp_path: Path) -> None:
    first = environment.pack(str(tmp_path))
    again = environment.pack(str(tmp_path))
    assert (first.made, again.made) == (True, False)
    assert first.path == again.path
    assert first.size == os.path.getsize(first.path)
    # For another Python it is another.
    assert environment.pack(str(tmp_path), python="/opt/python3").checksum != first.checksum
    with zipfile.ZipFile(first.path) as archive:
        assert archive.getinfo("bin/python").external_attr >> 16 & 0o111
        fits = json.loads(archive.read("fits.json"))
    assert fits["python"] == f"{sys.version_info[0]}.{sys.version_info[1]}"


def unpacked(packed: environment.PackedEnvironment, folder: Path) -> str:
    with zipfile.ZipFile(packed.path) as archive:
        archive.extractall(folder)
    python = folder / "bin" / "python"
    python.chmod(0o755)
    return str(python)


def run(python: str, path: str) -> subprocess.CompletedProcess[str]:
    code = "import cloudpickle, sys, six; print(six.__file__, six.__cached__, sys.prefix)"
    return subprocess.run(
        [python, "-c", code],
        env={"PATH": path},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_bare_python_runs_with_it(small: list[Distribution], tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = unpacked(environment.pack(str(tmp_path)), tmp_path / "there")
    done = run(python, f"{tmp_path / 'bare' / 'bin'}:/usr/bin:/bin")
    assert done.stderr == ""
    file, compiled, prefix = done.stdout.split()
    assert Path(file) == tmp_path / "there" / "lib" / "six.py"
    assert Path(compiled).is_relative_to(tmp_path / "there")
    assert Path(prefix) == tmp_path / "bare"


def test_a_python_that_does_not_fit_is_refused_with_the_reason(
    small: list[Distribution], tmp_path: Path
) -> None:
    packed = environment.pack(str(tmp_path), python=sys.executable)
    python = unpacked(packed, tmp_path / "there")
    fits = tmp_path / "there" / "fits.json"
    wanted = json.loads(fits.read_text())
    for change, reason in (
        ({"python": "3.99"}, "the driver's is 3.99"),
        ({"abi": "cpython-311-riscv64"}, "the driver's as cpython-311-riscv64"),
        ({"glibc": [99, 1]}, "the packages need 99.1"),
    ):
        fits.write_text(json.dumps({**wanted, **change}))
        done = run(python, "/usr/bin:/bin")
        assert done.returncode == 78
        assert done.stderr.startswith(f"[millstream-no-python] {sys.executable}: ")
        assert reason in done.stderr
    gone = environment.pack(str(tmp_path), python="/no/such/python")
    done = run(unpacked(gone, tmp_path / "gone"), "/usr/bin:/bin")
    assert done.stderr == "[millstream-no-python] /no/such/python: not there; \n"


class Wheel(Distribution):
    """A package of which only the tags matter."""

    def __init__(self, *tags: str) -> None:
        self._tags = tags

    def read_text(self, filename: str) -> str | None:
        return "".join(f"Tag: {tag}\n" for tag in self._tags)

    def locate_file(self, path: object) -> Path:
        return Path(str(path))

    @property
    def metadata(self) -> Message:
        return Message()


def test_the_c_library_that_packages_need() -> None:
    new = Wheel("cp311-cp311-manylinux_2_28_x86_64")
    old = Wheel("cp311-cp311-manylinux_2_17_x86_64", "cp311-cp311-manylinux2014_x86_64")
    oldest = Wheel("cp311-cp311-manylinux1_x86_64", "cp311-cp311-manylinux_2_17_x86_64")
    assert environment._glibc([old, new]) == [2, 28]
    assert environment._glibc([oldest]) == [2, 5]
    assert environment._glibc([Wheel("py3-none-any")]) is None


def test_a_module_that_nobody_asked_to_ship_keeps_its_secrets(tmp_path: Path) -> None:
    for name in ("a.py", ".env", "tests/test_a.py", "deploy/server.key", "data/words.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    buffer = io.BytesIO()
    _pack(tmp_path, buffer, hidden=False)
    assert zipfile.ZipFile(buffer).namelist() == ["a.py", "data/words.txt"]
