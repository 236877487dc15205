"""What a release consists of: the lock as it is read, licences, the bill of materials, archives that are checked."""

from __future__ import annotations

import base64
import doctest
import hashlib
import importlib
import io
import json
import re
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scripts(monkeypatch):
    """A module of scripts/ by its name."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module


def test_every_pin_of_the_lock_is_read(scripts):
    text = (ROOT / "requirements.lock").read_text()
    found = scripts("locked").packages()
    assert len(found) == len(re.findall(r"^[\w.-]+==", text, re.MULTILINE))
    assert sum(len(package.hashes) for package in found) == text.count("--hash=sha256:")
    assert all(package.hashes for package in found)


def test_the_page_of_licences_is_current(scripts):
    assert scripts("licences").complaints() == []


def test_a_page_that_is_not_current_is_seen(scripts, monkeypatch, tmp_path):
    licences = scripts("licences")
    page = tmp_path / "licences.md"
    text = licences.PAGE.read_text()
    pytest_row = re.search(r"^\| pytest \| (\S+) \| MIT \| development \|$", text, re.MULTILINE)
    assert pytest_row is not None
    page.write_text(
        text.replace(pytest_row[0], pytest_row[0].replace("MIT", "secret")).replace(
            "| rich |", "| poor |"
        )
    )
    monkeypatch.setattr(licences, "PAGE", page)
    wrong = licences.complaints()
    assert len(wrong) == 3
    assert wrong[0].startswith("poor ")
    assert "is secret on the page and says MIT" in wrong[1]
    assert "is not on the page" in wrong[2]


def test_what_is_always_installed_is_known_from_what_is_not(scripts):
    rows = scripts("licences").rows()
    uses = {name: use for (name, _), (_, use) in rows.items()}
    wanted = {
        "pyspark": "always",
        "py4j": "always",  # PySpark brings it
        "confluent-kafka": "kafka",
        "pytest": "development",
        "ipython": "notebook",
    }
    assert {name: uses[name] for name in wanted} == wanted


def test_what_users_install_may_be_used_with_anything(scripts):
    """Licences that ask something of the programs beside them are known by name: LGPL, with an extra only."""
    strict = {
        name: (told, use)
        for (name, _), (told, use) in scripts("licences").rows().items()
        if re.search(r"\bA?L?GPL|not stated", told) and use != "development"
    }
    assert {use for _, use in strict.values()} == {"postgres"}


@pytest.mark.parametrize(
    ("about", "licence"),
    [
        ("License-Expression: BSD-3-Clause AND MIT", "BSD-3-Clause AND MIT"),
        ("License: Apache License 2.0", "Apache-2.0"),
        ("License: UNKNOWN\nClassifier: License :: OSI Approved :: ISC License (ISCL)", "ISC"),
        ("License: " + "a whole text " * 9, "not stated"),
        ("Name: silent", "not stated"),
    ],
)
def test_licences_have_one_spelling(scripts, about, licence):
    assert scripts("licences").licence(message_from_string(about)) == licence


def test_the_bill_of_materials(scripts, tmp_path, capsys):
    sbom, locked = scripts("sbom"), scripts("locked")
    for name in ("one.json", "two.json"):
        assert sbom.main([str(tmp_path / name)]) == 0
    text = (tmp_path / "one.json").read_text()
    assert text == (tmp_path / "two.json").read_text()
    assert f"{len(locked.packages())} components" in capsys.readouterr().out
    bill = json.loads(text)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    components = {component["bom-ref"]: component for component in bill["components"]}
    assert len(components) == len(bill["components"]) == len(locked.packages())
    (spark,) = (one for one in components.values() if one["name"] == "pyspark")
    assert spark["purl"] == f"pkg:pypi/pyspark@{spark['version']}"
    assert spark["scope"] == "required"
    assert spark["licenses"] == [{"expression": "Apache-2.0"}]
    assert len(spark["externalReferences"][0]["hashes"][0]["content"]) == 64
    (root,) = bill["dependencies"]
    assert root["ref"] == bill["metadata"]["component"]["bom-ref"]
    assert spark["bom-ref"] in root["dependsOn"]
    assert set(root["dependsOn"]) < components.keys()


def test_this_version_could_be_released(scripts):
    release, version = scripts("release"), scripts("sbom").version()
    assert release.refusals(version) == []
    assert (ROOT / "tests/compat/savepoints/0.1.0").is_dir(), "upgrades from it are tested"


def test_a_version_without_notes_or_savepoint_is_refused(scripts):
    first, second = scripts("release").refusals("9.9.9")
    assert "no notes of 9.9.9" in first
    assert "python -m tests.compat.programs 9.9.9" in second


def test_a_release_needs_a_date(scripts, monkeypatch, tmp_path):
    release = scripts("release")
    (tmp_path / "CHANGELOG.md").write_text("## [1.0.0] - unreleased\n\n## [0.9.0] - 2026-11-18\n")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(
        release.subprocess, "run", lambda *args, **options: type("Done", (), {"stdout": ""})
    )
    assert release.not_final("0.9.0") == []
    assert release.not_final("1.0.0") == ["CHANGELOG.md has no date for 1.0.0"]


def wheel(path, version="1.0", spoil=False):
    info = f"millstream-{version}.dist-info/"
    about = (
        f"Metadata-Version: 2.4\nName: millstream\nVersion: {version}\nLicense-Expression: Apache-2.0\n"
        "Description-Content-Type: text/markdown\n\n# Millstream\n"
    )
    files = {
        "millstream/__init__.py": "",
        f"{info}METADATA": about,
        f"{info}entry_points.txt": "[console_scripts]\n",
        f"{info}licenses/LICENSE": "Apache",
    }

    def digest(text):
        return (
            base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        )

    record = "".join(f"{name},sha256={digest(text)},{len(text)}\n" for name, text in files.items())
    if spoil:
        files["millstream/__init__.py"] = "import os"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{info}RECORD": record + f"{info}RECORD,,\n"}.items():
            archive.writestr(name, text)
    return path


def test_a_wheel_is_held_against_its_own_record(scripts, tmp_path):
    release = scripts("release")
    good = wheel(tmp_path / "millstream-1.0-py3-none-any.whl")
    assert release.check_wheel(good, "1.0") == []
    bad = wheel(tmp_path / "millstream-1.0-py3-none-any.whl", spoil=True)
    assert release.check_wheel(bad, "1.0") == [
        "millstream/__init__.py is not what the wheel's record says"
    ]
    older = wheel(tmp_path / "older.whl", "0.9")
    assert release.check_wheel(older, "1.0") == [
        "the wheel is called older.whl",
        "the wheel's Version is 0.9",
    ]


def test_a_source_archive_has_what_people_look_for(scripts, tmp_path):
    release = scripts("release")
    path = tmp_path / "millstream-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in [*(f"millstream-1.0/{name}" for name in release.IN_SOURCE[1:]), "elsewhere"]:
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    assert release.check_source(path, "1.0") == [
        "elsewhere is outside of millstream-1.0/",
        "pyproject.toml is missing from the source archive",
    ]


def test_checksums_are_those_of_sha256sum(scripts, tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "SHA256SUMS").touch()
    first = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    assert scripts("release").checksums(tmp_path) == f"{first}  a\n"


@pytest.mark.parametrize("name", ["licences", "locked", "release", "sbom"])
def test_examples_in_scripts(scripts, name):
    failed, attempted = doctest.testmod(scripts(name))
    assert attempted > 0
    assert failed == 0
    assert name in sys.modules
