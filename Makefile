# Everything a newcomer needs is here: `make test` and `make demo` set up what they use, once.
# Needed beforehand: git, make, a C compiler, Python 3.11 or newer, and the package registries.

VENV := .venv
BIN := $(VENV)/bin
PYTHON_BIN := $(BIN)/python
UV_PIP := $(BIN)/uv pip

# Which Python makes the environment; override with `make test PYTHON=/path/to/python`.
PYTHON ?= $(shell for candidate in python3 python3.14 python3.13 python3.12 python3.11; do \
	if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$candidate; break; fi; done)

# Simulation: how many seeds, and the first.
SEEDS ?= 1000
START ?= 0

# More arguments for pytest, such as ARGS="-k rig" or ARGS=--slow.
ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export UV_PYTHON_DOWNLOADS := never

.DEFAULT_GOAL := help
.PHONY: help setup rig test demo lint format sim lock clean
.DELETE_ON_ERROR:

help: ## Show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.project ## Make .venv with everything in requirements.lock, and the project in it

rig: setup ## Build the control plane that tests and demo run (once; some minutes the first time)
	@$(PYTHON_BIN) -m tests.rig build

test: lint rig ## Lint, then run all tests (ARGS=… goes to pytest, ARGS=--slow adds the long ones)
	$(PYTHON_BIN) -m pytest $(ARGS)

demo: rig ## Play the hospital story on a real control plane
	@$(PYTHON_BIN) -m tests.demo

lint: setup ## Format check, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Format the code and apply the safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

sim: setup ## Simulate stories: SEEDS=1000 seeds beginning with START=0
	$(PYTHON_BIN) -m tests.sim --seeds $(SEEDS) --start $(START)

lock: $(VENV)/.uv ## Resolve the dependencies anew into requirements.lock
	$(UV_PIP) compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--group pyproject.toml:test --group pyproject.toml:lint --group pyproject.toml:build \
		--group pyproject.toml:plot pyproject.toml -o requirements.lock

clean: ## Remove .venv and all caches in the tree (built rigs stay in the user's cache)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each step leaves a stamp, newer than the lock file it followed: a second run does nothing twice.

$(VENV)/.made:
	@if [ -z "$(PYTHON)" ]; then \
		echo "No Python 3.11 or newer found; install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; fi
	@echo "setup: environment in $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { \
		echo "Python's venv module failed; on Debian and Ubuntu install the package python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.uv: .ci/uv.lock | $(VENV)/.made
	@echo "setup: uv"
	@$(PYTHON_BIN) -m pip install --quiet --require-hashes -r .ci/uv.lock
	@touch $@

$(VENV)/.locked: requirements.lock $(VENV)/.uv
	@echo "setup: dependencies, some 70 packages"
	@$(UV_PIP) sync --quiet --python $(PYTHON_BIN) --require-hashes requirements.lock
	@touch $@

$(VENV)/.project: pyproject.toml $(VENV)/.locked
	@echo "setup: cohort-extender itself, editable"
	@$(UV_PIP) install --quiet --python $(PYTHON_BIN) --no-deps --no-build-isolation --editable .
	@touch $@
