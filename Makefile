# make demo: the main job. make test: all tests. Everything lives in .venv, built from nothing.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test lint bench

install: .venv/installed
demo: .venv/installed
	$(BIN)/segue compare pydoc --budget 20s

test: .venv/installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=15

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

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
