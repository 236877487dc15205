#!/usr/bin/env bash
# What a user gets: builds the source archive and from it the wheel, installs the wheel into an empty
# environment (its own dependencies only, at the versions of requirements.lock) and runs an example
# there, on Spark, from a folder that knows nothing of this one. Then the extra `kafka` is installed: before, a
# program with Kafka is told to; after, its plan can be made. With KAFKA=1 it also runs, against a broker.
#
#   scripts/check_wheel.sh PYTHON    PYTHON has `build` and the build backend: the project's own
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
python=$root/${1:-.venv/bin/python}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

say() { printf 'check_wheel: %s\n' "$*"; }
fail() {
  say "$*" >&2
  exit 1
}

"$python" -m build --no-isolation --outdir "$scratch/dist" . >"$scratch/build.log" 2>&1 ||
  { cat "$scratch/build.log" >&2; fail "the source archive or the wheel does not build"; }
wheel=$(echo "$scratch"/dist/millstream-*.whl)
say "built $(cd "$scratch/dist" && echo ./*)"

# Every file of the package is in it, and nothing else is.
diff <(git ls-files millstream) \
     <("$python" -m zipfile --list "$wheel" | awk '$1 ~ /^millstream\// { print $1 }' | LC_ALL=C sort) ||
  fail "the wheel holds other files than git does (<: only git, >: only the wheel)"

# The pins without their hashes: pip takes no file without a hash beside files with one, and the wheel has none.
sed -nE 's/^([A-Za-z0-9_.-]+==[^\\]+) \\$/\1/p' requirements.lock >"$scratch/pins.txt"
"$python" -c 'import sys; print(sys.base_prefix)' >"$scratch/base"
"$(cat "$scratch/base")/bin/python3" -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --disable-pip-version-check --quiet \
  --constraint "$scratch/pins.txt" "$wheel"
say "installed with $("$scratch/venv/bin/pip" list --disable-pip-version-check --format freeze | wc -l) packages"

mkdir "$scratch/elsewhere"
cp examples/word_count.py examples/kafka_word_count.py "$scratch/elsewhere/"
cd "$scratch/elsewhere"
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV SPARK_HOME PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON
export PATH="$scratch/venv/bin:$PATH"

where=$(python -c 'import millstream; print(millstream.__file__)')
case $where in
  "$scratch/venv/"*) ;;
  *) fail "millstream was imported from $where, not from the environment" ;;
esac
millstream --version
millstream init project >/dev/null
[ -n "$(ls project)" ] || fail "millstream init wrote nothing"

python word_count.py >output.txt 2>errors.txt || { cat output.txt errors.txt >&2; fail "the example failed"; }
# What the README says it prints; which subtask prints first is open.
grep -E '^[12]> ' "$root/README.md" | LC_ALL=C sort >expected.txt
[ -s expected.txt ] || fail "README.md shows no output of the example"
diff expected.txt <(LC_ALL=C sort output.txt) ||
  { cat errors.txt >&2; fail "the example printed something else than README.md says (<: README.md)"; }
say "examples/word_count.py ran on Spark from the wheel alone"

# A folder for checkpoints makes the plan a whole one; nobody is at that address, and nobody is asked.
plan=(millstream info kafka_word_count.py localhost:9 lines counts "$scratch/checkpoints")
if "${plan[@]}" >plan.txt 2>&1; then
  fail "a program with Kafka has a plan without the extra"
fi
grep -q "pip install 'millstream\[kafka\]'" plan.txt ||
  { cat plan.txt >&2; fail "a program with Kafka is not told what to install"; }
"$scratch/venv/bin/pip" install --disable-pip-version-check --quiet --constraint "$scratch/pins.txt" "$wheel[kafka]"
"${plan[@]}" >plan.txt 2>&1 || { cat plan.txt >&2; fail "no plan of kafka_word_count.py, with the extra installed"; }
grep -q "Source: lines .*exactly-once" plan.txt || { cat plan.txt >&2; fail "the plan of kafka_word_count.py is another"; }
say "millstream[kafka] was asked for, and makes the plan of examples/kafka_word_count.py"

if [ "${KAFKA:-}" = 1 ]; then
  python kafka_word_count.py >output.txt 2>errors.txt || { cat output.txt errors.txt >&2; fail "Kafka's example failed"; }
  grep -qx 'the 4' output.txt || { cat output.txt errors.txt >&2; fail "Kafka's example counted something else"; }
  say "examples/kafka_word_count.py ran on Spark against a broker, from the wheel alone"
fi
