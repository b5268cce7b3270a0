# `make demo` and `make test` work on a fresh machine; each installs what it needs.

PYTHON := .venv/bin/python
SOURCES := search spark_jobs experiment tests examples

# A fresh import of TensorFlow is several times slower without its compiled files.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test lint format bench constraints clean

help:  ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

demo: .venv/.installed  ## Run a grid and an evolutionary search on handwritten digits.
	$(PYTHON) examples/grid_search.py
	$(PYTHON) examples/evolutionary_search.py

test: .venv/.installed  ## Run the whole test suite.
	$(PYTHON) -m pytest

lint: .venv/.installed  ## Check style, types and layers.
	$(PYTHON) -m ruff check $(SOURCES)
	$(PYTHON) -m ruff format --check $(SOURCES)
	$(PYTHON) -m mypy
	.venv/bin/lint-imports

format: .venv/.installed  ## Format the code.
	$(PYTHON) -m ruff check --fix $(SOURCES)
	$(PYTHON) -m ruff format $(SOURCES)

bench: .venv/.installed  ## Print the figures of the main job.
	$(PYTHON) -m tests.benchmarks.main_job

.venv/.installed: pyproject.toml .ci/constraints.txt .ci/install
	.ci/install
	touch $@

constraints:  ## Pin the newest versions of everything that is installed.
	.ci/install --upgrade
	.venv/bin/pip freeze --exclude-editable | grep -v ' @ ' > .ci/constraints.txt
	touch .venv/.installed

clean:  ## Remove what was installed and made.
	rm -rf .venv experiments build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
