# Everything a fresh machine with Python 3.11+, make and a C++ compiler needs happens here.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
NATIVE := CMakeLists.txt $(wildcard src/bettersafe/_kernel/*.cpp src/bettersafe/_kernel/*.hpp)

.PHONY: demo docs test test-all test-long browser check format bench clean help

help: ## Show what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

# Pinned dependencies first, then the package with its kernel, built against exactly those.
$(BIN)/.ready: pyproject.toml constraints.txt $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt scikit-build-core nanobind cmake ninja
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e ".[dev]"
	@touch $@

demo: $(BIN)/.ready ## Improve on clinicians in a simulator of sepsis care
	@$(BIN)/bettersafe demo

# Workers share the cores: a thread of every worker for every core would only wait. Compiled modules are kept, whatever the
# environment says, because tests start many processes.
test test-all test-long: export OPENBLAS_NUM_THREADS = 1
test test-all test-long: export PYTHONDONTWRITEBYTECODE =

test: $(BIN)/.ready ## Run the tests that stand for all
	$(BIN)/python -m pytest -n auto --dist worksteal

test-all: $(BIN)/.ready ## Run the slow tests too, as CI does
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not long"

test-long: $(BIN)/.ready ## Run all tests, with full-size ones and new random examples
	BETTERSAFE_EXAMPLES=new $(BIN)/python -m pytest -n auto --dist worksteal -m "long or not long"

browser: ## Install Chromium for the browser tests, where it can be had
	@scripts/install_chromium

check: $(BIN)/.ready ## Lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(BIN)/.ready ## Put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(BIN)/.ready ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean

bench: $(BIN)/.ready ## Measure speed beside what one would use instead, into docs/benchmarks.md
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt cvxpy pandas quantecon
	$(BIN)/python benchmarks/run.py -o docs/benchmarks.md

clean: ## Remove what was built
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
