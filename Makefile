# `make demo` and `make test` are all that a newcomer needs; both set up .venv first, `make test` with more packages.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(or $(shell command -v uv),$(BIN)/uv)
ONLY   ?=
TORCH  ?=
# this file measures seconds, so nothing else runs with it
ALONE  := tests/deployments/test_stopping.py

.PHONY: demo test test-slow check docs bench faults audit newcomer sample deploy requirements clean

demo: $(VENV)/.demo
	$(BIN)/capim demo

# (variables that keep Python from caching compiled code would have every process compile everything)
test test-slow: export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder

# everything that runs in one process: seven minutes on two cores
test: $(VENV)/.ready
	$(PYTEST) -n 2 -m "not slow"

# what starts servers, workers, browsers, other programs, or whole suites of runs; the process whose tests share a
# server mostly waits, so that three keep two cores busy
test-slow: $(VENV)/.ready
	$(PYTEST) -n 3 -m slow --ignore $(ALONE)
	$(BIN)/python -m pytest $(ALONE)

check: $(VENV)/.ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.words

# the site of docs/, in build/docs (not --quiet: --strict then fails on nothing); the variable turns an advertisement off
docs: $(VENV)/.ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file docs/site/mkdocs.yml

# every group takes under two hours with nothing beside it, and 23 GB of the temporary folder; ONLY=scoring one group
bench: $(VENV)/.ready
	$(BIN)/python -m tests.benchmarks $(ONLY)

# a hundred kills, full disks, cut networks, hostile input, and four suites at once for a minute (or
# CAPIM_FAULT_SECONDS), each two at a time: half an hour on two free cores
faults: $(VENV)/.ready
	$(BIN)/python -m tests.faults

# known vulnerabilities of the pins: pip-audit asks the index about each
audit: $(VENV)/.ready
	$(UV) tool run pip-audit -r requirements.txt --no-deps --disable-pip

# the pages' commands in a fresh clone with an empty home
newcomer: $(VENV)/.ready
	$(BIN)/python -m tests.newcomer

# the sample report and the pictures of docs/, from today's demo (needs chromium)
sample: $(VENV)/.ready demo
	$(BIN)/python -m tests.reports.sample "$$(ls -d workspace/reports/2* | tail -1)"

deploy: export CAPIM_WORKSPACE ?= $(CURDIR)/workspace
deploy: export CAPIM_FORM_WORKSPACE ?= $(CAPIM_WORKSPACE)
deploy: export DO_NOT_TRACK ?= 1
deploy: export PREFECT_SERVER_ANALYTICS_ENABLED ?= false
deploy: $(VENV)/.demo
	$(BIN)/python -m capim.deployments.automations
	$(BIN)/prefect --no-prompt deploy --prefect-file deployments/prefect.yaml --all
	$(BIN)/python -m capim.deployments.turns

# requirements.txt follows pyproject.toml: exact versions, no addresses
requirements: $(VENV)/.ready
	$(UV) pip compile pyproject.toml --universal --python-version 3.11 --all-extras \
	  --no-header --no-annotate --no-emit-index-url --upgrade -o requirements.txt

clean:
	rm -rf $(VENV) workspace build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# TORCH=cpu: PyTorch's builds of that kind, from PyTorch's own index; PyPI's build needs CUDA (docs/install.md)
INSTALL := $(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --constraint requirements.txt \
  $(if $(TORCH),--torch-backend $(TORCH))

# what a user needs; uv from the PATH, else pip puts it into .venv
$(VENV)/.demo: requirements.txt pyproject.toml
	@test "$(TORCH)" || test -d /proc/driver/nvidia || test "$$(uname)" != Linux || \
	  echo "no NVIDIA driver here: make demo TORCH=cpu takes 2.7 GB instead of 6.7 (docs/install.md)"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || $(UV) venv --quiet $(VENV)
	test -x "$(UV)" || $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(INSTALL) -e '.[all]'
	touch $@

# and what the tests, the checks and the docs need
$(VENV)/.ready: $(VENV)/.demo
	$(INSTALL) -e '.[all,dev,peers]'
	touch $@
