.PHONY: setup demo test test-all check bench cluster-up cluster-down

setup:
	@scripts/setup

demo: setup
	@scripts/demo

test: setup
	.venv/bin/python -m pytest -m "not full"

test-all: setup
	.venv/bin/python -m pytest

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: setup
	.venv/bin/python benchmarks/build_sweep.py
	.venv/bin/python benchmarks/many_runs.py

# A real SLURM of four nodes on this host, to rehearse a sweep.
cluster-up:
	@setups/loopback_slurm/cluster up

cluster-down:
	@setups/loopback_slurm/cluster down
