# Every command a newcomer needs. `make up` and `make test` prepare what they need by themselves.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Tests, demonstration and benchmarks start hundreds of processes: each would compile all of the source anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help up test soak demo bench simulate lint unit spark spark-standalone

help:            ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | column -t -s "$$(printf '\t')"

# Debian and its kin package the part of Python that makes environments by itself.
$(VENV)/runtime: pyproject.toml
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		apt-get update -qq && apt-get install -y -qq python3-venv; } || \
		{ echo "$(PYTHON) cannot make environments: install python3-venv (sudo apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(VENV)/dev: $(VENV)/runtime
	$(BIN)/pip install --quiet --editable '.[spark]' --group dev
	@touch $@

$(VENV)/bench: $(VENV)/runtime
	$(BIN)/pip install --quiet --group bench
	@touch $@

up: $(VENV)/runtime   ## start a broker in the foreground, its data under ./var
	@$(BIN)/angarium up --data var

lint: $(VENV)/dev     ## style, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Tests in network namespaces need nftables; where it cannot be had they are skipped, and say why.
$(VENV)/nft: $(VENV)/runtime
	@command -v nft >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		apt-get update -qq && apt-get install -y -qq nftables iproute2; } || true
	@touch $@

unit: $(VENV)/dev $(VENV)/nft     ## every test but Spark's: units, store, simulation and processes
	$(BIN)/pytest -n auto --dist worksteal -m 'not soak' --ignore tests/spark

# Spark needs Java; where it cannot be had these tests are skipped, and say why.
$(VENV)/java: $(VENV)/runtime
	@command -v java >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		apt-get update -qq && apt-get install -y -qq openjdk-17-jre-headless; } || true
	@touch $@

spark: $(VENV)/dev $(VENV)/java   ## Spark against a real broker, in one session
	$(BIN)/pytest tests/spark -m 'not soak'

SOURCE_AND_SINK := $(addprefix tests/spark/test_spark_, batch.py stream.py write.py speculation.py)
spark-standalone: $(VENV)/dev $(VENV)/java ## the same tests of source and sink, on a master and two workers of Spark
	ANGARIUM_SPARK=standalone $(BIN)/pytest $(SOURCE_AND_SINK)

soak: $(VENV)/dev $(VENV)/java    ## the long tests: Spark's processes killed at every stage of a write, the whole demonstration
	$(BIN)/pytest -m soak tests

# Spark's tests come one after the other, in one of the processes; others fill the time in which they wait. What failed
# of real processes is tried once more, alone (tests/second_try.py says when).
test: lint $(VENV)/nft $(VENV)/java ## everything that must hold and takes minutes only, on a fresh machine
	$(BIN)/pytest --cache-clear -n auto --dist loadscope -m 'not soak' || $(BIN)/python -m tests.second_try $$?

$(VENV)/spark: $(VENV)/runtime
	$(BIN)/pip install --quiet --editable '.[spark]'
	@touch $@

demo: $(VENV)/spark $(VENV)/java ## a tour that ends by itself: kill -9 in the middle, nothing confirmed is lost; Spark audits it
	@$(BIN)/python -m benchmarks.demo

bench: $(VENV)/bench  ## ours and the peers that are installed, in one run, with ratios
	@$(BIN)/python -m benchmarks.run

SEEDS ?= 20000
START ?= 0
WORLD ?= all
JOBS  ?= 0
simulate: $(VENV)/runtime ## 20,000 seeds of all simulated worlds, on all cores: make simulate SEEDS=500 START=20000 WORLD=cluster
	@$(BIN)/python -m angarium.sim --world $(WORLD) --seeds $(SEEDS) --start $(START) --jobs $(JOBS)
