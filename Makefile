# Everything sets itself up: a virtual environment in .venv, the packages in it, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := $(VENV)/.peers

.PHONY: demo test check fix docs bench peers chaos clean

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Windlass needs Python 3.11 or newer; this is $$($(PYTHON) --version). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "No virtual environment could be made; on Debian: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[dev]'
	@touch $@

demo: $(READY)  ## a small story on SQLite: progress, a retry, a killed worker
	@$(BIN)/python examples/demo.py

# The slowest of what shows that the others can fail is run with the long ones.
LONG = tests/crash/test_planted.py tests/bench/test_run.py

test: $(READY)  ## every test but the long ones, on up to four cores
	@$(BIN)/python -m pytest -q --numprocesses=auto --maxprocesses=4 --dist=loadfile $(LONG:%=--ignore=%)

check: $(READY)  ## style, types, layers
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

fix: $(READY)  ## what a machine can put right
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .

docs: $(READY)  ## the reference, from the code
	@$(BIN)/python docs/generate.py

bench: $(READY)  ## speed, as ratios to the bare engine
	@$(BIN)/python -m benchmarks.store_sqlite
	@$(BIN)/python -m benchmarks.wakeup
	@$(BIN)/windlass bench --quick
	@$(BIN)/python -m benchmarks.peers --quick

$(PEERS): $(READY)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[peers]'
	@touch $@

peers: $(PEERS)  ## speed beside other queues on PostgreSQL and Redis: an hour, or ARGS=--quick
	@$(BIN)/python -m benchmarks.peers $(ARGS)

chaos: $(READY)  ## the long runs: the model, the power cuts, a million simulated jobs, the storms
	@WINDLASS_EFFORT=50 $(BIN)/python -m pytest -q tests/stores/test_model.py tests/stores/sqlite --timeout=7200
	@WINDLASS_EFFORT=5 $(BIN)/python -m pytest -q tests/stores/test_fairness.py --timeout=1800
	@$(BIN)/python -m pytest -q $(LONG)
	@$(BIN)/python -m benchmarks.chaos.simulation --jobs 1000000
	@$(BIN)/python -m benchmarks.chaos --asked

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
