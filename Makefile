# `make demo` and `make test` work on a fresh machine; each installs what it needs.

PYTHON := .venv/bin/python
# Tests wait for other processes, so there may be more at a time than cores; neighbours share
# sessions.
PYTEST := $(PYTHON) -m pytest --dist worksteal --numprocesses 4
SOURCES := search spark_jobs experiment tests examples docs .ci/*.py

# A fresh import of TensorFlow is several times slower without its compiled files.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo demo-hdfs test test-faults test-ci test-browser test-keras test-kerberos tab lint docs audit format bench bench-tensorboard bench-hdfs bench-live bench-faults bench-gpu bench-search bench-public bench-slots bench-peers bench-training screenshots zip constraints clean

help:  ## Show this list.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 19

# Others on this host can neither take over the searches nor end their jobs: see SECURITY.md.
SHUT := --master 'local[*]' --conf spark.authenticate=true --conf spark.ui.killEnabled=false

demo: export PYSPARK_SUBMIT_ARGS := $(SHUT) pyspark-shell
demo: .venv/.installed  ## Run a grid and an evolutionary search on handwritten digits.
	$(PYTHON) examples/grid_search.py
	$(PYTHON) examples/evolutionary_search.py

demo-hdfs: export PYSPARK_SUBMIT_ARGS := $(SHUT) pyspark-shell
demo-hdfs: .venv/.installed  ## Run an evolutionary search with data and run on a small HDFS.
	$(PYTHON) -m tests.demo_hdfs

test: .venv/.installed  ## Run all tests but the slow ones.
	$(PYTEST)

test-browser: .venv/.browser  ## Test TensorBoard in a real browser.
	$(PYTHON) -m pytest --dist worksteal --numprocesses 2 -m browser tests/browser

test-faults: .venv/.installed  ## Run the slow tests, faults among them, and whole properties.
	$(PYTEST) -m "not kerberos and (slow or property)" --hypothesis-profile all

# In one run: two would start sessions and servers twice. The examples of properties are the same
# each time: the other two look for new ones.
test-ci: .venv/.installed  ## Run the tests of CI: test, faults, contracts.
	$(PYTEST) -m "not browser and not kerberos and (not slow or contract or fault and not thorough)" --hypothesis-seed 0

# The first and the last version of each source that `keras_versions.CHECKED` names, and one between
# them; the pinned one is in the other tests.
KERAS := 3.10.0 3.11.0 3.13.2 3.14.0
test-keras: .venv/.installed  ## Test one model on several workers with older versions of Keras.
	set -e; for version in $(KERAS); do \
	    $(PYTHON) -m pip install --quiet --no-deps --upgrade --target build/keras/$$version keras==$$version; \
	    PYTHONPATH=$(CURDIR)/build/keras/$$version $(PYTEST) tests/spark_jobs/strategies/mirrored -m "slow or not slow"; \
	done

test-kerberos: .venv/.kerberos  ## Test searches on an HDFS with Kerberos.
	$(PYTHON) -m pytest -m kerberos tests/kerberos

tab: experiment/tab/frontend/node_modules  ## Build the page of the Experiment tab in TensorBoard.
	cd experiment/tab/frontend && npm run --silent build
	cp experiment/tab/frontend/node_modules/uplot/LICENSE experiment/tab/built-page/uPlot.LICENSE.txt

zip:  ## Put the packages into build/experiment.zip, for spark-submit --py-files.
	python3 .ci/zip.py

lint: .venv/.installed  ## Check style, types and layers.
	$(PYTHON) -m ruff check $(SOURCES)
	$(PYTHON) -m ruff format --check $(SOURCES)
	$(PYTHON) -m mypy
	$(PYTHON) -m mypy examples
	.venv/bin/lint-imports

# Afresh each time: a page that was not read again would keep what has changed in the code.
docs: .venv/.docs  ## Build the documentation into build/docs.
	$(PYTHON) -m sphinx --fail-on-warning --keep-going --quiet --fresh-env --write-all docs build/docs
	@echo build/docs/index.html

audit: .venv/.audit  ## Look for known vulnerabilities in installed packages.
	$(PYTHON) .ci/audit.py

format: .venv/.installed  ## Format the code.
	$(PYTHON) -m ruff check --fix $(SOURCES)
	$(PYTHON) -m ruff format $(SOURCES)

bench: .venv/.installed  ## Print the figures of the main job.
	$(PYTHON) -m tests.benchmarks.main_job

bench-tensorboard: .venv/.browser  ## Print how soon TensorBoard shows a search of 1,000 trials.
	$(PYTHON) -m tests.benchmarks.tensorboard.pages

bench-hdfs: .venv/.installed  ## Print how fast HDFS is read and written.
	$(PYTHON) -m tests.benchmarks.hdfs_files

bench-faults: .venv/.installed  ## Print which faults a search survives, and how soon it continues.
	$(PYTHON) -m tests.benchmarks.faults

bench-gpu: .venv/.installed  ## Print how many trials an hour one GPU runs, packed and in sequence.
	$(PYTHON) -m tests.benchmarks.gpu_trials

bench-live: .venv/.installed  ## Print the cost of live trials and the savings of early stopping.
	$(PYTHON) -m tests.benchmarks.live_trials

bench-search: .venv/.bench  ## Print how good the searches are, against those of others.
	$(PYTHON) -m tests.benchmarks.searches.quality $(OPTIONS)

# Hours, so its lines can be kept and joined: see `--help` and tests/benchmarks/public/__init__.py.
bench-public: .venv/.bench  ## Write a page on how good the searches are on public problems.
	@$(PYTHON) -m tests.benchmarks.public $(OPTIONS)

bench-slots: .venv/.installed  ## Print the cost of up to 10,000 slots for the driver, in a quarter of an hour.
	$(PYTHON) -m tests.benchmarks.slots.many_slots $(OPTIONS)

# Hours; `make bench-peers OPTIONS=--quick` shows in minutes whether each library still runs.
bench-peers: .venv/.installed  ## Write a page that compares ours with other libraries.
	@$(PYTHON) -m tests.benchmarks.peers $(OPTIONS)

# As root, ways of summing on an emulated network, too; `OPTIONS=--rings` prints these alone. `OPTIONS=--candidates`
# compares the libraries that could connect the workers.
bench-training: .venv/.installed  ## Print the speed of one training over several workers.
	$(PYTHON) -m tests.benchmarks.training.speed $(OPTIONS)

screenshots: .venv/.browser  ## Make the documentation's pictures again.
	$(PYTHON) -m tests.browser.screenshots

.venv/.installed: pyproject.toml .ci/constraints.txt .ci/install
	.ci/install
	touch $@

.venv/.audit: .venv/.installed
	.ci/install --audit
	touch $@

.venv/.bench: .venv/.installed
	.ci/install --bench
	touch $@

.venv/.docs: .venv/.installed
	.ci/install --docs
	touch $@

experiment/tab/frontend/node_modules: experiment/tab/frontend/package-lock.json
	.ci/install_tab
	touch $@

.venv/.browser: .venv/.installed experiment/tab/frontend/node_modules
	.ci/install --browser
	touch $@

.venv/.kerberos: .venv/.installed
	.ci/install --kerberos
	touch $@

constraints:  ## Pin the newest versions of everything that is installed.
	.ci/install --audit --bench --browser --docs --kerberos --upgrade
	mkdir -p build
	.venv/bin/pip freeze --all --exclude-editable > build/constraints.txt
	grep -v ' @ ' build/constraints.txt > .ci/constraints.txt
	touch .venv/.installed .venv/.audit .venv/.bench .venv/.browser .venv/.docs .venv/.kerberos

clean:  ## Remove installed packages and built files.
	rm -rf .venv build dist *.egg-info experiment/tab/frontend/node_modules .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
