# Every target makes the virtual environment it needs, from its lock: with uv where it is installed, else with the
# interpreter's own venv and pip.
#   make demo            the whole job on human-labeled traffic; no key, no account, no container
#   make test            all tests; those with a real back end are skipped where it was never built
#   make help            the rest
VENV ?= .venv
PYTHON ?= python3
ARGS ?=

# Frameworks, and others' instrumentations, beside ragtrace. It is too much for every developer, and nothing of it may reach the first environment's lock.
frameworks := .venv-frameworks
# What `ragtrace demo` imports, and nothing else.
of_demo := .venv-demo
bin := $(VENV)/bin
paths := ragtrace collector tests examples

# Two for each core: tests of a collector wait for it half of their time.
workers = $(shell $(bin)/python -c 'import os; print(2 * os.cpu_count())')
# pytest rewrites every test module; without bytecode, again in each run.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo venv format check test-fast test backends nightly lock

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

demo: $(of_demo)/.project-installed ## see a wrong claim beside the chunk that contradicts it, in a small environment (ARGS="--no-open")
	@$(of_demo)/bin/ragtrace demo $(ARGS)

$(frameworks): $(frameworks)/.project-installed

venv: $(VENV)/.project-installed ## make the virtual environment, again if the lock changed

format: venv ## rewrite the code in the project's format
	$(bin)/ruff format $(paths)
	$(bin)/ruff check --fix $(paths)

check: venv ## formatting, lint, types, import direction, links of the docs; says how large the project is
	$(bin)/ruff format --check $(paths)
	$(bin)/ruff check $(paths)
	$(bin)/mypy
	$(bin)/lint-imports
	NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --quiet
	@$(bin)/python -m tests.architecture.totals --brief

# Each worker imports what it may run: half a core's time for each folder more.
fast := $(addprefix tests/,architecture conformance docs integration/cli reading unit)

test-fast: venv ## run the tests that need no server and no process, in a minute
	$(bin)/python -m pytest -m "not slow" -n auto $(fast) $(ARGS)

laws := tests/conformance tests/unit $(addprefix tests/integration/collector/,test_hold_law.py test_order_machine.py)

test: venv $(if $(RAGTRACE_REQUIRE_BACKENDS),backends) ## run all tests, two for each core at a time (ARGS="-k carrier")
	$(bin)/python -m pytest -n $(workers) -m "not night" $(ARGS)

backends: venv ## get what tests run beside ragtrace: Jaeger, Tempo, Kafka, a small language model … (30 minutes, once)
	@PATH="$(abspath $(bin)):$$PATH" tests/backends/build.sh smollm2
	@for name in kafka jaeger tempo helm otelcol; do tests/backends/build.sh $$name || exit 1; done

# An hour and more, before an issue is closed and not with each push: every framework and Phoenix, faults, floods and simulations.
# Each of the last is a program that takes options: `python -m tests.faults --help`.
nightly: venv backends $(frameworks)/.project-installed ## the tests that take an hour: frameworks, faults, several collectors, soak, fuzz, mutants …
	tests/backends/build.sh phoenix
	$(bin)/python -m tests.stories
	$(bin)/python -m pytest -n $(workers) -m night
	$(bin)/python -m pytest -n $(workers) -m "not backend" --hypothesis-profile=nightly $(laws)
	for name in faults statistics soak fuzz mutants "benchmarks --check"; do $(bin)/python -m tests.$$name || exit 1; done

# Two resolutions, of what is developed with and of the frameworks; image, demo and build are parts of the first. Phoenix is a back end.
lock: venv ## resolve the dependencies of pyproject.toml again (needs uv)
	@command -v uv >/dev/null || { echo "make lock needs uv: https://docs.astral.sh/uv/" >&2; exit 1; }
	$(call resolve,locks/development.txt,core with its extras and development tools,pyproject.toml $(extras) --group dev)
	$(call resolve,locks/frameworks.txt,core and the group 'frameworks',pyproject.toml --group frameworks)
	$(call resolve,locks/image.txt,what the container image holds,pyproject.toml $(extras_of_image) --constraint locks/development.txt)
	$(call resolve,locks/demo.txt,what the demo imports,pyproject.toml $(kept_in_demo) --constraint locks/development.txt)
	echo hatchling | $(call resolve,locks/build.txt,what builds the wheel,- --constraint locks/development.txt)
	echo arize-phoenix | $(call resolve,tests/backends/phoenix/requirements.txt,the server of Phoenix,- --no-strip-extras)

