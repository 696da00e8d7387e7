# PYTHON    interpreter that makes the environment, 3.11 or newer
# WORKERS   processes the tests use
# PIP_FIND_LINKS  (environment) folders or pages with extra wheels, as pip reads it

PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LINKS := $(foreach place,$(PIP_FIND_LINKS),--find-links $(place))
PACKAGES := $(LINKS) -c constraints.txt -e '.[all]'

.PHONY: setup demo test test-all lint bench clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "clusterorch needs Python 3.11 or newer, and '$(PYTHON)' is not." >&2; \
	  echo "Name one that is: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv \
	  || echo "uv could not be installed; pip, which is slower, takes its place."
	@$(BIN)/uv pip install --python $(BIN)/python $(PACKAGES) \
	  || $(BIN)/python -m pip install $(PACKAGES)
	@$(BIN)/python -c 'import clusterorch, hypothesis, matplotlib, numba, pgmpy, pyagrum, scipy; \
	print("clusterorch", clusterorch.__version__, "is ready in $(VENV)")'
	@touch $@

demo: setup
	$(BIN)/clusterorch demo --out build/demo

test: setup lint
	$(BIN)/python -m pytest -n $(WORKERS)

# An empty -m takes the place of the default one, which leaves the long tests out.
test-all: setup lint
	$(BIN)/python -m pytest -n $(WORKERS) -m ""

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: setup
	$(BIN)/python -m clusterorch.bench --out bench.json

# The environment stays: remove $(VENV) by hand to start from nothing.
clean:
	rm -rf build dist bench.json .pytest_cache .hypothesis .ruff_cache
	find clusterorch tests -name __pycache__ -type d -prune -exec rm -rf {} +
