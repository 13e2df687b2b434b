# `make demo` and `make test` are all that a newcomer needs; both set up .venv first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(or $(shell command -v uv),$(BIN)/uv)
ONLY   ?=
TORCH  ?=

.PHONY: demo test check bench faults newcomer sample deploy requirements clean

demo: $(VENV)/.ready
	$(BIN)/capim demo

test: $(VENV)/.ready
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: $(VENV)/.ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.ready
	$(BIN)/python -m tests.benchmarks $(ONLY)

# kills, full disks, cut networks, damaged files, hostile input: about eight minutes
faults: $(VENV)/.ready
	$(BIN)/python -m tests.faults

# the pages' commands in a fresh clone with an empty home
newcomer: $(VENV)/.ready
	$(BIN)/python -m tests.newcomer

# the sample report and the README's picture, from today's demo (needs chromium)
sample: demo
	$(BIN)/python -m tests.reports.sample "$$(ls -d workspace/reports/* | tail -1)"

deploy: export CAPIM_WORKSPACE ?= $(CURDIR)/workspace
deploy: export DO_NOT_TRACK ?= 1
deploy: export PREFECT_SERVER_ANALYTICS_ENABLED ?= false
deploy: $(VENV)/.ready
	$(BIN)/python -m deployments.automations
	$(BIN)/prefect --no-prompt deploy --prefect-file deployments/prefect.yaml --all

# requirements.txt follows pyproject.toml: exact versions, no addresses
requirements: $(VENV)/.ready
	$(UV) pip compile pyproject.toml --universal --python-version 3.11 --all-extras \
	  --no-header --no-annotate --no-emit-index-url --upgrade -o requirements.txt

clean:
	rm -rf $(VENV) workspace build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# TORCH=cpu: PyTorch's builds of that kind, from PyTorch's own index, without the libraries of PyPI's build
BUILD   := $(if $(TORCH),--torch-backend $(TORCH))
WITHOUT := $(if $(TORCH),^(cuda-|nvidia-|triton),^$$)

# uv from the PATH, else pip puts it into .venv
$(VENV)/.ready: requirements.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || $(UV) venv --quiet $(VENV)
	test -x "$(UV)" || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	grep -Ev '$(WITHOUT)' requirements.txt | $(UV) pip install --quiet --compile-bytecode --python $(BIN)/python $(BUILD) -r -
	$(UV) pip install --quiet --python $(BIN)/python --no-deps -e .
	touch $@
