# Every target makes the virtual environment it needs, from its lock: with uv where it is installed, else with the
# interpreter's own venv and pip.
#   make demo            the whole job on human-labeled traffic; no key, no account, no container
#   make test            all tests; those with a real back end are skipped where it was never built
#   make help            the rest
VENV ?= .venv
PYTHON ?= python3
ARGS ?=

# The second environment: too much for every developer, and nothing of it may reach the first one's lock.
second := .venv-frameworks
# The third: what looks at dependencies, and must not be among them.
third := .venv-audit
# The fourth: Phoenix's server, with its own opinion on half of what there is.
fourth := .venv-phoenix
# The fifth: what builds the docs site.
fifth := .venv-docs
# The sixth: what `ragtrace demo` imports, and nothing else.
sixth := .venv-demo
# The seventh: what makes the pictures in the docs.
seventh := .venv-pictures
environments := $(VENV) $(second) $(third) $(fourth) $(fifth) $(seventh)
bin := $(VENV)/bin
paths := ragtrace collector tests examples

# Two for each core: tests of a collector wait for it half of their time.
workers = $(shell $(bin)/python -c 'import os; print(2 * os.cpu_count())')
# pytest rewrites every test module; without bytecode, again in each run.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: train-lexical help demo nightly test test-fast check format venv lock docs backends frameworks phoenix stories recordings soak soak-day fuzz sbom audit \
  test-cluster test-faults test-stats mutants bench bench-check bench-page pictures dashboards

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

demo: $(sixth)/.project-installed ## see a wrong claim beside the chunk that contradicts it, in a small environment (ARGS="--no-open")
	@$(sixth)/bin/ragtrace demo $(ARGS)

# Faults, floods and simulations: an hour and more, before an issue is closed and not with each push.
at_night := tests/faults tests/fuzz tests/soak tests/statistics

nightly: venv ## the tests that take an hour: faults, soak, cluster, fuzz, statistics, mutants, benchmarks
	$(bin)/python -m pytest -n $(workers) $(at_night)
	$(MAKE) test-faults test-stats test-cluster soak fuzz mutants bench-check

test: venv $(if $(RAGTRACE_REQUIRE_BACKENDS),backends frameworks phoenix stories) ## run all tests, two for each core at a time (ARGS="-k carrier")
	$(bin)/python -m pytest -n $(workers) $(addprefix --ignore=,$(at_night)) $(ARGS)

test-fast: venv ## run the tests that start no process (under two minutes)
	$(bin)/python -m pytest -m "not slow" -n $(workers) $(ARGS)

check: venv ## formatting, lint, types, import direction; says how large the project is
	$(bin)/ruff format --check $(paths)
	$(bin)/ruff check $(paths)
	$(bin)/mypy
	$(bin)/lint-imports
	@$(bin)/python -m tests.architecture.totals --brief

docs: $(fifth)/.made-from-lock ## build the docs site into site/; a broken link or anchor fails (ARGS=serve)
	NO_MKDOCS_2_WARNING=1 $(fifth)/bin/mkdocs $(or $(ARGS),build)

pictures: $(seventh)/.project-installed ## take the pictures of the docs again, from the demo (needs Chromium)
	$(seventh)/bin/python -m tests.pictures $(ARGS)

train-lexical: venv ## train the judge without a key again, from labeled answers (ARGS="qa.jsonl summary.jsonl")
	$(bin)/python -m tests.train_lexical $(ARGS)

dashboards: venv ## write the dashboards of examples/deploy/compose again, from the tables of metrics
	$(bin)/python -m tests.dashboards

format: venv ## rewrite the code in the project's format
	$(bin)/ruff format $(paths)
	$(bin)/ruff check --fix $(paths)

soak: venv ## load a real collector with everything at once: flat, and all accounted for (ARGS="--minutes 60")
	$(bin)/python -m tests.soak $(ARGS)

soak-day: venv ## send a real collector a day of 50 calls a second in an hour: flat, and its cost a call constant
	$(bin)/python -m tests.soak.day $(ARGS)

test-cluster: venv ## six collectors over one PostgreSQL, killed, paused, cut off: nothing is lost or doubled (ARGS="--minutes 3")
	$(bin)/python -m tests.soak.cluster $(ARGS)

