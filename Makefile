# Every target makes the virtual environment it needs, from requirements.lock: with uv where it is installed,
# else with the interpreter's own venv and pip.
#   make demo            the whole job on human-labelled traffic; no key, no account, no container
#   make test            all tests; those with a real back end are skipped where it was never built
#   make help            the rest
VENV ?= .venv
PYTHON ?= python3
ARGS ?=

bin := $(VENV)/bin
locked := $(VENV)/.made-from-lock
installed := $(VENV)/.project-installed
paths := ragtrace collector tests examples

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast check format venv lock backends

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

demo: venv ## replay labelled RAG traffic through capture, collector and judge (ARGS="--limit 5")
	@$(bin)/ragtrace demo $(ARGS)

test: venv $(if $(RAGTRACE_REQUIRE_BACKENDS),backends) ## run all tests, the fast ones first (ARGS="-k carrier")
	$(bin)/python -m pytest $(ARGS)

test-fast: venv ## run the tests that start no process (under two minutes)
	$(bin)/python -m pytest -m "not slow" $(ARGS)

check: venv ## formatting, lint, types, import direction
	$(bin)/ruff format --check $(paths)
	$(bin)/ruff check $(paths)
	$(bin)/mypy
	$(bin)/lint-imports

format: venv ## rewrite the code in the project's format
	$(bin)/ruff format $(paths)
	$(bin)/ruff check --fix $(paths)

backends: venv ## get the real Jaeger and language model that tests run, into a cache (Go, ten minutes, once)
	@PATH="$(abspath $(bin)):$$PATH" tests/backends/build.sh smollm2
	@tests/backends/build.sh jaeger

lock: venv ## resolve the dependencies of pyproject.toml again (needs uv)
	@command -v uv >/dev/null || { echo "make lock needs uv: https://docs.astral.sh/uv/" >&2; exit 1; }
	{ echo "# Made by 'make lock' from pyproject.toml: core, extras and development tools, for Python 3.11 and later."; \
	  uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 --upgrade --quiet \
	    --generate-hashes --no-annotate --no-header --no-emit-index-url --no-emit-find-links; } > requirements.lock.new
	mv requirements.lock.new requirements.lock

venv: $(installed) ## make the virtual environment, again if the lock changed

$(locked): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ragtrace needs Python 3.11 or later: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "making $(VENV) from requirements.lock ..." >&2
	@if command -v uv >/dev/null; then \
	  uv venv --quiet --clear --python $(PYTHON) $(VENV) && \
	  uv pip sync --quiet --python $(bin)/python --require-hashes requirements.lock; \
	else \
	  $(PYTHON) -m venv --clear $(VENV) && \
	  $(bin)/python -m pip install --quiet --require-hashes --requirement requirements.lock; \
	fi
	@touch $(locked)

$(installed): $(locked) pyproject.toml
	@if command -v uv >/dev/null; then \
	  uv pip install --quiet --python $(bin)/python --no-deps --no-build-isolation --editable .; \
	else \
	  $(bin)/python -m pip install --quiet --no-deps --no-build-isolation --editable .; \
	fi
	@touch $(installed)
