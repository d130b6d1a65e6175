# Strom: every verb sets up what it needs. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RESULTS ?= bench-results
WORKERS ?= 4
SOURCES := $(shell find src benchmarks -name '*.py' -not -path '*/__pycache__/*')

.DEFAULT_GOAL := help
.PHONY: help setup demo check quick test torture bench figures peer sim campaign docs clean

help: ## Show these verbs
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@echo "==> Python environment in $(VENV) (once; one to three minutes)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Strom needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo "==> installing strom and what its tests need; PySpark alone is 400 MB"
	@set -o pipefail; $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -c constraints.txt -e '.[dev]' \
	  | { grep --line-buffered -oE '(Downloading .*[0-9][0-9]\.[0-9] MB|Building wheel|Installing collected).{0,60}' || true; }
	@$(BIN)/python -m strom.runtime.java.java_home
	@touch $(STAMP)

# Kernels are cached beside the source: compiled here, no server compiles while somebody waits.
$(VENV)/.kernels: $(STAMP) $(wildcard src/strom/kv/*.py src/strom/kv/*/*.py)
	@echo "==> compiling the kernels of primary-key tables (only what changed)"
	@$(BIN)/python -m strom.kv.kernels.compile
	@touch $(VENV)/.kernels

# A server, a Spark worker and a source of a stream are new processes that import hundreds of modules: where Python is
# told to keep no bytecode of its own (PYTHONDONTWRITEBYTECODE), each would compile them all again, 0.4 s of CPU.
$(VENV)/.bytecode: $(SOURCES) | $(STAMP)
	@$(BIN)/python -m compileall -q src benchmarks
	@touch $(VENV)/.bytecode

# The same holds for what pytest makes of test modules: 20 s of CPU in each of its processes, where it may not keep it.
KEEPING := PYTHONDONTWRITEBYTECODE=
$(VENV)/.collected: | $(STAMP)
	@echo "==> preparing the tests (once)"
	@ls -d tests/*/ tests/test_*.py | $(KEEPING) xargs -P 2 -n 7 $(BIN)/python -m pytest -q --collect-only -p no:cacheprovider >/dev/null || true
	@touch $(VENV)/.collected

setup: $(STAMP) $(VENV)/.kernels $(VENV)/.bytecode ## Make the environment in .venv with everything for developing
	@echo "ready: $(BIN)/strom --help"

# What a log table needs is installed first; the rest beside the first chapter (tools/demo.py).
demo: ## One story through everything, each answer checked: FAST=1
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Strom needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@$(PYTHON) tools/demo.py $(if $(FAST),--fast)

check: $(STAMP) ## Format, lint, types, layers (seconds)
	@$(BIN)/ruff format --check src tests benchmarks tools
	@$(BIN)/ruff check src tests benchmarks tools
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

# Four processes side by side, each with servers of its own, two of them with Spark: each waits for half of its time.
# Some tests (ARGS=…) run in one process.
test: $(STAMP) $(VENV)/.kernels $(VENV)/.bytecode $(if $(ARGS),,$(VENV)/.collected) ## Run all tests (the long campaigns apart)
	@$(KEEPING) $(BIN)/python -m pytest -m "not torture" $(or $(ARGS),-n $(WORKERS) --no-loadscope-reorder)

# What runs without Spark, without processes of its own and without long histories: for after every change.
QUICK := model record protocol runtime testing contracts log tablet metadata coordinator replication rpc client formats moving server kv test_tidy.py
quick: $(STAMP) $(VENV)/.kernels $(VENV)/.bytecode $(if $(ARGS),,$(VENV)/.collected) ## The inner loop: the core's tests, in about three minutes
	@$(KEEPING) $(BIN)/python -m pytest -q -m "not torture and not slow" $(or $(ARGS),-n $(WORKERS) --no-loadscope-reorder $(addprefix tests/,$(QUICK)))

torture: $(STAMP) $(VENV)/.kernels $(VENV)/.bytecode ## The long campaigns: kill -9, power loss, fuzzing (MINUTES=…)
	@STROM_TORTURE_MINUTES=$(or $(MINUTES),10) $(if $(SEEDS),STROM_SEEDS=$(SEEDS)) $(BIN)/python -m pytest -m torture --timeout=0 $(ARGS)

$(VENV)/.measuring: $(STAMP)
	@echo "==> installing what Strom is measured against"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@touch $(VENV)/.measuring

# Only these questions need Kafka and Fluss; without ONLY the full form fetches them when it comes to them.
$(VENV)/.brokers: $(VENV)/.measuring benchmarks/peer_jars.py
	@$(BIN)/python -m benchmarks.peer_jars
	@touch $(VENV)/.brokers

bench: $(VENV)/.measuring $(VENV)/.kernels $(VENV)/.bytecode $(if $(filter peers% cluster%,$(ONLY)),$(VENV)/.brokers) ## Measure: ONLY=log, STRICT=1 (falling short fails), QUICK=1
	@$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(STRICT),--strict) $(if $(QUICK),--quick) --results $(RESULTS)

figures: $(STAMP) ## Keep the newest run, draw what pages show (RUN=… QUICKTOO=1)
	@$(BIN)/python -m benchmarks.keep --results $(RESULTS) $(RUN) $(if $(QUICKTOO),--quick-too)
	@$(BIN)/python -m benchmarks.figures

sim: $(STAMP) ## Show a simulated history: SEED=7, CLUSTER=7; many: SEEDS=7..99
	@cd tests && ../$(BIN)/python -m $(if $(SEEDS),cluster_histories.campaign $(SEEDS),$(if $(CLUSTER),cluster_histories.history $(CLUSTER),simulation.history $(or $(SEED),0)))

campaign: $(STAMP) $(VENV)/.kernels $(VENV)/.bytecode ## Trouble at random for a real cluster: SEED=7 EVENTS=50
	@cd tests && ../$(BIN)/python -m campaign.campaign $(if $(SEED),--seed $(SEED)) --events $(or $(EVENTS),50)

peer: $(STAMP) $(VENV)/.kernels $(VENV)/.bytecode ## Run pyfluss's own tests (TABLETS=3, SERVERS=3 MOVING=1)
	@$(BIN)/python tools/peer_suite.py --tablets $(or $(TABLETS),1) $(if $(SERVERS),--servers $(SERVERS)) $(if $(MOVING),--moving) $(ARGS)

docs: $(STAMP) ## Write the references, then docs/ as a site in build/site
	@$(BIN)/python -m strom.cli.pages.references docs
	@$(BIN)/python tools/house_picture.py docs/pictures/house.svg
	@$(BIN)/python tools/site_pages.py

clean: ## Remove the environment, caches and results
	@rm -rf $(VENV) .venv-peer .venv-readers .venv-spark-iceberg build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache $(RESULTS) demo-data
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
