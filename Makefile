# The two commands of the README are `make demo` and `make test`; both set up everything they need.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BUILDER := build/builder

FUZZ_SECONDS ?= 300
# A test that needs the code of the decoder.
DECODED := tests/reader/decode/test_segment_decoder.py::test_r06_r07_batches_of_kafkas_own_classes_read_as_they_read_them

# The tests start a thousand short Python processes. Without cached bytecode an agent needs half as long again to start,
# and container images often turn the cache off.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-full fuzz mutants lint types imports check docs bench lock setup test-parts deploy-checks dist fresh clean

demo: setup
	$(BIN)/python -m dev.demo

# Most tests wait for servers most of the time, so five processes suit two cores; tests/conftest.py sets their order.
test: test-parts
	$(BIN)/pytest -m "not full" -n 5 --dist loadfile --no-loadscope-reorder --hypothesis-profile repeatable

# Changes the agent's code in one place after another: `tests/histories` must fail for each. A quarter of an hour.
mutants: $(READY)
	$(BIN)/python -m tests.histories.mutants

# Draws new examples. The soak measures the agents' resources, so it runs alone, for ten minutes.
test-full: test-parts
	@$(BIN)/python -m dev.local.kafka.kerberos
	@$(BIN)/python -m dev.local.node_clients
	@$(BIN)/python -m dev.local.kube_apiserver
	$(BIN)/pytest --ignore tests/soak -n 3 --dist loadfile --no-loadscope-reorder
	$(BIN)/pytest tests/soak
	$(BIN)/python -m tests.fuzz --seconds 300
	$(BIN)/python -m dev.ranges oldest
	$(BIN)/python -m dev.ranges newest
	$(BIN)/python -m dev.fresh

# As root: `make demo` and `make test` on new Debian 12, 13 and testing, in roots below build/fresh.
fresh: $(READY)
	$(BIN)/python -m dev.fresh

# Random hostile inputs, new in each run; tests/fuzz/test_corpus.py repeats those that failed once.
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

check: lint types imports deploy-checks

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m dev.phrases

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

# Files that an operator uses unchanged: scripts, the image, manifests, the unit. tests/deploy tests what they do.
deploy-checks: $(READY)
	$(BIN)/shellcheck .ci/run deploy/fleet/rollout deploy/fleet/on-host
	$(BIN)/hadolint deploy/Dockerfile deploy/spark/Dockerfile
	$(BIN)/kubernetes-validate --strict --quiet deploy/kubernetes/*.yaml
	$(BIN)/python -m dev.local.systemd deploy/ts-uploader.service deploy/ts-endpoint.service

# The reference pages are generated from the descriptions in the code; tests compare them.
docs: $(READY)
	$(BIN)/python -m dev.pages

# The release in dist/. WHEELS="agent tsctl" adds the dependencies of these extras, for hosts without an index.
dist: $(BUILDER)/.ready
	$(BUILDER)/bin/python -m dev.dist $(addprefix --wheels ,$(WHEELS))

# All benchmarks run, even if one misses a goal; then the exit status is 1.
bench: setup
	@missed=; for name in decode reader reader_peers reader_memory cold_sql erased tables tables_parsed tables_peers tables_growth endpoint endpoint_store endpoint_many consumer shipping page_cache rate spark worker_memory cold_start pruning find "find --listings" planning verify gc restore latency freshness takeover "takeover --mode kraft" producer_loss many; do \
	  echo "--- python -m dev.bench.$$name"; $(BIN)/python -m dev.bench.$$name || missed="$$missed $$name"; \
	done; test -z "$$missed" || { echo "failed or missed goals:$$missed" >&2; exit 1; }

# Lock files contain versions and hashes, but no address of an index. Several can be installed together, so each begins as a
# copy of dev.txt: uv keeps the versions that it finds in a file.
lock: $(READY)
	for extra in dev agent pyspark spark reader tables endpoint consumer tsctl schemas azure gcs sasl kerberos; do \
	  [ $$extra = dev ] || cp requirements/dev.txt requirements/$$extra.txt; \
	  $(BIN)/uv pip compile -q pyproject.toml --extra $$extra --generate-hashes --no-emit-index-url \
	    --no-emit-find-links --no-header --python-version 3.11 --universal -o requirements/$$extra.txt || exit 1; \
	done
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'])" | \
	  $(BIN)/uv pip compile -q - --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	    --python-version 3.11 --universal -o requirements/build.txt
	echo "venv-pack" | \
	  $(BIN)/uv pip compile -q - --generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	    --python-version 3.11 --universal -o requirements/pack.txt

setup: $(READY)
	@$(BIN)/python -m dev.local.jdk
	@$(BIN)/python -m dev.local.jars

# Servers that only tests use: other stores, a browser for pages, a Prometheus for metrics. Kafka starts more quickly.
test-parts: setup
	@$(BIN)/python -m dev.local.apt chromium chromium
	@$(BIN)/python -m dev.local.apt curl curl
	@$(BIN)/python -m dev.local.stores.hdfs
	@$(BIN)/python -m dev.local.stores.azurite
	@$(BIN)/python -m dev.local.registry
	@$(BIN)/python -m dev.local.prometheus
	@$(BIN)/python -m dev.local.systemd
	@$(BIN)/python -m dev.local.kcat
	@$(BIN)/python -m dev.local.go_programs
	@$(BIN)/python -m dev.local.class_archives
	@# Else each of five processes would rewrite the asserts of all tests, in 10 s of CPU, and compile the decoder, in 5 s.
	@ls tests/__pycache__/conftest.*-pytest-*.pyc > /dev/null 2>&1 || $(BIN)/pytest -q --collect-only > /dev/null || true
	@ls ts_reader/decode/__pycache__/*_decode_records_*.o > /dev/null 2>&1 || $(BIN)/pytest -q $(DECODED) > /dev/null || true

define check_python
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ts-uploader needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1). Give another: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv module is missing: apt-get install python3-venv" >&2; exit 1; }
endef

$(READY): requirements/dev.txt pyproject.toml
	$(check_python)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
	@touch $@

# A release needs setuptools alone, not what a checkout needs.
$(BUILDER)/.ready: requirements/build.txt
	$(check_python)
	$(PYTHON) -m venv $(BUILDER)
	$(BUILDER)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/build.txt
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
