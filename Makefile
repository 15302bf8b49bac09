# `make demo` runs the main job, `make test` the tests; each sets up what it needs first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUST_SOURCES := Cargo.toml Cargo.lock $(shell find crates -name '*.rs' -o -name 'Cargo.toml' -o -name '*.[ch]')

# the feature bpf is on where its tools are or can be installed, looked up when first needed; make BPF= is without
BPF = $(eval BPF := $(shell scripts/system-packages bpf >&2 && echo bpf))$(BPF)
FEATURES = $(foreach crate,python agent,$(addprefix --features pathcast-$(crate)/,$(BPF)))

.DEFAULT_GOAL := help
.PHONY: help demo test test-full build lint format test-rust test-python real-files fuzz bench wheel docs picture lock clean

help: ## Say what can be made.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

demo: build ## Measure a TCP flow, fit it, forecast it, write report.html.
	$(BIN)/pathcast demo
	@echo 'next: source $(BIN)/activate, then pathcast --help; README.md has five tasks'

test: ## Lint and run all tests to their end; sum up.
	-@scripts/system-packages pages
	-@scripts/system-packages servers
	FEATURES="$(FEATURES)" $(PYTHON) scripts/test

test-full: ## The same, with the tests that repeat much and take long.
	-@scripts/system-packages pages
	-@scripts/system-packages servers
	FEATURES="$(FEATURES)" $(PYTHON) scripts/test --full

build: $(VENV)/built ## Make the Python environment and build the Rust part into it.

$(VENV)/installed: requirements.txt scripts/system-packages
	scripts/system-packages python
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes --requirement requirements.txt
	touch $@

$(VENV)/built: $(VENV)/installed pyproject.toml $(RUST_SOURCES)
	PIP_QUIET=1 $(BIN)/maturin develop --release --locked --quiet --features extension-module $(addprefix --features ,$(BPF))
	touch $@

lint: build ## Check form, lints, types, spelling and prose.
	scripts/format-rust --check
	cargo clippy --workspace $(FEATURES) --all-targets --locked --quiet -- --deny warnings
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy --no-error-summary
	$(BIN)/codespell .
	scripts/prose
	scripts/lint-workflows

format: build ## Put all sources in form.
	scripts/format-rust
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --quiet --fix .

test-rust: ## Run the Rust tests, the kernel's among them where they can run.
	cargo test --workspace $(FEATURES) --locked --quiet --no-fail-fast

test-python: build ## Run the Python tests, the command line and the examples of the docs.
	$(BIN)/pytest

real-files: build ## Compare readings of real files with independent readers, by kind.
	PATHCAST_DATA="$${PATHCAST_DATA:-$$(test -d ../shared/data && cd ../shared/data && pwd)}" \
	PYTHONPATH=tests $(BIN)/python -m real_files

fuzz: ## Look for files that the readers cannot bear, 10 minutes each.
	scripts/fuzz

bench: build ## Measure speed; figures are for comparing within one run.
	$(BIN)/python benches/simulators.py
	cargo bench --workspace --locked

wheel: build ## Build, audit and try the wheel and the source distribution in dist.
	rm -rf dist
	$(BIN)/maturin build --release --locked --strip --auditwheel repair --out dist
	$(BIN)/maturin sdist --out dist
	scripts/try-wheel dist

docs: build ## Build the documentation into target/site/index.html.
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --jobs auto -d target/doctrees docs target/site
	@echo "target/site/index.html"

picture: build ## Make docs/report.png, the picture in the README.
	scripts/system-packages browser
	scripts/report-picture docs/report.png

lock: $(VENV)/installed ## Pin the newest versions of all dependencies.
	cargo update
	cargo update --manifest-path fuzz/Cargo.toml
	scripts/lock-python

clean: ## Remove what was built.
	cargo clean
	rm -rf $(VENV) dist fuzz/target
