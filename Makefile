# `make` alone lists the targets. The first one that needs Python creates .venv; later ones install nothing
# until pyproject.toml or constraints.txt changes.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := distributed,flows,lint,onnx,search,test
DOCS_STAMP := $(VENV)/.installed-docs
BENCH_STAMP := $(VENV)/.installed-bench
BENCH := build/bench
FAULTS ?= small
SPHINX_ARGS ?=
# Candidates, best first: the first that runs and is new enough makes the environment. PYTHON=… overrides.
PYTHON ?= python3.11 python3 python3.12 python3.13 python3.14 python
PYTEST_ARGS ?=

# --no-compile below saves a third of the install; modules are compiled when first imported, which must then be kept.
unexport PYTHONDONTWRITEBYTECODE
# Threads that wait by spinning make small steps many times slower as soon as another process has a core.
export OMP_WAIT_POLICY ?= passive

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint format faults bench docs wheel constraints install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP) ## fit, score and sample a small example
	@$(BIN)/python -m experiments demo

test: $(STAMP) ## run the tests on all cores (PYTEST_ARGS=--cov shows coverage, PYTEST_ARGS='-m "not slow"' the quick ones)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

faults: $(STAMP) ## bad inputs, damaged files, kills, full disks, hostile requests (FAULTS=large for 50,000 and 1,000 kills)
	@mkdir -p build
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.faults run --budget $(FAULTS) --out build/faults.jsonl

lint: $(STAMP) ## ruff (rules and format), mypy, and imports that point one way
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --no-cache

format: $(STAMP) ## let ruff rewrite the sources
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

bench: $(BENCH_STAMP) ## time qaffde beside its bare operations and other kernel density estimates
	@$(BIN)/python -m benchmarks
	@mkdir -p $(BENCH) && cp docs/cost.md $(BENCH)
	@$(BIN)/python -m benchmarks.kernel_peers run --limit 10 --out $(BENCH)/kernel_peers.jsonl
	@$(BIN)/python -m benchmarks.kernel_peers constant --rows 10000 1000000 --out $(BENCH)/kernel_peers.jsonl
	@$(BIN)/python -m benchmarks.kernel_peers report --results $(BENCH)/kernel_peers.jsonl --page $(BENCH)/cost.md
	@$(BIN)/python -m benchmarks.growth run --out $(BENCH)/growth.jsonl
	@$(BIN)/python -m benchmarks.growth report --results $(BENCH)/growth.jsonl --page $(BENCH)/cost.md

docs: $(DOCS_STAMP) ## run every example in README.md and docs/*.md, and build the pages in docs/_build/html
	@$(BIN)/python -m pytest --doctest-glob='*.md' $(wildcard README.md docs/*.md)
	@OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -W --keep-going $(SPHINX_ARGS) docs docs/_build/html
	@echo "pages: docs/_build/html/index.html"

wheel: $(STAMP) ## build the wheel, check it, and use it in an empty environment
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[release]'
	@PYTHON=$(BIN)/python .ci/wheel

install: $(STAMP) ## create .venv without running anything

constraints: | $(BIN)/python ## resolve the newest versions and pin them in constraints.txt
	@$(BIN)/python .ci/constraints.py

clean: ## remove caches and build products (.venv stays)
	@rm -rf docs/_build docs/auto_examples docs/api/backreferences docs/api/generated
	@rm -rf build dist htmlcov .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

$(BIN)/python:
	@for python in $(PYTHON); do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Creating $(VENV) with $$python"; exec $$python -m venv $(VENV); \
	  fi; \
	done; \
	echo "Python 3.11 or newer is needed; none of these is: $(PYTHON)." >&2; \
	echo "Install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1

# hatchling comes from constraints.txt too, hence no isolated build.
$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing qaffde and what it needs into $(VENV) (once, about a minute)"
	@$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check -c constraints.txt hatchling editables
	@$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[$(EXTRAS)]'
	@touch $@

$(DOCS_STAMP): $(STAMP)
	@echo "Installing what the pages need into $(VENV) (once)"
	@$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[$(EXTRAS),docs]'
	@touch $@

# Other kernel density estimates, one by one: one that does not install is named in the table.
$(BENCH_STAMP): $(STAMP)
	@echo "Installing what is compared into $(VENV) (once)"
	@for peer in KDEpy mlpack pykeops pyfigtree; do \
	  $(BIN)/python -m pip install -q --no-compile --disable-pip-version-check -c constraints.txt $$peer || echo "$$peer did not install" >&2; \
	done
	@touch $@
