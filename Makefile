# Both commands make a virtual environment in .venv the first time.
# The first that runs and is new enough; a name on the PATH alone says nothing (pyenv's shims).
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin

SGLANG_CPU := $(or $(GPUSERVE_SGLANG_CPU),.venv-sglang-cpu)

.PHONY: demo test sglang-cpu lint clean

$(VENV)/.made: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name one: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[local,test]'
	touch $@

demo: $(VENV)/.made  ## a real engine, recorded and gated, then the Blackwell suite on the simulated host
	@set -eu; folder=$$(mktemp -d); \
	local="$(BIN)/python -m pytest suites -m local --benchmark-disable --gpuserve-baselines $$folder/baselines"; \
	echo "--- llama.cpp for real: two launches of each configuration become its baseline"; \
	$$local --gpuserve-run-dir $$folder/record --gpuserve-update-baselines; \
	echo "--- and again, held against it"; \
	$$local --gpuserve-run-dir $$folder/gate -v; \
	echo "--- the Blackwell suite on the simulated host"; \
	$(BIN)/python -m pytest suites -m blackwell --gpuserve-simulate --gpuserve-strict-skips --gpuserve-run-dir $$folder/blackwell -v; \
	rm -rf $$folder

test: $(VENV)/.made lint  ## lint, types, layers and all tests
	$(BIN)/python -m pytest

$(SGLANG_CPU)/.made: tests/engines/sglang_cpu/install.sh tests/engines/sglang_cpu/requirements.txt
	bash tests/engines/sglang_cpu/install.sh $(SGLANG_CPU)
	touch $@

sglang-cpu: $(VENV)/.made $(SGLANG_CPU)/.made  ## real SGLang on the CPU: three minutes to install, 2.7 GB
	GPUSERVE_SGLANG_CPU=$(abspath $(SGLANG_CPU)) $(BIN)/python -m pytest tests/engines -m sglang_cpu

lint: $(VENV)/.made
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) .venv-sglang-cpu .gpuserve .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
