PYTHON ?= python3
UV ?= uv
PEERS ?= build/peers
JOBS ?= 3 # tests wait about a third of their time: one more than the cores of the smallest machine
VENV ?= .venv
BIN := $(VENV)/bin
DEMO := $(if $(wildcard $(VENV)/.stamp),$(VENV),.venv-demo)# small, unless the development set is there already
CRASHED := claude-code codex opencode gemini-cli langgraph openai-agents pydantic-ai vercel-ai smolagents
SLICE := claude-code codex langgraph openai-agents # real agents that `make test` runs behind the gate
KERNEL := tests/test_guarantees.py $(addprefix tests/, constraints guards landing ledger loop outcome run tools)
DECK := deck/index.html deck/package-lock.json deck/vite.config.ts $(shell find deck/src deck/public -type f)
PIP := $(BIN)/python -m pip --disable-pip-version-check
COMPILE := $(UV) pip compile --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-header --no-annotate

unexport PYTHONDONTWRITEBYTECODE # the tests start hundreds of processes: without bytecode each compiles the package again

.DEFAULT_GOAL := help
.PHONY: help venv demo deck deck-build test test-all lint format bench bench-peers crash-test probes campaign docs constraints release-check clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

venv: $(VENV)/.stamp ## create .venv with the pinned development set and glidepath itself

$(VENV)/.stamp: pyproject.toml requirements/dev.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --require-hashes -r requirements/dev.txt
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

demo: $(DEMO)/.stamp ## an agent lands behind the gate, a budget holds, a loop is noticed: no key, no account
	@$(DEMO)/bin/glidepath demo
	@echo "Here glidepath is $(DEMO)/bin/glidepath."

.venv-demo/.stamp: pyproject.toml requirements/demo.txt requirements/build.txt
	@$(PYTHON) scripts/install_demo.py .venv-demo

deck: $(if $(wildcard $(BIN)/glidepath),,venv) deck-build ## the flight deck with a small demo fleet: no key, no account (needs Node 20.19 or later)
	@$(BIN)/glidepath deck --demo

deck-build: src/glidepath/apps/server/static/index.html ## build the flight deck's page into src/glidepath/apps/server/static

src/glidepath/apps/server/static/index.html: $(DECK)
	@command -v npm >/dev/null || { echo "npm is missing: install Node.js 20.19 or later, then run make deck again" >&2; exit 1; }
	npm --prefix deck ci --no-audit --no-fund --loglevel=error
	npm --prefix deck run build --silent

test: venv lint ## lint, then the whole suite under coverage, then the coverage bars
	@sh scripts/install_test_programs.sh
	@$(BIN)/python bench/gate/agents.py install $(SLICE) >/dev/null || echo "not every agent could be installed: tests are skipped"
	@if command -v npm >/dev/null 2>&1; then $(MAKE) --no-print-directory deck-build || echo "the flight deck could not be built: its tests are skipped"; fi
	@mkdir -p build
	@$(BIN)/python -m compileall -q src
	$(BIN)/python scripts/run_tests.py -n $(JOBS) -m "not slow" --cov --cov-report=json:build/coverage.json
	$(BIN)/python scripts/check_coverage.py build/coverage.json

test-all: ## the same on every CPython from 3.11 to 3.14 that is installed
	@for python in python3.11 python3.12 python3.13 python3.14; do \
		$$python --version >/dev/null 2>&1 || { echo "$$python is not installed: not tried"; continue; }; \
		echo "== $$($$python --version)"; \
		$(MAKE) test PYTHON=$$python VENV=build/venv-$$python || exit 1; \
	done

quick: venv ## the kernel's tests, in half a minute
	$(BIN)/python -m pytest -n 2 -q -m "not slow and not process" $(KERNEL)

lint: venv ## ruff, mypy --strict, import contracts, plain English
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_words.py

format: venv ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: venv ## CPU time against a hand-written loop
	@mkdir -p build
	$(BIN)/python bench/run.py --out build/bench.json
	$(BIN)/python bench/wide.py --out build/bench-wide.json

crash-test: venv ## twenty bad days for ten agents, bare and behind the gate: docs/crash-test.md (npm, an index, an hour)
	@$(BIN)/python bench/gate/agents.py install $(CRASHED) >/dev/null || echo "not every agent could be installed: its cells are left out"
	$(BIN)/python bench/crash/run.py

probes: venv ## what limits do here and in other frameworks; each in its own environment (needs a package index)
	$(BIN)/python bench/probes/run.py
	$(BIN)/python -m pytest -q -m slow tests/docs/test_side_by_side.py tests/docs/test_jobs.py

bench-peers: venv ## the same for other frameworks, each in its own environment (network, half an hour)
	$(BIN)/python bench/peers/run.py --cache $(PEERS) --out bench/results/peers.json
	$(BIN)/python bench/matrix/run.py --cache $(PEERS) --out bench/results/matrix.json
	$(BIN)/python bench/report.py

campaign: venv ## the long property and crash campaigns, BFCL, AgentDojo, all real agents (needs a package index and npm)
	@$(BIN)/python bench/gate/agents.py install || echo "not every agent could be installed: tests are skipped"
	GLIDEPATH_CAMPAIGN=1 $(BIN)/python -m pytest -n $(JOBS) -m slow

release-check: venv ## build wheel and sdist, try both on 3.11 to 3.13 with nothing else installed, check licenses, write an SBOM
	@$(BIN)/python scripts/release_check.py

docs: .venv-docs/.stamp ## build the documentation site into build/site; open build/site/index.html
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs --quiet build --clean
	@echo "build/site/index.html"

.venv-docs/.stamp: requirements/docs.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements/docs.txt
	@touch $@

constraints: ## pin everything again (needs uv)
	$(COMPILE) pyproject.toml --extra all --extra dev -o requirements/constraints.txt
	$(COMPILE) --no-strip-extras pyproject.toml --extra dev -c requirements/constraints.txt -o requirements/dev.txt
	$(COMPILE) --no-strip-extras pyproject.toml --extra all -c requirements/constraints.txt -o requirements/image.txt
	$(COMPILE) --no-strip-extras pyproject.toml --extra demo -c requirements/constraints.txt -o requirements/demo.txt
	$(COMPILE) --no-strip-extras --group docs -o requirements/docs.txt
	echo hatchling | $(COMPILE) - -c requirements/constraints.txt -o requirements/build.txt

clean: ## remove everything that is made
	rm -rf .venv .venv-demo .venv-docs build dist deck/node_modules src/glidepath/apps/server/static .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
