"""The commands that git's hooks run are those of `make lint`, so that neither passes what the other refuses."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def lint_commands() -> list[str]:
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]


def hooks() -> list[dict[str, Any]]:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    return [hook for repo in config["repos"] for hook in repo["hooks"]]


def test_hooks_run_what_make_lint_runs():
    commands = [" ".join([str(hook["entry"]), *hook.get("args", [])]) for hook in hooks()]
    assert sorted(commands) == sorted(lint_commands())


def test_hooks_fetch_nothing():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    assert {hook["language"] for hook in hooks()} == {"system"}
    assert not any(hook["pass_filenames"] for hook in hooks())


def test_pre_commit_understands_them():
    command = [sys.executable, "-m", "pre_commit", "validate-config", ".pre-commit-config.yaml"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
