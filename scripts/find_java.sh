#!/usr/bin/env bash
# Prints the home of a Java that Spark can run on (17 or newer), for use as JAVA_HOME.
#
#   scripts/find_java.sh             find one, or say what to do and exit 1
#   scripts/find_java.sh --install   the same, but as root on Debian or Ubuntu install one first
#
# Looked at, in this order: JAVA_HOME, the java on PATH, macOS's java_home, /usr/lib/jvm (the oldest
# that fits, because a Java newer than this Spark may not run it).
set -euo pipefail

readonly minimum=17
readonly package=openjdk-17-jre-headless

# major HOME: the major version of HOME/bin/java, or nothing when it is missing or does not run.
# 1.8.0_392 is 8; 17.0.15 is 17; 25-ea is 25.
major() {
  [ -x "$1/bin/java" ] || return 0
  "$1/bin/java" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1 || true
}

fits() {
  local version
  version=$(major "$1")
  [ -n "$version" ] && [ "$version" -ge "$minimum" ]
}

# The home of the java on PATH. Its own word is asked first: /usr/bin/java may be a wrapper or a shim.
home_on_path() {
  command -v java >/dev/null || return 0
  java -XshowSettings:properties -version 2>&1 | sed -nE 's/^ *java\.home = (.*)$/\1/p' | head -n 1 || true
}

installed_homes() {
  local home version
  for home in /usr/lib/jvm/*; do
    version=$(major "$home")
    [ -z "$version" ] || printf '%s\t%s\n' "$version" "$home"
  done | sort -n | cut -f 2
}

find_java() {
  local home
  if [ -n "${JAVA_HOME:-}" ]; then
    if fits "$JAVA_HOME"; then
      echo "$JAVA_HOME"
      return 0
    fi
    echo "find_java: JAVA_HOME=$JAVA_HOME is passed over: no Java $minimum or newer runs there" >&2
  fi
  home=$(home_on_path)
  if [ -n "$home" ] && fits "$home"; then
    echo "$home"
    return 0
  fi
  if [ -x /usr/libexec/java_home ] && home=$(/usr/libexec/java_home -v "$minimum+" 2>/dev/null) &&
    fits "$home"; then
    echo "$home"
    return 0
  fi
  while IFS= read -r home; do
    if fits "$home"; then
      echo "$home"
      return 0
    fi
  done < <(installed_homes)
  return 1
}

explain() {
  cat >&2 <<TEXT
Millstream needs Java $minimum or newer (Spark runs on it), and none was found in JAVA_HOME, on PATH or
in /usr/lib/jvm. Install one, then run the same command again:

  Debian, Ubuntu   sudo apt-get update && sudo apt-get install -y $package
  Fedora, RHEL     sudo dnf install -y java-17-openjdk-headless
  macOS            brew install openjdk@17

If it is installed elsewhere:  export JAVA_HOME=/path/to/jdk
TEXT
}

if find_java; then
  exit 0
fi
if [ "${1:-}" = --install ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "find_java: no Java $minimum or newer; installing $package with apt-get" >&2
  export DEBIAN_FRONTEND=noninteractive
  # Some systems without man pages lack this folder, and the package's own script then fails.
  mkdir -p /usr/share/man/man1
  if apt-get update >&2 && apt-get install -y --no-install-recommends "$package" >&2; then
    unset JAVA_HOME
    if find_java; then
      exit 0
    fi
  fi
  echo "find_java: apt-get could not install $package" >&2
fi
explain
exit 1
