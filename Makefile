# Two commands always work on a machine with python3 (3.11+), make and pip:
#   make reproduce   re-make the paper's claims (quick version)
#   make test        run the tests, in some five minutes on two cores
# Each makes .venv and installs what it needs; a second call only does the work.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: FORCE attack audit reproduce test slow torch minimum lint format types docs clean browser package explore lock

reproduce: $(VENV)/.installed
	$(BIN)/sparsetoken reproduce --quick --workers all

# COVERAGE=1 measures that as well, which takes half as long again.
test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --dist loadfile $(if $(COVERAGE),--cov --cov-report=term:skip-covered --cov-fail-under=95)

# The tests that `make test` leaves out.
slow: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m slow -n $(WORKERS) --dist loadfile

# Networks to compare with (question 6, benchmarks), and their tests. Torch has no lock: its builds
# differ by machine.
torch: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pytest tests/reproduce/test_questions.py -k torch

# What needs nothing but the runtime dependencies, with the lowest versions of these, which may use what
# has been deprecated since. Parquet, the explorer and Dask are extras.
minimum: $(VENV)/.installed-lock
	$(BIN)/uv venv --clear $(VENV)-minimum
	$(BIN)/uv pip install --python $(VENV)-minimum --resolution lowest-direct .
	$(BIN)/uv pip install --python $(VENV)-minimum pytest pytest-benchmark pytest-timeout pytest-xdist hypothesis psutil
	$(VENV)-minimum/bin/python -m pytest -W ignore::DeprecationWarning -n $(WORKERS) --dist loadfile $(addprefix tests/,numerics learning theory simulation plotting planning cli estimators/test_scikit_learn.py test_losses.py test_task.py) -k "not (parquet or explore or cluster)"

browser: $(VENV)/.installed-browser
	$(BIN)/python -m pytest --no-showlocals tests_browser

# At most half an hour; the quick part is among the tests.
attack: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python tools/attack.py

package: $(VENV)/.installed-dev
	$(BIN)/python tools/package.py $(if $(ADDRESS),--address "$(ADDRESS)")

# Theory against code that shares nothing with it, over random settings; at most an hour, resumable.
audit: $(VENV)/.installed
	$(BIN)/python tools/audit.py

explore: $(VENV)/.installed-explorer
	$(BIN)/sparsetoken explore

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

# Exact versions and hashes of all that is installed; `make lock UPGRADE=--upgrade` takes new ones.
lock: $(VENV)/.installed-lock
	$(BIN)/python tools/lock.py $(UPGRADE)

# Asked every time: only the tool knows whether an environment was made in this folder.
$(VENV)/.installed: FORCE
	@$(PYTHON) tools/install.py

$(VENV)/.installed-%: FORCE
	@$(PYTHON) tools/install.py $*

FORCE:

clean:
	rm -rf $(VENV) $(VENV)-minimum $(VENV).lock build dist docs/_build docs/gallery .pytest_cache .mypy_cache .ruff_cache .coverage*
