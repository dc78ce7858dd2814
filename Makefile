# Everything below needs only make and Python >= 3.11 with venv; the rest is installed into .venv/.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -q
PYTEST := $(PY) -m pytest
# Without compiled sources on disk, each process that starts compiles all of poolrt again.
unexport PYTHONDONTWRITEBYTECODE

# A stamp is written only after its step has succeeded: an interrupted installation is repeated, and a changed
# pyproject.toml installs again.
# An archive without symbolic links has files in their places.
$(VENV)/.made:
	@for floor in workers cachestore; do [ -d poolrt/$$floor ] || ln -sfT ../$$floor poolrt/$$floor; done
	@$(PY) -m pip --version >/dev/null 2>&1 || { echo "making $(VENV)/" >&2; $(PYTHON) -m venv --clear $(VENV); }
	@touch $@

define install
	@echo "installing poolrt$(1) into $(VENV)/ (the first time takes a minute or two)" >&2
	@# `compat`: a line with this folder; the finder that pip would install instead costs each start of python 12 ms.
	@$(PIP) install --no-compile --config-settings editable_mode=compat -e '.$(1)'
	@# pip compiles on one core; what Python cannot compile is no module (a template, say).
	@$(PY) -m compileall -qq -j 0 $(VENV)/lib || true
	@$(compile)
	@touch $@
endef

# Else the first processes of a pool compile what they import, for 0.3 s. Folders by the names that imports give them, because
# compileall does not follow links.
compile := $(PY) -m compileall -qq -j 0 "$(CURDIR)/poolrt" "$(CURDIR)/poolrt/workers" "$(CURDIR)/poolrt/cachestore" \
	|| echo "not all modules could be compiled: processes compile what they import (poolrt doctor)" >&2

$(VENV)/.for-run: pyproject.toml | $(VENV)/.made
	$(call install,[onnx])

$(VENV)/.for-test: pyproject.toml | $(VENV)/.made
	$(call install,[onnx$(comma)test])

$(VENV)/.for-bench: pyproject.toml | $(VENV)/.made
	$(call install,[onnx$(comma)test$(comma)bench])

$(VENV)/.for-docs: pyproject.toml | $(VENV)/.made
	$(call install,[onnx$(comma)docs])

$(VENV)/.for-lint: pyproject.toml | $(VENV)/.made
	$(call install,[onnx$(comma)test$(comma)lint])

comma := ,

.PHONY: help run prebuilt wheel test test-all test-levels drills soak bench docs lint clean distclean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: $(VENV)/.for-run ## run ResNet-50 on a pool of workers, cold and then warm in a new process
	@$(PY) examples/resnet50.py

prebuilt: $(VENV)/.for-run ## compile the kernels of well-known networks into the package (minutes; repeated, only what has changed)
	@$(compile)
	@$(PY) -m poolrt cache prebuild

wheel: prebuilt ## build a wheel with prebuilt kernels in dist/
	@$(PIP) wheel --no-deps --wheel-dir dist .

# What holds processes to bounds of a second or so has the machine to itself; everything else shares the processors, in two
# processes more than these, up to eight (`tests/conftest.py`).
ALONE := tests/acceptance/test_killed_clients.py tests/cachestore/test_silence.py tests/poolrt/pool/test_ends.py \
	tests/workers/verbose/test_times.py

# Both parts run to their end, and share a folder of compiled kernels (`tests/workers/compiled.py`); $(1) chooses the tests.
define run_tests
	@export KERNELS_OF_TESTS=$$(mktemp -d); trap 'rm -rf "$$KERNELS_OF_TESTS"' EXIT; trap 'exit 130' INT; failed=0; \
	$(PYTEST) -q $(1) -n auto --maxprocesses=8 --dist=worksteal $(ALONE:%=--ignore=%) tests || failed=$$?; \
	$(PYTEST) -q $(1) $(ALONE) || failed=$$?; \
	exit $$failed
endef

test: $(VENV)/.for-test ## run the tests, without the thorough tier (minutes)
	$(call run_tests,-m "not slow")

test-all: $(VENV)/.for-bench $(VENV)/.for-docs ## run every test, with the thorough tier
	$(call run_tests,)

# What computes, on each limit of instructions below those of this host; `make test` has run it with all of them.
test-levels: $(VENV)/.for-test ## run the tests that compute once for each ISA level of this host (ARGS='x86-64-v3 ...': for these)
	@export KERNELS_OF_TESTS=$$(mktemp -d); trap 'rm -rf "$$KERNELS_OF_TESTS"' EXIT; trap 'exit 130' INT; failed=0; \
	for level in $(or $(ARGS),$$($(PY) -c 'from tests.workers.levels import limits; print(*limits())')); do \
	  echo "== $$level"; POOLRT_MAX_CPU_ISA=$$level $(PYTEST) -q -m "not slow" -n auto --maxprocesses=8 --dist=worksteal \
	    tests/workers tests/poolrt/graph tests/poolrt/inprocess tests/poolrt/models tests/poolrt/onnx || failed=$$?; \
	done; exit $$failed

drills: $(VENV)/.for-test ## run the fault drills of store and pool and print one table (ARGS='--long --only NAME --rounds N --json --list')
	@$(PY) -m tests.drills $(ARGS)

soak: $(VENV)/.for-test ## let clients work for an hour amid kills, stops and restarts, and look for growth (ARGS='--minutes N --seed S --json')
	@$(PY) -m tests.drills --only soak --long $(ARGS)

bench: $(VENV)/.for-bench ## measure poolrt beside its rivals, print the ratios (ARGS=--short: once, on less work)
	@failed=0; for b in $(filter-out benchmarks/measure.py benchmarks/onednn.py benchmarks/rivals.py,$(wildcard benchmarks/*.py)); do \
	  echo "== $$b"; $(PY) "$$b" $(ARGS) || failed=$$?; done; exit $$failed

docs: $(VENV)/.for-docs ## build the documentation site in build/docs/
	@$(PY) -m sphinx -q -W --keep-going -j auto -c docs/site . build/docs
	@echo "open build/docs/docs/site/index.html"

lint: $(VENV)/.for-lint ## run ruff, mypy (strict), pyright, import-linter
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -m pyright
	@$(VENV)/bin/lint-imports --no-logo

clean: ## remove the files that builds and tests leave; keep .venv/
	@rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv/ too
	@rm -rf $(VENV)
