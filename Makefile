# Both commands make a virtual environment in .venv the first time.
PYTHON ?= $(shell command -v python3.13 || command -v python3.12 || command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint clean

$(VENV)/.made: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test]'
	touch $@

demo: $(VENV)/.made  ## the Blackwell suite on the simulated host
	$(BIN)/python -m pytest suites -m blackwell --gpuserve-simulate -v

test: $(VENV)/.made lint  ## lint, types, layers and all tests
	$(BIN)/python -m pytest

lint: $(VENV)/.made
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) .gpuserve .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
