"""The browser for tests of web pages: Debian's package, driven by Playwright."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

__all__ = ["ARGUMENTS", "chromium"]

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-lcd-text"]
"""As root there is no sandbox, and test machines have no graphics."""


@functools.cache
def chromium() -> str | None:
    """Where Chromium is; if it is missing it is installed, as root on Debian. None if there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        install = ["apt-get", "install", "--yes", "--no-install-recommends", "chromium"]
        for command in (["apt-get", "update"], install):
            subprocess.run(command, capture_output=True, check=False, timeout=600)
        found = shutil.which("chromium")
    return found
