# Everything sets itself up: `make demo` and `make test` need only Python 3.11 and make.
# PIP_CONSTRAINT also reaches the build environments of packages, which `pip install -c` does not.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
SETUP := pyproject.toml constraints.txt

.PHONY: help demo test lint format bench clean

help:  ## what there is to make
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(VENV)/user: $(SETUP)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[cli,estimators]'
	@touch $@

$(VENV)/dev: $(SETUP)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

demo: $(VENV)/user  ## direct average precision against cross-entropy and others on a bundled data set
	$(BIN)/taskloss compare

test: $(VENV)/dev  ## the whole test suite
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

lint: $(VENV)/dev  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev  ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# qpth asks for numpy below 2 but works with 2, so it comes without what it asks for.
$(VENV)/peers: $(VENV)/dev
	$(BIN)/pip install --quiet --editable '.[dev,peers]'
	$(BIN)/pip install --quiet --no-deps qpth
	@touch $@

bench: $(VENV)/peers  ## speed and memory, as ratios measured side by side in one run
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.lp
	$(BIN)/python -m benchmarks.lp_losses_speed

clean:  ## remove the environment and all caches
	rm -rf $(VENV) .pytest_cache .hypothesis .mypy_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