test-faults: venv ## kill, fill, break and lock what a collector depends on: a table of what was lost and doubled
	$(bin)/python -m tests.faults $(ARGS)

test-stats: venv ## simulate thousands of weeks: do the intervals hold the truth as often as they say? (two minutes)
	$(bin)/python -m tests.statistics
	$(bin)/python -m pytest -n $(workers) tests/statistics $(ARGS)

mutants: venv ## break each promise on purpose: a table of the tests that notice (ARGS="--quick", "--only durability")
	$(bin)/python -m tests.mutants $(ARGS)

bench: venv ## measure ratios to named alternatives, and add them to the history (quiet machine; ARGS="--only startup", "--peers-python PATH")
	$(bin)/python -m tests.benchmarks $(ARGS)
	$(bin)/python -m tests.benchmarks.page

bench-check: venv ## measure them, and fail on a ratio that is worse than its history's band; records nothing
	$(bin)/python -m tests.benchmarks --check $(ARGS)

bench-page: venv ## write the plots and tables of docs/performance.md again, from the history
	$(bin)/python -m tests.benchmarks.page

fuzz: venv ## fire odd requests at a real collector's receivers for ten minutes (ARGS="--minutes 1")
	$(bin)/python -m tests.fuzz $(ARGS)

image_lock := collector/requirements.lock

sbom: $(third)/.made-from-lock ## write what the container image holds to sbom.json (CycloneDX)
	$(third)/bin/cyclonedx-py requirements $(image_lock) --pyproject pyproject.toml --output-reproducible --output-file sbom.json

audit: $(third)/.made-from-lock ## ask PyPI whether any of that has a known hole; fails where it cannot be asked
	$(third)/bin/pip-audit --strict --disable-pip --require-hashes --requirement $(image_lock)

backends: venv ## get the real Jaeger, Tempo, Helm, Kafka, OpenTelemetry Collector and language model that tests run, into a cache (Go, Maven, 20 minutes, once)
	@PATH="$(abspath $(bin)):$$PATH" tests/backends/build.sh smollm2
	@tests/backends/build.sh kafka
	@tests/backends/build.sh jaeger
	@tests/backends/build.sh tempo
	@tests/backends/build.sh helm
	@tests/backends/build.sh otelcol

frameworks: $(second)/.project-installed ## make the second environment: frameworks, and others' instrumentations

phoenix: $(fourth)/.made-from-lock ## make the environment of the real Phoenix that tests run

stories: venv ## make the environments of the readers in tests/stories, from the built wheel, in a cache
	$(bin)/python -m tests.stories

recordings: venv frameworks ## record the traces that the extractor is tested on again, from the real libraries
	$(bin)/python -m tests.recordings $(ARGS)

