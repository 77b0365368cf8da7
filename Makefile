# Everything from a fresh clone: Python 3.11 or newer, node and npm must be there, the rest is fetched once.
# Variables: PROMPT, MAX_TOKENS, MODEL, DEVICE, PORT, FUZZ_SECONDS; PYTHON chooses the interpreter.

PYTHON ?= python3
MODEL ?= smollm2
DEVICE ?= browser
PROMPT ?= Gravity is
MAX_TOKENS ?= 40
PORT ?= 8000
FUZZ_SECONDS ?= 60
export PROMPT

VENV := .venv
BIN := $(VENV)/bin
PACKAGES := $(VENV)/.packages
NPM := host/node_modules/.package-lock.json

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup gemma3 run serve check test lint types unit e2e format fuzz clean

help:
	@echo 'make run      set up, then generate text with the default model in headless Chromium'
	@echo 'make test     set up, then lint, types, unit, kernel and end-to-end tests'
	@echo 'make setup    virtual environment, packages, Pyodide, Chromium, the default model; fetched once'
	@echo 'make gemma3   Gemma 3 270M, which tests need: 253 MB under the Gemma Terms of Use; fetched once'
	@echo 'make serve    the page, at 127.0.0.1:$$PORT'
	@echo 'make check    hold a device (DEVICE=browser or native) to the numpy oracle'
	@echo 'make lint, types, unit, e2e, format    parts of the above'
	@echo 'make fuzz     fuzz the parser for $$FUZZ_SECONDS seconds'
	@echo 'make clean    remove what setup and tests made here (models stay in the cache)'

setup: $(PACKAGES) $(NPM)
	@$(BIN)/python -m pagelm.host.prepare
	@model=$$($(BIN)/python -m pagelm.host.models) && echo "Model: $$model"

# A second real model, of another architecture, that only tests need.
gemma3: $(PACKAGES)
	@model=$$($(BIN)/python -m pagelm.host.models gemma3) && echo "Model: $$model"

$(PACKAGES): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'pagelm: Python 3.11 or newer is needed; name it: make PYTHON=python3.12 …' >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo 'pagelm: no virtual environment could be made (Debian: apt-get install python3-venv)' >&2; exit 2; }
	@echo 'installing Python packages …'
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]'
	@touch $@

$(NPM): host/package.json host/package-lock.json
	@command -v npm >/dev/null \
	  || { echo 'pagelm: npm, which brings Pyodide, was not found (Debian: apt-get install nodejs npm)' >&2; exit 2; }
	@echo 'installing Pyodide …'
	@npm ci --prefix host --silent --no-progress
	@touch $@

run: setup
	@$(BIN)/pagelm run $(MODEL) --device $(DEVICE) --prompt "$$PROMPT" --max-tokens $(MAX_TOKENS)

serve: setup
	@$(BIN)/pagelm serve $(MODEL) --port $(PORT)

check: setup
	@$(BIN)/pagelm check $(MODEL) --device $(DEVICE)

test: setup gemma3 lint types unit e2e

lint: $(PACKAGES)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(PACKAGES)
	$(BIN)/mypy

# Two runs: Playwright's own event loop would get into the way of the unit tests'.
unit: $(PACKAGES)
	$(BIN)/python -m pytest -q tests

e2e: setup gemma3
	$(BIN)/python -m pytest -q e2e

format: $(PACKAGES)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

fuzz: $(PACKAGES)
	@mkdir -p build/fuzz
	$(BIN)/python tests/fuzz_gguf.py -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=512 \
	  -dict=tests/fuzz_gguf.dict -artifact_prefix=build/fuzz/ build/fuzz tests/fuzz_seeds tests/corpus

clean:
	rm -rf $(VENV) host/node_modules build dist *.egg-info test-results
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
