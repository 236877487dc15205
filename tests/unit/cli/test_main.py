"""The command itself: its help, its version, and how little it imports."""

from __future__ import annotations

import subprocess
import sys

from click.testing import CliRunner

from millstream import __version__
from millstream.cli import main


def test_help_lists_the_verbs() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert all(verb in result.output for verb in ("run", "info", "doctor"))


def test_version() -> None:
    assert __version__ in CliRunner().invoke(main, ["--version"]).output


def test_an_unknown_verb_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["rum"])
    assert result.exit_code == 2
    assert "rum" in result.stderr


def test_every_verb_has_help() -> None:
    for verb in ("run", "info", "doctor"):
        result = CliRunner().invoke(main, [verb, "--help"])
        assert result.exit_code == 0, result.output


def test_nothing_heavy_is_imported_for_help() -> None:
    code = (
        "import sys, millstream.cli\n"
        "heavy = {'pyspark', 'pyarrow', 'pandas', 'rich', 'yaml', 'millstream.datastream'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