lock: venv ## resolve the dependencies of pyproject.toml again (needs uv)
	@command -v uv >/dev/null || { echo "make lock needs uv: https://docs.astral.sh/uv/" >&2; exit 1; }
	$(call resolve,requirements.lock,core with its extras and development tools,pyproject.toml $(of_development) --group dev)
	$(call resolve,requirements-frameworks.lock,core and the group 'frameworks',pyproject.toml --group frameworks)
	$(call resolve,$(image_lock),what the container image holds,pyproject.toml $(of_image) --constraint requirements.lock)
	$(call resolve,requirements-demo.lock,what the demo imports,pyproject.toml $(of_demo) --constraint requirements.lock)
	$(call resolve,requirements-pictures.lock,what makes the pictures,pyproject.toml --extra collector --group pictures --constraint requirements.lock)
	echo hatchling | $(call resolve,collector/build.lock,what builds the image's wheel,- --constraint requirements.lock)
	printf 'cyclonedx-bom\npip-audit\n' | $(call resolve,requirements-audit.lock,what looks at dependencies,-)
	echo mkdocs-material | $(call resolve,requirements-docs.lock,what builds the docs site,-)
	echo arize-phoenix | $(call resolve,requirements-phoenix.lock,the server of Phoenix,- --no-strip-extras)

of_image := --extra azure --extra collector --extra encryption --extra judge-anthropic --extra kafka --extra postgres
# All but the instrumentors of others' libraries: those are in the second environment, with the libraries.
of_development := $(addprefix --extra ,azure calibrate collector encryption examples judge-anthropic kafka local nli parquet postgres privacy zstd)
# Packages that others require, and that the demo can do without: tests/acceptance/test_demo.py runs it without them.
of_demo := --extra collector $(addprefix --no-emit-package ,aiohappyeyeballs aiohttp aiosignal attrs frozenlist multidict propcache yarl \
  charset-normalizer httpx2-jsfetch markdown-it-py mdurl \
  opentelemetry-exporter-http-transport opentelemetry-exporter-otlp opentelemetry-exporter-otlp-proto-http pygments requests urllib3)

define resolve # lock, what is in it, how uv is told
	{ echo "# Made by 'make lock' from pyproject.toml: $(2), for Python 3.11 and later."; \
	  uv pip compile $(3) --universal --python-version 3.11 --upgrade --quiet \
	    --generate-hashes --no-annotate --no-header --no-emit-index-url --no-emit-find-links; } > $(1).new
	mv $(1).new $(1)
endef

venv: $(VENV)/.project-installed ## make the virtual environment, again if the lock changed

$(VENV)/.made-from-lock: requirements.lock
$(second)/.made-from-lock: requirements-frameworks.lock
$(third)/.made-from-lock: requirements-audit.lock
$(fourth)/.made-from-lock: requirements-phoenix.lock
$(fifth)/.made-from-lock: requirements-docs.lock
$(seventh)/.made-from-lock: requirements-pictures.lock

$(environments:=/.made-from-lock): %/.made-from-lock:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ragtrace needs Python 3.11 or later: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "making $* from $(filter %.lock,$^) ..." >&2
	@if command -v uv >/dev/null; then \
	  uv venv --quiet --clear --python $(PYTHON) $* && \
	  uv pip sync --quiet --python $*/bin/python --require-hashes $(filter %.lock,$^); \
	else \
	  $(PYTHON) -m venv --clear $* && \
	  $*/bin/python -m pip install --quiet --no-deps --require-hashes --requirement $(filter %.lock,$^); \
	fi
	@touch $@

# The demo's environment lacks packages that others say they require, so nothing is resolved here: the lock is all. What builds the
# project is put aside, and goes when it is built. Bytecode is written as modules are imported: pip's would be of all.
build := $(sixth)/build
$(sixth)/.project-installed: requirements-demo.lock collector/build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ragtrace needs Python 3.11 or later: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo "making $(sixth) from requirements-demo.lock ..." >&2
	@if command -v uv >/dev/null; then \
	  uv venv --quiet --clear --python $(PYTHON) $(sixth) && \
	  uv pip sync --quiet --python $(sixth)/bin/python --require-hashes requirements-demo.lock && \
	  uv pip install --quiet --python $(sixth)/bin/python --target $(build) --require-hashes --requirement collector/build.lock && \
	  PYTHONPATH=$(abspath $(build)) uv pip install --quiet --python $(sixth)/bin/python --no-deps --no-build-isolation --editable .; \
	else \
	  $(PYTHON) -m venv --clear $(sixth) && \
	  $(in_demo) --no-deps --no-compile --require-hashes --requirement requirements-demo.lock && \
	  $(in_demo) --no-compile --target $(build) --require-hashes --requirement collector/build.lock && \
	  PYTHONPATH=$(abspath $(build)) $(in_demo) --no-deps --no-build-isolation --editable .; \
	fi
	@rm -rf $(build)
	@touch $@

in_demo = $(sixth)/bin/python -m pip install --quiet --disable-pip-version-check

# An environment that uv made has no pip, and uv need not be there any more.
$(environments:=/.project-installed): %/.project-installed: %/.made-from-lock pyproject.toml
	@if command -v uv >/dev/null; then \
	  uv pip install --quiet --python $*/bin/python --no-deps --no-build-isolation --editable .; \
	else \
	  { $*/bin/python -m pip --version || $*/bin/python -m ensurepip; } >/dev/null 2>&1; \
	  $*/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .; \
	fi
	@touch $@
