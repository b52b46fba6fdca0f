# Everything lives in .venv and build/; `make clean` removes both. PYTHON chooses the interpreter.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# uv installs in half the time, but only pip is always there. --no-compile: Python compiles what it
# imports, which is less than all that is installed. -qq still shows errors.
INSTALL := $(if $(shell command -v uv),uv pip install -q --python $(RUN),$(RUN) -m pip install -qq \
	--no-compile --disable-pip-version-check) -c constraints.txt
SOURCES := $(shell find udpfast bench/loops lab -name '*.pyx' -o -name '*.pxd') \
	udpfast/payload/roq/roq.fbs scripts/generate_header.py scripts/generate_stubs.py \
	$(wildcard udpfast/include/parts/*.h)
# Tests start Python some thousand times; with this set, each start compiles all its modules.
unexport PYTHONDONTWRITEBYTECODE
# Programs started by name are those of .venv.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Build the benchmarks and the lab, which a user's `pip install .` leaves out.
export UDPFAST_BENCH ?= 1
# Test vectors, if present, are beside the project; copies of it below build/ use them too.
export UDPFAST_SHARED ?= $(abspath $(CURDIR)/../shared)

.PHONY: help build layouts demo bench quick test nightly sanitize aarch64 wheels docs lint format clean

help: ## this list
	@grep -E '^[a-z0-9-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 14

build: $(VENV)/.listed ## .venv with all that is needed, udpfast compiled in place

layouts: $(VENV)/.tools ## what follows from the layouts of updates (udpfast/market/updates.pxd)
	@$(RUN) -m scripts.generate_layouts
	@$(MAKE) --no-print-directory build
	@$(RUN) scripts/generate_identification.py
	@$(MAKE) --no-print-directory build
	@$(RUN) scripts/generate_reference.py
	@$(RUN) -m tests.archive.make_kept

demo: build $(VENV)/.spark ## publisher, lossy lines, subscriber, ring, strategy, report; venues' orders; a bus of three hosts
	@$(VENV)/bin/udpfast demo --report build/demo
	@for venue in itch pitch cme; do echo "udpfast: orders as $$venue publishes them" && \
		$(VENV)/bin/udpfast demo --venue $$venue --seconds 3 || exit 1; done
	@$(VENV)/bin/udpfast bus demo --messages 50
	@test ! -f build/demo/report.html || echo "udpfast: the report of the feed: build/demo/report.html"
	@echo "udpfast: ok: both strategies' books equal the published ones, no venue's book is sound and wrong, and the bus's copies are equal"

bench: build $(VENV)/.peers ## every benchmark beside its peers: bench/results/, report, figures; 10 minutes
	@$(VENV)/bin/udpfast bench run --report --rounds 5

# More workers than cores, because tests also wait for processes.
# tests/conftest.py says which tests share a worker. A worker that crashes ends the run, because the
# others would wait for its tests.
WORKERS ?= $(shell cores=$$(nproc); echo $$((cores < 4 ? cores + 2 : 6)))
PYTEST := -m pytest -q --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder \
	--max-worker-restart=0

# Tests of bytes and integers, without sockets, processes and Spark.
QUICK := $(addprefix tests/,bus config core feed host market payload wire test_comments.py test_layering.py test_tidy.py)

quick: build ## the tests of pure code: under two minutes
	@$(RUN) $(PYTEST) -m "not slow and not nightly" $(QUICK)

test: build $(VENV)/.archive ## the everyday tests; `make nightly` runs the rest, and the campaigns
	@echo "udpfast: running the tests"
	@$(RUN) $(PYTEST) --durations=10

nightly: build $(VENV)/.archive ## the tests that `make test` leaves out, and the campaigns: docs/campaigns.md
	@$(RUN) $(PYTEST) -m nightly
	@$(VENV)/bin/udpfast lab nightly

# Python's own allocator would hide reads beyond an object from the sanitizer. The sanitizer handles
# C++ exceptions (in pyarrow) only if libstdc++ is loaded from the beginning.
SANITIZED := LD_PRELOAD="$(foreach library,asan stdc++,$(shell $(CC) -print-file-name=lib$(library).so))" \
	PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 ../../$(RUN)
SANITIZED_TESTS := $(addprefix tests/,agents bus client core export feed log market net payload shm wire)
FUZZ_COUNT ?= 1000000
FUZZ_SEED ?= 1

sanitize: build ## tests and fuzz with AddressSanitizer and UBSan (FUZZ_COUNT, FUZZ_SEED)
	@echo "udpfast: compiling with sanitizers into build/sanitize"
	@$(RUN) scripts/mirror.py build/sanitize
	@cd build/sanitize && UDPFAST_SANITIZE=1 ../../$(RUN) setup.py -q build_ext --inplace
	@cd build/sanitize && $(SANITIZED) -m pytest -q $(SANITIZED_TESTS)
	@cd build/sanitize && for kind in datagrams payloads frames venues wire feed; do $(SANITIZED) -m \
		udpfast lab fuzz $$kind --count $(FUZZ_COUNT) --seed $(FUZZ_SEED) || exit 1; done

# Wheels for a C library older than this machine's need an older machine: auditwheel names it.
WHEEL_PYTHONS ?= python3.11 python3.12 python3.13

aarch64: build ## the tests of pure code as AArch64 code, under qemu-user: a quarter of an hour (scripts/try_aarch64.py)
	@$(RUN) scripts/try_aarch64.py

# The wheel for AArch64 is made of the C that a build generated.
wheels: $(VENV)/.installed $(if $(shell command -v aarch64-linux-gnu-gcc),build) ## wheels that need no compiler, each tried in a fresh venv: dist/ (WHEEL_PYTHONS)
	@$(RUN) scripts/build_wheels.py dist $(WHEEL_PYTHONS)

docs: build ## the documentation site, with every link checked: build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --quiet --strict
	@echo "udpfast: build/site/index.html; with search: python3 -m http.server --directory build/site"

lint: build ## ruff, cython-lint, mypy --strict and stubtest; layers and style are tests
	@$(RUN) -m ruff check
	@$(RUN) -m ruff format --check -q
	@$(RUN) scripts/lint_cython.py udpfast bench lab docs/examples
	@$(RUN) scripts/check_types.py

format: build ## let ruff lay out the Python files
	@$(RUN) -m ruff check --fix
	@$(RUN) -m ruff format

clean: ## remove what make has made, except results of benchmarks
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis .benchmarks
	@rm -f udpfast/payload/roq/schema.py udpfast/payload/roq/schema.pxd udpfast/include/udpfast.h
	@grep -rlZ --include='*.pyi' '^# Made from the module' udpfast bench lab | xargs -0r rm -f
	@find udpfast bench lab '(' -name '*.so' -o -name '__pycache__' ')' -prune -exec rm -rf {} +

# Three steps, each with its stamp: tools (what compiling needs), compiled, installed.

$(VENV)/.tools: constraints.txt scripts/preflight.py
	@$(PYTHON) scripts/preflight.py
	@echo "udpfast [1/3]: making .venv"
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	@$(INSTALL) setuptools Cython
	@touch $@

$(VENV)/.compiled: $(VENV)/.tools setup.py $(SOURCES)
	@echo "udpfast [2/3]: compiling the extension modules (a minute or two the first time)"
	@$(RUN) setup.py -q build_ext --inplace
	@touch $@

# Compiles nothing of ours, so that it runs in parallel with that under --jobs.
$(VENV)/.installed: $(VENV)/.tools pyproject.toml
	@echo "udpfast [3/3]: installing the packages that it uses"
	@UDPFAST_COMPILE=0 $(INSTALL) --no-build-isolation -e '.[dev]'
	@touch $@

# Spark and type checkers look for packages in the folders of sys.path, and do not see the import hook
# of an editable install. And Spark puts a zip of its sources first, which each worker would compile
# anew: a second of processor time, while a stream's worker must be ready within ten.
WITHOUT_ZIP := import sys; sys.path[:] = [p for p in sys.path if not p.endswith("/pyspark.zip")]
$(VENV)/.listed: $(VENV)/.compiled $(VENV)/.installed
	@printf '%s\n' "$$PWD" '$(WITHOUT_ZIP)' > \
		"$$($(RUN) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/udpfast_checkout.pth"
	@touch $@

# Peers that cannot be installed here are left out of the tables, which say so.
$(VENV)/.peers: $(VENV)/.installed
	@echo "udpfast: installing the peers to measure beside"
	@UDPFAST_COMPILE=0 $(INSTALL) --no-build-isolation -e '.[bench]' \
		|| echo "udpfast: some peers cannot be installed here: going on without them"
	@touch $@

# Spark's package is large, and Java comes from the system: without them there are no reports.
# Its modules are compiled once here, and not by workers in their ten seconds.
$(VENV)/.spark: $(VENV)/.installed
	@echo "udpfast: installing Spark (0.9 GB, a minute the first time)"
	@if $(RUN) scripts/preflight.py spark \
		&& UDPFAST_COMPILE=0 $(INSTALL) --no-build-isolation -e '.[spark]' \
		&& $(RUN) -c 'import pyspark.sql.streaming.python_streaming_source_runner'; then touch $@; \
		else echo "udpfast: Spark cannot be installed here: going on without it"; fi

# Java does not use what another Java, or another Spark, kept: remove this to have it made anew.
$(VENV)/.archive: $(VENV)/.spark $(VENV)/.listed
	@echo "udpfast: having Java keep the classes of Spark, so that sessions start sooner (half a minute)"
	@$(RUN) -m udpfast.spark.archive || echo "udpfast: going on without them"
	@touch $@
