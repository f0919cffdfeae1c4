# Everything one does with a checkout. The checks that CI runs are these targets.
#
# The environment is .venv: Python packages only, exactly those that requirements*.txt list with their hashes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup bench test test-lab test-faults test-gpu-hosts test-large test-provision fuzz lint perf perf-hosts docs lock clean

help: ## what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'

bench: $(VENV)/runtime ## train on 1, 8 and 32 cards of this machine and print the tables
	@$(BIN)/python -m runner bench

test: $(VENV)/dev ## the test suite
	@$(BIN)/python -m pytest -n 3 --dist loadfile --ignore=tests/lab --ignore=tests/large $(ARGS)

test-lab: $(VENV)/dev ## the tests on real hosts, which they make on this machine; as root
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/lab -m 'not faults and not gpu_hosts' $(ARGS)

test-faults: $(VENV)/dev ## the long ones of them
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/lab -m 'faults and not alone' $(ARGS)
	@$(BIN)/python -m pytest tests/lab -m 'faults and alone' $(ARGS)

test-gpu-hosts: $(VENV)/dev ## roles of GPU hosts, on real hosts: sources, drivers built, containers, RDMA, reboots, tuning
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/lab -m gpu_hosts $(ARGS)

test-large: $(VENV)/dev ## logs of gigabytes, a folder of 100,000 files: minutes, and 8 GB of disk
	@$(BIN)/python -m pytest -s tests/large $(ARGS)

test-provision: $(VENV)/dev ## what provision does on every system and card that no test machine has: minutes
	@RUNKIT_GOLDEN=all $(BIN)/python -m pytest tests/test_provision_golden.py $(ARGS)

fuzz: $(VENV)/dev ## random changes to logs, reports and tables of claims, or ARGS='log 600' for one of them
	@$(BIN)/python tests/fuzzing.py $(ARGS)

lint: $(VENV)/dev ## style, types and Ansible rules alone; the test suite runs them too
	@$(BIN)/python -m pytest -q tests/test_house_rules.py $(ARGS)

perf: $(VENV)/dev ## what runkit costs, as ratios measured side by side
	@$(BIN)/python tests/perf/perf.py $(ARGS)

perf-hosts: $(VENV)/dev ## the same on several hosts: a rehearsal cluster made for it, as root, or ARGS=CLUSTER
	@$(BIN)/python tests/perf/perf_hosts.py $(ARGS)

setup: $(VENV)/dev ## the environment for all of these

docs: $(VENV)/dev ## the pages that are made: docs/workloads/ of the workloads, docs/findings.md of the rules
	@$(BIN)/python tools/workload_pages.py
	@$(BIN)/python tools/findings_page.py

lock: $(VENV)/dev ## resolve requirements*.in anew into requirements*.txt, for Python 3.11 to 3.13
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	    requirements.in -o requirements.txt
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	    -c requirements.txt requirements-dev.in -o requirements-dev.txt

clean: ## remove the environment and what tools cache; runs/ stays
	@rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .ansible
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp is younger than the environment that it vouches for; a change of the lock makes it anew.
$(VENV)/runtime: requirements.txt
	@PYTHON='$(PYTHON)' sh tools/venv.sh $(VENV) requirements.txt
	@touch $@

$(VENV)/dev: requirements-dev.txt requirements.txt
	@PYTHON='$(PYTHON)' sh tools/venv.sh $(VENV) requirements-dev.txt
	@touch $@ $(VENV)/runtime
