# Everything a contributor types. `make help` lists it; .ci/run calls the same targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp
SETUP_LOG := $(VENV)/setup.log

# Folders in which no test starts Spark, and the one in which tests do. Those not there yet are left out.
UNIT_TESTS := $(wildcard tests/unit tests/properties tests/conformance tests/inprocess tests/simulation tests/compat)
SPARK_TESTS := $(wildcard tests/integration tests/conformance/test_cases_on_spark.py tests/chaos)
PYTEST_ARGS ?=
BENCH ?= benchmarks/keyed_count.py
BENCH_ARGS ?=

# Spark's processes find Java by JAVA_HOME, and the environment's python by PATH.
with_java = java_home=$$(scripts/find_java.sh) && \
	export JAVA_HOME="$$java_home" PATH="$(CURDIR)/$(BIN):$$PATH" &&

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## make .venv from the lock, find (or as root install) Java
	@java_home=$$(scripts/find_java.sh --install) && \
	  echo "ready: $$($(BIN)/python --version) in $(VENV), Java in $$java_home"

$(STAMP): requirements.lock pyproject.toml
	@if ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  python=$$(scripts/find_python.sh) && echo "making $(VENV) with $$python" && \
	  "$$python" -m venv --clear $(VENV); \
	fi
	@echo "installing requirements.lock (the first time takes a few minutes; log: $(SETUP_LOG))"
	@$(BIN)/python -m pip install --disable-pip-version-check --require-hashes \
	    --requirement requirements.lock >$(SETUP_LOG) 2>&1 || { tail -n 40 $(SETUP_LOG) >&2; exit 1; }
	@$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation \
	    --editable . >>$(SETUP_LOG) 2>&1 || { tail -n 40 $(SETUP_LOG) >&2; exit 1; }
	@touch $@

.PHONY: demo
demo: $(STAMP) ## the word counter that survives a kill at any moment
	@$(with_java) $(BIN)/python examples/fault_tolerant_word_count.py

.PHONY: demo-kafka
demo-kafka: $(STAMP) ## from Kafka to Kafka, killed at random, read back with a plain consumer (Maven fetches the broker)
	@$(with_java) $(BIN)/python examples/fault_tolerant_kafka.py

.PHONY: test
test: ## all tests but the nightly ones: first those without Spark, then those with (COVERAGE=1: held against the floor)
	@$(MAKE) --no-print-directory $(if $(COVERAGE),coverage,test-unit)
	@$(MAKE) --no-print-directory test-spark

# What fails is run once more, alone (docs/decisions/0034-what-every-change-runs.md).
run_tests = $(BIN)/python scripts/run_tests.py

# Doctests are of the modules that need no Spark to be imported.
unit_tests = -m "not spark and not nightly" --doctest-modules --ignore=millstream/spark \
	    millstream $(UNIT_TESTS) $(PYTEST_ARGS)

.PHONY: test-unit
test-unit: $(STAMP) ## tests and docstring examples that need no Spark, in a process for each core
	$(run_tests) -- $(unit_tests) -n auto --dist loadfile --max-worker-restart 0

.PHONY: coverage
coverage: $(STAMP) ## the same tests, with what they run of the project held against the floor in .coverage-floor
	@rm -f .coverage .coverage.*
	$(run_tests) --coverage -- $(unit_tests) -n auto --dist loadfile --max-worker-restart 0
	$(BIN)/coverage combine --quiet
	$(BIN)/python scripts/coverage_floor.py

.PHONY: coverage-raise
coverage-raise: $(STAMP) ## raise the floor to what the last make coverage measured
	$(BIN)/python scripts/coverage_floor.py --raise

.PHONY: test-spark
test-spark: $(STAMP) ## tests on a local Spark
	$(if $(SPARK_TESTS),$(with_java) $(run_tests) -- -m "not nightly" $(SPARK_TESTS) $(PYTEST_ARGS),\
	    @echo "no tests/integration folder: nothing to run on Spark")

.PHONY: test-pythons
test-pythons: $(STAMP) ## tests without Spark on every Python that pyproject.toml names and this machine has
	$(BIN)/python scripts/test_pythons.py $(PYTHONS_ARGS) -- $(PYTEST_ARGS)

.PHONY: nightly
nightly: $(STAMP) ## what takes too long for every change: the nightly tests, other Pythons, more random programs, chaos
	@$(with_java) $(BIN)/python -m pytest -m nightly $(UNIT_TESTS) $(SPARK_TESTS) $(PYTEST_ARGS)
	@$(MAKE) --no-print-directory test-pythons
	@$(MAKE) --no-print-directory properties N=$(or $(N),500)
	@$(MAKE) --no-print-directory chaos N=20
	@$(MAKE) --no-print-directory chaos N=20 JOB=time
	@$(MAKE) --no-print-directory chaos N=20 JOB=kafka CHAOS_ARGS="--broker-restarts 4"

