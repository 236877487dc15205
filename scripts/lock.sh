#!/usr/bin/env bash
# Writes requirements.lock: every package of the project and its development tools, pinned, with the
# hashes of all their files, for every Python from 3.11 on. Needs the network and (from PATH or
# fetched into a throw-away environment) uv.
set -euo pipefail
cd "$(dirname "$0")/.."

uv=$(command -v uv || true)
if [ -z "$uv" ]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  "$(scripts/find_python.sh)" -m venv "$scratch"
  "$scratch/bin/pip" install --quiet uv
  uv=$scratch/bin/uv
fi

"$uv" pip compile pyproject.toml --extra dev --python-version 3.11 --universal --generate-hashes \
  --no-emit-package millstream --no-annotate --custom-compile-command "make lock" --quiet "$@" \
  --output-file requirements.lock

# Where packages come from is the business of each machine's own configuration.
if grep -n '://' requirements.lock; then
  echo "lock: requirements.lock names a host; see the lines above" >&2
  exit 1
fi
echo "requirements.lock: $(grep -c '==' requirements.lock) packages"