extras_of_image := --extra azure --extra collector --extra encryption --extra judge-anthropic --extra kafka --extra postgres
# All but the instrumentors of others' libraries: those are in the environment that has the libraries.
extras := $(addprefix --extra ,azure calibrate collector encryption examples judge-anthropic kafka local nli parquet postgres privacy zstd)
# Packages that others require, and that the demo can do without: tests/acceptance/test_demo.py runs it without them.
kept_in_demo := --extra collector $(addprefix --no-emit-package ,aiohappyeyeballs aiohttp aiosignal attrs frozenlist multidict propcache yarl \
  charset-normalizer httpx2-jsfetch markdown-it-py mdurl \
  opentelemetry-exporter-http-transport opentelemetry-exporter-otlp opentelemetry-exporter-otlp-proto-http pygments requests urllib3)

define resolve # lock, what is in it, how uv is told
	{ echo "# Made by 'make lock' from pyproject.toml: $(2), for Python 3.11 and later."; \
	  uv pip compile $(3) --universal --python-version 3.11 --upgrade --quiet \
	    --generate-hashes --no-annotate --no-header --no-emit-index-url --no-emit-find-links; } > $(1).new
	mv $(1).new $(1)
endef

$(VENV)/.made-from-lock: locks/development.txt
$(frameworks)/.made-from-lock: locks/frameworks.txt

# How an environment is made and filled, by uv or by pip. One that uv made has no pip, and uv need not be there any more.
has_uv := command -v uv >/dev/null
is_new_enough = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
  { echo "ragtrace needs Python 3.11 or later: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }

$(VENV)/.made-from-lock $(frameworks)/.made-from-lock: %/.made-from-lock:
	@$(is_new_enough)
	@echo "making $* from $(filter locks/%,$^) ..." >&2
	@if $(has_uv); then \
	  uv venv --quiet --clear --python $(PYTHON) $* && \
	  uv pip sync --quiet --python $*/bin/python --require-hashes $(filter locks/%,$^); \
	else \
	  $(PYTHON) -m venv --clear $* && \
	  $*/bin/python -m pip install --quiet --no-deps --require-hashes --requirement $(filter locks/%,$^); \
	fi
	@touch $@

# The demo's environment lacks packages that others say they require, so nothing is resolved here: the lock is all. What builds the
# project is put aside, and goes when it is built. Bytecode is written as modules are imported: pip's would be of all.
build := $(of_demo)/build
$(of_demo)/.project-installed: locks/demo.txt locks/build.txt pyproject.toml
	@$(is_new_enough)
	@echo "making $(of_demo) from locks/demo.txt ..." >&2
	@if $(has_uv); then \
	  uv venv --quiet --clear --python $(PYTHON) $(of_demo) && \
	  uv pip sync --quiet --python $(of_demo)/bin/python --require-hashes locks/demo.txt && \
	  uv pip install --quiet --python $(of_demo)/bin/python --target $(build) --require-hashes --requirement locks/build.txt && \
	  PYTHONPATH=$(abspath $(build)) uv pip install --quiet --python $(of_demo)/bin/python --no-deps --no-build-isolation --editable .; \
	else \
	  $(PYTHON) -m venv --clear $(of_demo) && \
	  $(in_demo) --no-deps --no-compile --require-hashes --requirement locks/demo.txt && \
	  $(in_demo) --no-compile --target $(build) --require-hashes --requirement locks/build.txt && \
	  PYTHONPATH=$(abspath $(build)) $(in_demo) --no-deps --no-build-isolation --editable .; \
	fi
	@rm -rf $(build)
	@touch $@

in_demo = $(of_demo)/bin/python -m pip install --quiet --disable-pip-version-check

$(VENV)/.project-installed $(frameworks)/.project-installed: %/.project-installed: %/.made-from-lock pyproject.toml
	@if $(has_uv); then \
	  uv pip install --quiet --python $*/bin/python --no-deps --no-build-isolation --editable .; \
	else \
	  { $*/bin/python -m pip --version || $*/bin/python -m ensurepip; } >/dev/null 2>&1; \
	  $*/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .; \
	fi
	@touch $@
