# What a developer, CI and a first visitor run. Every target sets up what it needs.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Extras of pyproject.toml to install beside those that a target needs: `make setup WITH=java`.
WITH ?=
# What a target needs installed, as arguments of tools/setup; what is there already stays.
NEEDS_demo := spark sqlite plot duckdb demo observe
NEEDS_dbt := $(NEEDS_demo) dbt
NEEDS_airflow := $(NEEDS_demo) airflow
NEEDS_all := $(NEEDS_demo) kafka dbt thrift airflow postgres aws group:dev group:cloud
# Tests run in this many processes, each with a JVM of up to 3 GB once it needs one: one to a core, from 2 up to 4.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n < 2 ? 2 : n > 4 ? 4 : n)))
# How many times more `make test-deep` tries of each law than is usual there; 4 kills each stream 20 times.
DEPTH ?= 4
# Passed on to pytest, as in `make test ARGS="-k fence"`.
ARGS ?=
# The system's tests mostly wait, for what Terraform waits for: four at a time, on two cores and in 5 GB.
SYSTEM_WORKERS ?= 4
# Where they are; a test compares this with their marks.
SYSTEM_TESTS := tests/airflow/test_days_in_airflow.py tests/browser tests/cloud tests/cli/test_dev.py tests/project/test_first_pipeline.py tests/project/test_package.py tests/project/test_installations.py
PYTHON ?= python3
export PYTHON
# Images often set it, and then each of the many processes here compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
INSTALLED := .venv/.for-all
JARS := build/jars/.lake
TEST_JARS := build/jars/.tests
ARCHIVE := build/jars/.archive
PINNED := spark/tailrace/toolchain/jars.toml
CHECKOV_VERSION := 3.3.30
CHECKOV := build/checkov-$(CHECKOV_VERSION)/.installed
SITE_TOOLS := mkdocs-material==9.8.2 mkdocstrings[python]==1.0.8 mike==2.2.0 ruff==0.17.5
SITE := build/site-tools/.installed

.PHONY: help setup ready check lint test tests system-test test-deep coverage docs demo dbt airflow bundle bench plan-size archive format lock clean distclean FORCE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(INSTALLED) $(JARS) ## install everything into .venv and build/ (Python 3.11 is all it needs)

