# Every command a person or a machine runs in this tree; `make help` lists them.
# CI calls these same targets, so what passes here passes there.

PYTHON ?= python3
ARGS ?=
# Compiled modules are kept, whatever the shell says: tests start hundreds of processes, and each
# would compile nexo anew, for 0.35 s.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
LOCKS := $(patsubst %,requirements/%.txt,base build spark dev)
# A stamp carries what the environment was built from, so content decides, never a file's date.
# The path is part of it because the scripts in an environment name their own folder. What `demo`
# needs and the tools on top of it have a stamp each: a demo waits for no tools.
sum = $(shell (echo "$(CURDIR) $(PYTHON)"; cat pyproject.toml scripts/install $(1) 2>&1) \
	| cksum | tr ' ' '-')
DEMO_STAMP := $(VENV)/installed-demo-$(call sum,requirements/build.txt requirements/spark.txt)
TOOLS_STAMP := $(VENV)/installed-tools-$(call sum,$(LOCKS))
CODE := $(wildcard src tests bench examples scripts)
HEADING := @printf '\n== %s\n'

.DEFAULT_GOAL := help
.PHONY: help install tools demo test quick lint browser screenshots docs pages package bench \
	simulate soak lock clean

help: ## list the targets (this text)
	@awk 'BEGIN { FS = ":[^#]*## "; print "Usage: make TARGET [ARGS=\"...\"]\n" } \
		/^[a-z][a-z-]*:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nExamples\n'
	@printf '  %-42s %s\n' \
		'make demo ARGS="--seconds 60 --chaos"' 'a minute, with kills, accounted for' \
		'make test' 'all checks and tests; what CI runs' \
		'make quick ARGS=tests/journal' 'the fast ones, and the journal' \
		'make test ARGS="-k lease -x"' 'the checks, then some of the tests' \
		'make simulate ARGS="--seeds 2000"' 'two thousand seeded worlds' \
		'make bench' 'the figures of this machine' \
		'make lock ARGS="--upgrade"' 'take the newest dependencies' \
		'make install PYTHON=python3.13' 'another Python (3.11 or newer)'

install: $(DEMO_STAMP) ## what the demo needs, into .venv; does nothing when it is up to date

$(DEMO_STAMP):
	$(HEADING) "install: what make demo needs, into $(VENV) (about a minute)"
	@scripts/install "$(PYTHON)" "$(VENV)" demo
	@rm -f $(VENV)/installed-demo-* && touch $@

tools: $(TOOLS_STAMP) ## and what tests, checks, benches and pages need

$(TOOLS_STAMP): $(DEMO_STAMP)
	$(HEADING) "tools: what make test needs besides, into $(VENV) (about a minute)"
	@scripts/install "$(PYTHON)" "$(VENV)" tools
	@rm -f $(VENV)/installed-tools-* && touch $@

ifneq ($(findstring --cluster,$(ARGS)),)
demo: tools  # which have a PostgreSQL
endif

demo: install ## the whole product at work: broker, fleet, Spark, workers; ARGS go to nexo demo
	@$(BIN)/nexo demo $(ARGS)

# What `quick` lints: Python that differs from where this branch left main, or is new to git.
CHANGED = $(shell git diff --name-only --diff-filter=d \
	$$(git merge-base HEAD main 2>/dev/null || echo HEAD) -- $(CODE:%='%/*.py'); \
	git ls-files --others --exclude-standard -- $(CODE:%='%/*.py'))
# And what it tests: folders that need no process, browser or Spark; 70 s of one core together.
FAST := tests/unit tests/engine tests/sqs tests/tidy/test_tree.py

quick: tools ## a minute and a half: lint of what changed, the fast tests; ARGS go to pytest
	$(HEADING) "ruff and mypy: what changed"
	@changed="$(CHANGED)"; test -z "$$changed" || { $(BIN)/ruff check $$changed && \
		$(BIN)/ruff format --check $$changed && $(BIN)/mypy $$changed; }
	$(HEADING) "import contracts"
	@$(BIN)/lint-imports --no-logo
	$(HEADING) "pytest: the fast tests"
	@$(BIN)/python -m pytest -n 2 --dist worksteal $(FAST) $(ARGS)

