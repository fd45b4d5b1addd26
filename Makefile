# Everything a newcomer, a developer and CI run. Each target sets itself up first.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --require-hashes --progress-bar on

.PHONY: run setup setup-dev test check fix docs bench trust lock clean

run: setup  ## set up, start the demo workspace, and print how to call it
	@$(BIN)/terraflow demo --guide

setup: $(VENV)/.run  ## install what the plane needs, from the lock file
setup-dev: $(VENV)/.dev

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "TerraFlow needs Python 3.11: install it, or name one with 'make PYTHON=/path/to/python3.11 …'"; exit 2; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements/run.lock pyproject.toml | $(VENV)/bin/python
	@echo "installing TerraFlow's dependencies (pinned, with hashes)"
	@$(PIP) -r requirements/run.lock
	@$(BIN)/python -m pip --disable-pip-version-check install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.lock $(VENV)/.run
	@echo "installing what checks and tests need (pinned, with hashes)"
	@$(PIP) -r requirements/dev.lock
	@touch $@

test: setup-dev  ## all tests
	@$(BIN)/python -m pytest

check: setup-dev  ## format, lint, types, imports, generated pages, reason codes
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tools.fresh
	@$(BIN)/python -m tools.reasons_check

fix: setup-dev  ## format, mend what lint can mend, write the generated pages
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .
	@$(BIN)/python -m tools.fresh --write

lock: setup-dev  ## make the lock files anew from requirements/*.in
	@$(BIN)/python -m pip install -q uv==0.13.9
	@for f in run dev; do $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate requirements/$$f.in -o requirements/$$f.lock; done

clean:
	rm -rf $(VENV) build dist