check: $(INSTALLED) lint ## lint, types, layers, and the tests that need no JVM and no server
	TAILRACE_TEST_DEPTH=0 $(BIN)/pytest -q -n $(WORKERS) --dist worksteal \
		-m "not spark and not kafka and not system and not slow" --ignore tests/browser --ignore tests/cloud $(ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --cache-dir build/import-linter

ready: setup ## what the tests need besides: their jars, an archive of classes, checkov, the tools of the site
	@$(MAKE) --no-print-directory -j 3 --output-sync=target $(TEST_JARS) $(ARCHIVE) $(CHECKOV) $(SITE)

test: ready ## what has to hold at each change: lint, and every test but those of system-test and test-deep
	@$(MAKE) --no-print-directory -j 2 lint tests

# Types take a minute where nothing is cached, on one core, so the tests run beside.
tests:
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal --durations 25 -m "not system" $(ARGS)

system-test: ready ## the whole of it, at each change as well: a person at a real Airflow, Terraform on a test server, checkov
	$(BIN)/pytest -q -n $(SYSTEM_WORKERS) --dist worksteal --durations 10 -m system $(SYSTEM_TESTS) $(ARGS)
	@if [ -e $(CHECKOV) ]; then $(dir $(CHECKOV))bin/checkov --directory terraform --framework terraform --compact --quiet --skip-download; \
	else echo "system-test: checkov could not be installed, its checks are left out" >&2; fi
	@$(MAKE) --no-print-directory docs

docs: $(SITE) ## the pages of docs/ as a site with a search, in build/site; a warning is an error
	@if [ -e $(SITE) ]; then NO_MKDOCS_2_WARNING=1 $(dir $(SITE))bin/mkdocs build --strict --quiet; \
	else echo "docs: mkdocs could not be installed, no site is built" >&2; fi

test-deep: ready ## hours: all transcripts on Spark, many times the random definitions, kills and schedules
	TAILRACE_TEST_DEPTH=$(DEPTH) $(BIN)/pytest -q -n $(WORKERS) --dist worksteal --timeout 14400 --durations 25 $(ARGS)

# Without the package's own plugin, which would import the package before anything is counted.
coverage: ready ## the lines and branches that `make test` does not reach, and pages in build/coverage
	$(BIN)/pytest -p no:tailrace.testing.plugin -q -n $(WORKERS) --dist worksteal -m "not system" --cov --cov-context=test \
		--cov-report=html --cov-report=term-missing:skip-covered $(ARGS)

dbt: .venv/.for-dbt $(JARS) ## build the dbt project on the demo's lake (make demo first)
	TAILRACE_WAREHOUSE=$${TAILRACE_WAREHOUSE:-build/demo/lake} $(BIN)/tailrace dbt $(ARGS)

demo: .venv/.for-demo $(JARS) ## the guided tour: a stream, a bug, a backfill, the same answer
	$(BIN)/tailrace demo $(ARGS)

airflow: .venv/.for-airflow $(ARCHIVE) $(if $(TAILRACE_WAREHOUSE),,build/demo/lake) ## Airflow on the demo's lake, until Ctrl-C; TAILRACE_WAREHOUSE names another
	@TAILRACE_WAREHOUSE=$${TAILRACE_WAREHOUSE:-build/demo/lake} $(BIN)/tailrace airflow $(ARGS)

bundle: $(INSTALLED) ## what a cluster and an Airflow need, into build/bundle; ARGS="--to s3://BUCKET/PREFIX" uploads it
	$(BIN)/tailrace bundle $(ARGS)

build/demo/lake:
	@$(MAKE) demo ARGS=

bench: setup ## measure against hand-written Spark and DuckDB
	$(BIN)/python benchmarks/run.py $(ARGS)

plan-size: setup ## what 10, 100 and 1,000 cores take, simulated; ARGS=measure measures anew and writes the docs
	$(BIN)/python -m benchmarks.planning $(ARGS)

archive: setup $(ARCHIVE) ## have Spark start in less time from now on: an archive of its classes, a minute's work

format: $(INSTALLED) ## rewrite the code the way `check` wants it
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format --quiet

# Not of $(INSTALLED): what is to be installed may not be in uv.lock yet.
lock: ## resolve the dependencies of pyproject.toml into uv.lock again
	@test -x build/uv/bin/uv || tools/setup
	UV_PYTHON_DOWNLOADS=never build/uv/bin/uv lock
	@sed -i.before 's/, size = [0-9]*//' uv.lock && rm uv.lock.before

clean: ## remove what runs left behind; .venv and the jars stay
	@find build -mindepth 1 -maxdepth 1 ! -name jars ! -name uv -exec rm -rf {} + 2>/dev/null || true
	@rm -rf dist

distclean: ## remove everything that is not in git
	@rm -rf build dist .venv

# Tools of their own, with packages that nothing else needs: out of reach is no error.
$(CHECKOV): PACKAGES = checkov==$(CHECKOV_VERSION)
$(SITE): PACKAGES = $(SITE_TOOLS)
$(SITE): Makefile
$(CHECKOV) $(SITE): | .venv/.for-demo
	@build/uv/bin/uv venv --quiet --clear --python $(BIN)/python $(dir $@)
	@if build/uv/bin/uv pip install --quiet --python $(dir $@)bin/python $(PACKAGES); then touch $@; fi

# Made anew only where something was installed, so what depends on it is not made again at each call.
.venv/.for-%: FORCE
	@tools/setup $* $(NEEDS_$*) $(WITH)

$(JARS): $(PINNED) | .venv/.for-demo
	@$(BIN)/python -m tailrace.toolchain
	@touch $@

# It takes a minute and saves each start of Spark some seconds, so it is made where Spark is started often.
$(ARCHIVE): $(JARS)
	@$(BIN)/tailrace setup --archive
	@touch $@

$(TEST_JARS): $(PINNED) | $(INSTALLED)
	@$(BIN)/python -m tailrace.toolchain --group lake --group aws --group postgres --group kafka --group kafka-broker --group s3-server --group rest-server
	@touch $@