# Tests often wait for a process, a page or a clock: with as many workers as cores, 45 of 100
# seconds of a core were idle.
test: lint browser ## every check, then every test; ARGS go to pytest
	$(HEADING) "pytest"
	@$(BIN)/python -m pytest -n 3 --dist worksteal --durations 30 --durations-min 5 $(ARGS)

lint: tools ## ruff, mypy, the generated half of the client and the import contracts
	$(HEADING) "ruff check"
	@$(BIN)/ruff check $(CODE)
	$(HEADING) "ruff format --check"
	@$(BIN)/ruff format --check $(CODE)
	$(HEADING) "mypy"
	@$(BIN)/mypy --num-workers 2 $(CODE)
	$(HEADING) "twins: the blocking client is what scripts/twins.py makes of the asyncio one"
	@$(BIN)/python scripts/twins.py --check
	$(HEADING) "import contracts"
	@$(BIN)/lint-imports --no-logo

browser: ## a chromium for the tests of the console; does nothing when there is one
	@scripts/browser

screenshots: tools browser ## the pages of the console as pictures, into docs/images
	@$(BIN)/python -m tests.console.screenshots

docs: tools ## the site of docs/, into build/site; readable without a network
	$(HEADING) "docs: build/site (about 10 seconds)"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

pages: tools ## write everything anew that is made from the code: pages, types, manual, diagrams
	@$(BIN)/python scripts/twins.py
	@$(BIN)/python -m scripts.user_settings
	@$(BIN)/python -m scripts.settings_page > made && mv made docs/reference/settings.md
	@$(BIN)/python -m scripts.admin_page > made && mv made docs/reference/admin-api.md
	@$(BIN)/python -m scripts.access_page docs/access.md
	@$(BIN)/python -m scripts.reference_pages
	@$(BIN)/python -m scripts.diagrams

package: tools ## a wheel and a source distribution, into dist/
	@rm -rf dist
	@$(BIN)/python -m hatchling build -d dist
	@ls -l dist

bench: tools ## measure this machine; ARGS go to the bench
	@$(BIN)/python -m bench $(ARGS)

simulate: install ## seeded worlds with faults; ARGS go to the simulator
	@$(BIN)/python -m nexo.simulation $(ARGS)

soak: tools ## the long run: 20,000 seeds, worlds of size, clusters, then the tests marked soak
	$(HEADING) "simulation: 20,000 seeds"
	@$(BIN)/python -m nexo.simulation --seeds 20000 $(ARGS)
	$(HEADING) "simulation: worlds of size, three times as large"
	@$(BIN)/python -m nexo.simulation --large --seeds 120 --steps 3 $(ARGS)
	$(HEADING) "simulation: 1,000 clusters"
	@$(BIN)/python -m nexo.simulation --cluster --seeds 1000 $(ARGS)
	$(HEADING) "pytest -m soak"
	@$(BIN)/python -m pytest -m soak || [ $$? -eq 5 ]  # 5: no test is marked soak

# Each lock is held to the one before it, so a package has one version in all of them.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock" $(ARGS)

lock: $(BIN)/uv ## write requirements/ anew from pyproject.toml; ARGS go to uv
	$(HEADING) "lock: requirements/"
	@$(COMPILE) --output-file requirements/base.txt pyproject.toml
	@$(COMPILE) --group dev --constraints requirements/base.txt \
		--output-file requirements/dev.txt pyproject.toml
	@$(COMPILE) --extra spark --constraints requirements/dev.txt \
		--output-file requirements/spark.txt pyproject.toml
	@$(COMPILE) --group build --constraints requirements/dev.txt \
		--output-file requirements/build.txt
	@wc -l $(LOCKS)

# Locking must not need an install: a broken lock could then never be mended.
$(BIN)/uv:
	@scripts/install "$(PYTHON)" "$(VENV)" uv

clean: ## remove the environment, caches and builds
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache \
		.hypothesis
	@find src tests scripts $(wildcard bench examples) -name __pycache__ -type d -prune \
		-exec rm -rf {} +
