# Everything sets itself up: `make demo` and `make test` need only Python 3.11 and make.
# PIP_CONSTRAINT also reaches the build environments of packages, which `pip install -c` does not.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest
EMPTY := .venv-wheel
SETUP := pyproject.toml constraints.txt
TESTS ?=

.PHONY: help demo test test-oldest lint format bench wheel clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

$(VENV)/user: $(SETUP)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[cli,estimators]'
	@touch $@

$(VENV)/dev: $(SETUP)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

demo: $(VENV)/user  ## compare training methods on the two bundled data sets, and write a report of each
	$(BIN)/taskloss compare

test: $(VENV)/dev  ## run the whole test suite (TESTS="paths" for a part of it)
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal $(TESTS)

# numba keeps compiled code beside the sources; another version of numba would throw it away, so it gets a folder of its own.
$(OLDEST)/test: export PIP_CONSTRAINT := $(CURDIR)/constraints-oldest.txt
$(OLDEST)/test: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/pip install --quiet --editable '.[test]'
	@touch $@

test-oldest: export NUMBA_CACHE_DIR := $(CURDIR)/$(OLDEST)/numba
test-oldest: $(OLDEST)/test  ## run the tests with the oldest supported versions of the dependencies
	$(OLDEST)/bin/python -m pytest --numprocesses 2 --dist worksteal $(TESTS)

lint: $(VENV)/dev  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev  ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# qpth asks for numpy below 2 but works with 2, so it is installed without its requirements.
$(VENV)/peers: $(VENV)/dev
	$(BIN)/pip install --quiet --editable '.[dev,peers]'
	$(BIN)/pip install --quiet --no-deps qpth
	@touch $@

bench: $(VENV)/peers  ## measure speed and memory, as ratios side by side in one run
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.lp
	$(BIN)/python -m benchmarks.lp_losses_speed
	$(BIN)/python -m benchmarks.scaling

# The check runs isolated (-I) and from another folder, so that it sees the installed package and not the sources.
wheel:  ## build the wheel, install it into an empty environment and try what is in it
	rm -rf dist $(EMPTY)
	$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(PYTHON) -m venv $(EMPTY)
	$(EMPTY)/bin/pip install --quiet "$$(echo dist/taskloss-*.whl)[cli,estimators,experiments]"
	cd $(EMPTY) && bin/python -I ../.ci/check_wheel.py

clean:  ## remove the environments and all caches
	rm -rf $(VENV) $(OLDEST) $(EMPTY) .pytest_cache .hypothesis .mypy_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