.PHONY: properties
properties: $(STAMP) ## thousands of random programs against the reference interpreters (N=2000)
	MILLSTREAM_EXAMPLES=$(or $(N),2000) $(BIN)/python -m pytest -o timeout=7200 tests/properties $(PYTEST_ARGS)

.PHONY: mutants
mutants: $(STAMP) ## small changes of the code that decides, and how many of them no test notices (N=20)
	$(BIN)/python scripts/mutants.py --each $(or $(N),20) $(MUTANTS_ARGS)

.PHONY: chaos
chaos: $(STAMP) ## kill drivers and workers of a running job (N=drivers SEED=... JOB=state|time|kafka|compact|delta|iceberg|postgres|s3|ha)
	@$(with_java) $(BIN)/python -m tests.chaos --kills $(or $(N),20) --seed $(or $(SEED),1) \
	    --job $(or $(JOB),state) $(CHAOS_ARGS)

.PHONY: curves
curves: $(STAMP) ## what a record costs by keys, size, chain, levels, windows, state and parallelism; charts in docs/images/curves
	@$(with_java) cd benchmarks && ../$(BIN)/python curves.py $(CURVES_ARGS)

.PHONY: kill-test
kill-test: $(STAMP) ## the published kill test: goes on from its ledger, writes docs/kill_test.md (MINUTES=60 KILL_ARGS="--jobs time")
	@$(with_java) $(BIN)/python -m tests.chaos.kill_test --minutes $(or $(MINUTES),60) --seed $(or $(SEED),1) $(KILL_ARGS)

.PHONY: lint
lint: $(STAMP) ## style, types, architecture, module sizes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/check_sizes.py

.PHONY: hooks
hooks: $(STAMP) ## have git run the commands of make lint before a commit, those of types before a push
	$(BIN)/pre-commit install

.PHONY: format
format: $(STAMP) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

.PHONY: bench
bench: $(STAMP) ## benchmarks (BENCH=file.py BENCH_ARGS="...")
	@$(with_java) for file in $(BENCH); do $(BIN)/python $$file $(BENCH_ARGS); done

.PHONY: parity
parity: $(STAMP) ## examples/pyflink under PyFlink and under Millstream: the same output? (minutes)
	@$(with_java) $(BIN)/python scripts/parity.py $(PARITY_ARGS)

.PHONY: screenshots
screenshots: $(STAMP) ## pictures of the dashboard into docs/images, from a job that runs (SCREENSHOTS_ARGS=--spark)
	@$(with_java) $(BIN)/python scripts/screenshots.py $(SCREENSHOTS_ARGS)

.PHONY: site
site: $(STAMP) ## the documentation as pages that need no network, into build/site; broken links fail
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/site/index.html: $$(find build/site -name '*.html' -not -path '*/source/*' | wc -l) pages"

.PHONY: doctor
doctor: $(STAMP) ## check this machine, with a real Spark job
	@$(with_java) $(BIN)/millstream doctor --spark

.PHONY: lock
lock: ## rewrite requirements.lock from pyproject.toml (LOCK_ARGS=--upgrade for the newest of all)
	scripts/lock.sh $(LOCK_ARGS)

.PHONY: build
build: $(STAMP) ## wheel and source archive into dist/
	$(BIN)/python -m build --no-isolation

.PHONY: check-wheel
check-wheel: $(STAMP) ## the wheel alone, in an empty environment: it installs and runs an example on Spark
	@$(with_java) scripts/check_wheel.sh $(BIN)/python

.PHONY: licences
licences: $(STAMP) ## docs/licences.md from the lock (fetches what is not installed)
	$(BIN)/python scripts/licences.py

.PHONY: sbom
sbom: $(STAMP) ## a bill of materials (CycloneDX) from the lock, into dist/
	$(BIN)/python scripts/sbom.py dist/millstream.cdx.json

.PHONY: release
release: $(STAMP) ## wheel, source archive, bill of materials and checksums into dist/release, checked; uploads nothing
	$(BIN)/python scripts/release.py $(RELEASE_ARGS) dist/release
	@$(with_java) KAFKA=1 scripts/check_wheel.sh $(BIN)/python

.PHONY: clean
clean: ## remove the environment, caches and what runs leave behind
	rm -rf $(VENV) .venvs .coverage dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
