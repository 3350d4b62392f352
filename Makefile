.PHONY: setup demo test test-all check bench

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
