# make demo: the main job. make test: all tests. Everything is in .venv, which is built if it is missing.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test lint bench docs docs-test

install: .venv/installed
demo: .venv/installed
	$(BIN)/segue compare pydoc --seeds 3 --budget 10s

test: .venv/installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=15

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/installed
	$(BIN)/python docs/make.py

docs-test: .venv/installed-dev
	DOCS=slow $(BIN)/python -m pytest -n 2 --dist worksteal --durations=15 tests/test_docs.py -k test_a_block_runs

bench: .venv/installed-dev
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@
