#!/usr/bin/env bash
# Prints a Python that Millstream can be set up with: 3.11 or newer, able to make virtual environments.
set -euo pipefail

# A name that is found need not run (version managers leave shims for versions that are switched off),
# so each is tried.
without_venv=
for name in ${PYTHON:-} python3.13 python3.12 python3.11 python3 python; do
  command -v "$name" >/dev/null || continue
  "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
  if "$name" -c 'import venv, ensurepip' 2>/dev/null; then
    command -v "$name"
    exit 0
  fi
  without_venv=${without_venv:-$name}
done

if [ -n "$without_venv" ]; then
  cat >&2 <<TEXT
$("$without_venv" --version) was found ($without_venv), but it cannot make virtual environments.
On Debian and Ubuntu that part is a package of its own:

  sudo apt-get update && sudo apt-get install -y python3-venv
TEXT
else
  cat >&2 <<TEXT
Millstream needs Python 3.11 or newer; tried: ${PYTHON:+$PYTHON, }python3.13, python3.12, python3.11, python3, python.
Install one, then run the same command again:

  Debian 12, Ubuntu 24.04 and later   sudo apt-get update && sudo apt-get install -y python3 python3-venv
  Fedora                              sudo dnf install -y python3
  macOS                               brew install python@3.12

If it is installed elsewhere:  make setup PYTHON=/path/to/python3
TEXT
fi
exit 1
