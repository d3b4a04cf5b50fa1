# `make demo` and `make test` do all their own set-up; see README.md.
SHELL := /bin/bash
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
TEST_ARGS ?=
# A worker takes up to 2 GB. On two cores a third one gains nothing.
TEST_WORKERS ?= 2
# Tests start hundreds of Python processes; without the byte code of earlier ones each would compile the whole package.
unexport PYTHONDONTWRITEBYTECODE
BENCH_ARGS ?=

# An environment that was made for another folder (a moved or copied tree) is set up again.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif

.PHONY: help setup java chromium postgres demo test lint bench studio clean
help:
	@echo "make demo    set up, then run example queries on the local backend and, with Java, a query and a pipeline on Spark"
	@echo "make test    set up, then run the whole test suite (TEST_ARGS='-k name' for a part)"
	@echo "make lint    style, types and import rules"
	@echo "make bench   set up, then measure against DuckDB (BENCH_ARGS='--scale 0.1' for a quick look)"
	@echo "make studio  build the page of the studio into tsql/studio/page (needs Node 20 and npm; users need neither)"
	@echo "make clean   remove the virtual environment and build products"

setup: $(STAMP)

$(STAMP): pyproject.toml .ci/setup
	@.ci/setup

java:
	@.ci/java

chromium:
	@.ci/chromium

postgres:
	@.ci/postgres

demo: setup
	@$(PY) examples/demo.py

test: setup java chromium postgres
	@$(PY) -m pytest -n $(TEST_WORKERS) --dist loadgroup -q $(TEST_ARGS)

lint: setup
	@$(PY) -m ruff check .
	@$(PY) -m tests.typecheck
	@$(PY) -m pytest -q tests/test_project.py -k "import or layer"

bench: setup
	@$(PY) -m bench.single_table $(BENCH_ARGS)

studio:
	@cd studio && npm ci --no-fund --no-audit && npm run --silent check && npm run --silent build

clean:
	@rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
