# Everything that is done with this tree, by name; `make help` lists it. All of it happens in .venv.
SHELL = /bin/sh
.DEFAULT_GOAL = help
.DELETE_ON_ERROR:
# One target after another, whatever -j says: each compiles or tests in parallel itself.
.NOTPARALLEL:

# python3, or the first newer one if python3 is older than 3.11
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && exit; done; echo python3)
VENV = .venv
PY = $(VENV)/bin/python
PIP = $(PY) -m pip install --quiet --disable-pip-version-check
# pycodestyle's codes that cython-lint ignores too. Left to itself, cython-lint starts a pycodestyle for each file: 10 s.
NO_CYTHON = E121,E123,E126,E133,E203,E211,E225,E226,E227,E241,E242,E251,E271,E272,E275,E4,E704,E9,W5
# programs of .venv, for what calls them by name
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
COMPILED = $(shell find src spark/fast/src -name '*.pyx' | sed 's,^.*src/,,; s,\.pyx$$,,; s,/,.,g' | sort)
# Compiled modules that import the consensus engine: their stubs are only checked if it is here.
NEEDS_ENGINE = pyjs.consensus.batch pyjs.consensus.member pyjs.consensus.outbox pyjs.consensus.round
CHECKED = $(if $(shell $(PY) -c 'import pyjs_raft' 2> /dev/null && echo yes),$(COMPILED),$(filter-out $(NEEDS_ENGINE),$(COMPILED)))
TIMED = @.ci/timed
COMMA := ,
CONF ?= conf/jetstream.conf
ARGS ?=
# .ci/spark runs the other tests of the data source, where it can
# Two more than cores: tests that wait for a server or a timer leave theirs to the others.
WORKERS = $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
WITHOUT_SPARK = tests raft/tests spark/tests/package/test_wheels.py

.PHONY: help serve test cluster-faults cluster-jetstream cluster-kills cluster-mixed cluster-rolling cluster-linear spark spark-matrix spark-demo spark-kills spark-restarts spark-size check build dev bench cluster-bench copy-bench groups-bench workers-bench startup scaling hostile assets connections doors-bench siege embed-bench embed-soak peer-suite cli-walk fuzz-doors conformance recordings history packaging site schemas declarations fuzz soak crash sim asan lag clean declared-histories browser screenshots tools wheels release-check
.PHONY: cluster raft-wheel raft-check sim-raft raft-bench consensus-bench node-log-bench
.PHONY: preflight format lint types stubtest layers tidy share

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

# -- running and testing -----------------------------------------------------------------------------------------

serve: build ## build, then run the server on conf/jetstream.conf (CONF=another, ARGS="-D -V")
	exec $(VENV)/bin/pyjs-server -c $(CONF) $(ARGS)

test: dev ## the whole test suite (ARGS="tests/unit -k parser" for a part of it)
	PYJS_REQUIRE=$(PYJS_REQUIRE) $(if $(ARGS),,.ci/spark beside )env PYJS_REQUIRE=$(subst $(COMMA)spark,,$(PYJS_REQUIRE)) $(PY) -m pytest -n $(WORKERS) --durations 15 -rsfE $(or $(ARGS),$(shell .ci/spark can && echo $(WITHOUT_SPARK)))

spark: dev ## the tests of the data source for Spark, in an environment of their own (Java 17; PYSPARK=4.2 for an older one)
	@.ci/spark $(if $(PYSPARK),--pyspark $(PYSPARK)) $(ARGS)

spark-matrix: dev ## the same, each test with a JVM on both servers and with Spark's own settings (ARGS="spark/tests/jvm/datasource/test_sink.py")
	@PYJS_SPARK_MATRIX=1 .ci/spark $(if $(PYSPARK),--pyspark $(PYSPARK)) $(ARGS)

spark-demo: build ## a million messages through sink, archive, windows and replay, reconciled (ARGS="--messages 20000")
	@.ci/spark run benchmarks/spark_demo.py $(ARGS)

spark-kills: dev ## Spark killed with -9, every message counted: WHAT=stream SERVER=peer ARGS="--kills 20"
	@.ci/spark run -m spark.tests.kills.kills $(or $(WHAT),all) --server $(or $(SERVER),ours) $(ARGS)

spark-restarts: dev ## a query stopped with 2 cores, continued with 4 and another minPartitions (ARGS="--times 20 --server peer")
	@.ci/spark run -m spark.tests.kills.restarts $(ARGS)

spark-size: dev ## ten million messages through Spark, each checked, and the memory of the workers (ARGS="--rows 1000000")
	@.ci/spark run benchmarks/spark_size.py --ours "$(PY) -m pyjs" $(ARGS)

check: dev format lint types stubtest layers tidy share ## format, lint, types, stubs, layers, tidiness

conformance: dev ## every scenario against the real nats-server, none against its recording (ARGS="-k pull/")
	PYJS_CONFORMANCE=live PYJS_REQUIRE=peer $(PY) -m pytest -n auto tests/conformance $(ARGS)

recordings: dev ## record nats-server for scenarios that are new or changed (ARGS="--all pull/")
	$(PY) -m tests.conformance.harness.recordings $(ARGS)
	PYJS_CONFORMANCE=record $(PY) -m pytest -q tests/conformance/test_cluster_streams.py tests/conformance/test_cluster_operating.py

history: dev ## two thousand random histories of publishes on both servers, each answer and all that is left compared (SEEDS=0-1999)
	$(PY) -m tests.history --seeds $(or $(SEEDS),0-1999) $(ARGS)

site: $(VENV)/.docs ## the manual as a site in build/site/, with a search (Sphinx)
	$(PY) -m sphinx -q -W --keep-going -c docs/site . build/site
	@echo "== open build/site/index.html"

$(VENV)/.docs: pyproject.toml | preflight $(PY)
	@.ci/install docs
	@touch $@

browser: dev ## Chromium (with apt, as root) and axe-core, for the tests of the dashboard
	$(TIMED) browser .ci/browser install

screenshots: browser ## the pictures of the dashboard in docs/
	$(PY) -m tests.support.screenshots

declared-histories: dev ## random histories of edits of a file that declares streams, with kill -9: a hundred on one server, twenty on three (SEEDS=0-99)
	$(PY) -m tests.declared --seeds $(or $(SEEDS),0-99) $(ARGS)
	$(PY) -m tests.declared --seeds $(or $(SEEDS),0-19) --nodes 3 $(ARGS)
	$(PY) -m tests.declared --reload 10000

packaging: dev ## sdist, wheels and image file; the whole sdist is compiled
	PYJS_PACKAGING=whole $(PY) -m pytest --timeout 0 tests/style/test_packaging.py spark/tests/package/test_wheels.py $(ARGS)

wheels: dev ## sdists and wheels of all distributions in dist/, and a first message with each where no compiler is (needs cargo; Java for Spark)
	.ci/wheels build
	.ci/wheels check

release-check: dev ## everything before a release: versions, changelog, licences, files for systemd, Docker and Helm (needs Go, hadolint, systemd)
	.ci/release-check $(ARGS)

schemas: dev ## every API document of the scenarios against the JSON schemas of nats-io/jsm.go, fetched with Go
	PYJS_REQUIRE=schemas $(PY) -m pytest tests/conformance/test_schemas.py $(ARGS)

declarations: dev ## tables of options and JSON schemas in docs/, from the declarations
	$(PY) -m tests.support.declarations

fuzz: dev ## a million mutated protocol sequences, a million requests with values at the border, a million cases at the doors, configuration files
	PYJS_FUZZ_CASES=$(or $(CASES),1000000) PYJS_BORDER_CASES=$(or $(CASES),1000000) PYJS_CONFIG_CASES=$(or $(CASES),1000000) PYJS_FUZZ_SOCKET_CASES=$(or $(CASES),200000) PYJS_DOOR_CASES=$(or $(CASES),1000000) PYJS_JWT_CASES=$(or $(CASES),200000) PYJS_ROUTE_CASES=$(or $(CASES),200000) PYJS_RAFT_CASES=$(or $(CASES),1000000) PYJS_BATCH_CASES=$(or $(CASES),1000000) PYJS_ARCHIVE_CASES=$(or $(CASES),1000000) PYJS_IMPORT_CASES=$(or $(CASES),5000) PYJS_NODE_LOG_CASES=$(shell expr $(or $(CASES),1000000) / 200) $(PY) -m pytest --timeout 0 tests/fuzz raft/tests/test_fuzz.py $(ARGS)

fuzz-doors: dev ## a million damaged CONNECTs, signatures of proxies, tokens, TLS records, WebSocket frames and PROXY headers in all (CASES=100000)
	PYJS_FUZZ_CASES=$(shell expr $(or $(CASES),1000000) / 4) PYJS_JWT_CASES=$(shell expr $(or $(CASES),1000000) / 10) PYJS_DOOR_CASES=$(shell expr $(or $(CASES),1000000) / 4) $(PY) -m pytest --timeout 0 tests/fuzz/test_websocket.py tests/fuzz/test_doors.py tests/fuzz/test_jwt.py $(ARGS)

soak: dev ## hours of fuzz and kill -9: ten million sequences, a thousand kills
	PYJS_FUZZ_CASES=10000000 PYJS_FUZZ_SOCKET_CASES=2000000 PYJS_KILL_CYCLES=1000 $(PY) -m pytest --timeout 0 tests/fuzz tests/system/test_kill.py $(ARGS)

cluster-jetstream: dev ## JetStream on three real servers: kill -9 of leaders, new starts, copies, reported faults (needs make cluster; SERVER=peer: nats-server too)
	PYJS_CLUSTER_PROCESSES=1 $(if $(filter peer,$(SERVER)),PYJS_CLUSTER_PEER=1 PYJS_REPORTED_PEER=1) $(PY) -m pytest tests/system/test_cluster_jetstream.py tests/system/test_cluster_consumers.py tests/system/test_cluster_copies.py tests/system/test_cluster_recipe.py tests/system/test_cluster_reported.py tests/system/test_cluster_rolling.py tests/system/test_declared_cluster.py $(ARGS)

cluster-faults: dev ## a hundred leaves and joins of a cluster under load, dead connections, a full disk
	PYJS_CLUSTER_CYCLES=$(or $(CYCLES),100) $(PY) -m pytest --timeout 0 tests/system/test_cluster_faults.py $(ARGS)

cluster-kills: dev ## three servers with JetStream: leaders killed, paused, cut off, under load; everything checked (CYCLES=1000 SERVER=peer FAULTS=kill,power,flip)
	$(PY) -m tests.failover kills --cycles $(or $(CYCLES),1000) --server $(or $(SERVER),ours) --mode $(or $(MODE),default) $(if $(FAULTS),--faults $(FAULTS)) $(ARGS)

cluster-rolling: dev ## three servers with JetStream restarted one by one, then replaced, under load of nats-py, without an error (ROUNDS=100 SERVER=peer WAYS=term,ldm,replace,evacuate)
	$(PY) -m tests.failover.rolling --rounds $(or $(ROUNDS),100) --server $(or $(SERVER),ours) --ways $(or $(WAYS),term,ldm,replace,evacuate) $(ARGS)

cluster-mixed: dev ## an hour of kills, stops, pauses, partitions, full disks and jumping clocks at random, under load; needs root (MINUTES=5 SERVER=peer SEED=2 REPORT=file.md)
	$(PY) -m tests.failover kills --cycles 1000000 --minutes $(or $(MINUTES),60) --server $(or $(SERVER),ours) --seed $(or $(SEED),1) --faults kill,stop,pause,isolate,mute,split,clock,full $(if $(REPORT),--markdown $(REPORT)) $(ARGS)

cluster-linear: dev ## a million operations on registers under such faults, judged by Porcupine, which Go builds (OPERATIONS=20000 SERVER=peer)
	$(PY) -m tests.failover linear --operations $(or $(OPERATIONS),1000000) --server $(or $(SERVER),ours) --mode $(or $(MODE),default) $(if $(FAULTS),--faults $(FAULTS)) $(ARGS)

crash: dev ## faults of process, disk and power, for hours: WHAT=damage SERVER=peer MODE=always ARGS="--cycles 50"
	$(PY) -m tests.crash $(or $(WHAT),damage) --server $(or $(SERVER),ours) --mode $(or $(MODE),default) $(ARGS)
sim: dev ## ten thousand seeds of the simulation with a crashing disk (SEEDS=0-9999, JOBS=1)
	$(PY) -m tests.sim --seeds $(or $(SEEDS),0-9999) --jobs $(or $(JOBS),1) $(ARGS)
	$(PY) -m tests.sim.net --seeds $(or $(SEEDS),0-9999)

sim-raft: dev ## ten thousand seeds of the bare consensus engine, on the node log, and of a node's use of both: networks, disks, crashes (SEEDS=0-9999, ARGS='--mutant "forgets its vote"')
	$(PY) -m raft.tests.sim --seeds $(or $(SEEDS),0-9999) $(ARGS)
	$(PY) -m raft.tests.sim --seeds $(or $(SEEDS),0-9999) --log
	$(PY) -m tests.sim.consensus --seeds $(or $(SEEDS),0-9999) $(ARGS)

asan: dev ## unit tests, fuzzers and some conformance tests of a copy compiled with AddressSanitizer and UBSan, in build/asan
	PYTHON=$(CURDIR)/$(PY) .ci/asan $(ARGS)

siege: dev ## strangers at every door for minutes, under reloads and in lame duck mode (SECONDS=600)
	PYJS_SIEGE_S=$(or $(SECONDS),600) $(PY) -m pytest --timeout 0 -s tests/system/test_siege.py $(ARGS)

lag: dev ## callbacks of the event loop over 20 ms, by name, with a million subjects, 5,000 consumers and 2,000 streams there
	PYJS_LAG=whole $(PY) -m pytest -s tests/lag $(ARGS)

raft-bench: build ## the consensus engine alone: an entry, a group asleep and awake, a group's memory
	$(PY) raft/bench.py $(ARGS)

node-log-bench: build ## the node log: an entry on its way to the disk, and the reading of 256 MiB at a start
	$(PY) benchmarks/node_log.py $(ARGS)

bench: build ## this server and nats-server, interleaved, under the native load driver
	$(PY) benchmarks/run.py $(ARGS)

consensus-bench: build ## three nodes of a replicated group in one process: processor time of an entry on leader and follower
	$(PY) benchmarks/consensus.py $(ARGS)

cluster-bench: build ## three servers of a cluster beside three nats-servers (ARGS="--rounds 5 --only reqrep")
	$(PY) benchmarks/cluster.py $(ARGS)

copy-bench: build ## a replica added to a large stream under load: publish waits before and during the copy (ARGS="--mb 10240 --dir DIRECTORY")
	$(PY) benchmarks/copy_replica.py $(ARGS)

groups-bench: build ## 10,000 replicated streams on three servers: memory, idle, a lost server, lists (ARGS="lists --count 1000 --only peer")
	$(PY) benchmarks/groups.py $(ARGS)

workers-bench: build ## one process beside several workers of this server (ARGS="--workers 4 --clients 16")
	$(PY) benchmarks/workers.py $(ARGS)

startup: build ## exec to PONG beside bare Python and nats-server
	$(PY) benchmarks/startup.py $(ARGS)

scaling: build ## 10,000 consumers, a million subjects, ten million deletes: both servers (docs/scaling.md)
	$(PY) benchmarks/scaling.py $(ARGS)

connections: build ## 10,000 idle and 1,000 active connections: both servers (ARGS="--idle 1000 --active 100")
	$(PY) benchmarks/connections.py $(ARGS)

doors-bench: build ## TLS, WebSocket, permissions, tokens, imports, handshakes and wrong logins: both servers (ARGS="--rounds 3")
	$(PY) benchmarks/run.py --rounds 5 --only 1-1- --only jspub-tls --only jspub-ws --only jspub-perm --only jspub-jwt --only jspub-import --only reqrep- --only handshakes --only quiet- $(ARGS)

assets: build ## many consumers and streams, and few descriptors: both servers (ARGS="consumers --scale 0.1")
	$(PY) benchmarks/assets.py $(ARGS)

hostile: build ## attacks and heavy requests: what a quiet client notices of them, both servers (ARGS="--only bcrypt --rounds 3")
	$(PY) benchmarks/hostile.py $(ARGS)

embed-bench: build ## what a start and a stop inside a Python program take, on each loop (ARGS="--times 1000")
	$(PY) benchmarks/embedding.py $(ARGS)

embed-soak: build ## a thousand starts and stops in one process: memory, descriptors, threads
	$(PY) benchmarks/embedding.py --soak $(or $(TIMES),1000) $(ARGS)

peer-suite: dev ## other clients' own tests: NATS_PY=<checkout> NATS_C=<built checkout>
	$(PIP) aiofiles aiohttp nkeys
	$(PY) -m tests.peer_suite $(if $(NATS_PY),--nats-py $(NATS_PY)) $(if $(NATS_C),--nats-c $(NATS_C)) $(ARGS)

cli-walk: dev $(if $(PYJS_NATS_CLI),,build/bin/nats) ## the nats command, and all commands of the manual; Go builds it, or PYJS_NATS_CLI=<program>
	PYJS_REQUIRE=peer,cli PYJS_NATS_CLI=$(or $(PYJS_NATS_CLI),$(CURDIR)/build/bin/nats) $(PY) -m pytest -n 2 tests/conformance/test_cli.py tests/conformance/test_cli_operators.py tests/conformance/test_cli_cluster.py tests/docs/test_pages.py $(ARGS)

# nats-top and the exporter are built from a checkout: NATS_TOP=, EXPORTER=<checkout>, or a clone of the newest version.
NATS_TOP ?= build/src/nats-top
EXPORTER ?= build/src/prometheus-nats-exporter
TOOLS = $(addprefix build/bin/,nats nats-top prometheus-nats-exporter promql)

tools: dev $(TOOLS) ## the exporter, its dashboards, nats-top and nats report the same of both servers; Go builds them
	PYJS_REQUIRE=peer,tools PYJS_TOOLS=$(CURDIR)/build/bin PYJS_DASHBOARDS=$(abspath $(EXPORTER))/walkthrough $(PY) -m pytest tests/conformance/test_tools.py $(ARGS)

build/src/%:
	git clone --quiet --depth 1 https://github.com/nats-io/$* $@

build/bin/nats-top: | $(NATS_TOP)
	$(TIMED) nats-top env GOWORK=off go build -C $(NATS_TOP) -mod=mod -o $(CURDIR)/$@ .

build/bin/prometheus-nats-exporter: | $(EXPORTER)
	$(TIMED) "the exporter" env GOWORK=off go build -C $(EXPORTER) -mod=mod -o $(CURDIR)/$@ .

build/bin/promql: tests/conformance/promql/main.go
	mkdir -p build/promql
	cp $< build/promql
	printf 'module promql\n\nrequire github.com/prometheus/prometheus v0.305.0\n' > build/promql/go.mod
	$(TIMED) "the query engine" env GOWORK=off go build -C build/promql -mod=mod -o ../bin/promql .

build/bin/nats:
	mkdir -p build/natscli
	printf 'module walk\n\nrequire github.com/nats-io/natscli v0.4.0\n' > build/natscli/go.mod
	$(TIMED) "the nats command" env GOWORK=off go build -C build/natscli -mod=mod -o ../bin/nats github.com/nats-io/natscli/nats

# -- the parts of check ------------------------------------------------------------------------------------------

format: dev
	$(TIMED) format $(VENV)/bin/ruff format --check --quiet .

lint: dev
	$(TIMED) ruff $(VENV)/bin/ruff check --quiet .
	$(TIMED) pycodestyle $(VENV)/bin/pycodestyle --max-line-length 118 --ignore $(NO_CYTHON) --exclude build --filename '*.pyx,*.pxd,*.pxi' src spark tests benchmarks
	$(TIMED) cython-lint $(VENV)/bin/cython-lint --no-pycodestyle src spark tests benchmarks
	$(TIMED) cython-warnings $(PY) .ci/cython-warnings

types: dev
	$(TIMED) types $(VENV)/bin/mypy

stubtest: dev
	$(TIMED) stubtest env PYTHONPATH=spark/src:spark/fast/src $(PY) -m mypy.stubtest --concise --ignore-disjoint-bases --ignore-missing-stub \
		--allowlist .ci/stubtest-allowlist.txt --ignore-unused-allowlist $(CHECKED)

layers: dev
	$(TIMED) layers $(PY) -m pytest tests/style/test_layers.py

tidy: dev
	$(TIMED) tidy $(PY) -m pytest tests/style/test_tidy.py tests/style/test_objects.py tests/style/test_build.py

share:
	@.ci/share

lines:
	@.ci/lines $(ARGS)

# -- building ----------------------------------------------------------------------------------------------------

build: $(VENV)/.runtime ## compile what changed, in place, in parallel
	@PYTHONPATH=src $(PY) -W ignore .ci/build

dev: $(VENV)/.tools build

preflight:
	@PYTHON="$(PYTHON)" .ci/preflight

# The package is installed in editable form: .venv runs src/ itself, never a copy of it.
$(PY): | preflight
	@echo "== making $(VENV) with $$($(PYTHON) --version)"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml | preflight $(PY)
	@echo "== building; this takes a minute or two"
	@.ci/install
	@touch $@

# Whoever begins with the tools has the rest from the same installation.
$(VENV)/.tools: pyproject.toml | preflight $(PY)
	@echo "== building, and adding the tools for tests and checks; this takes a minute or two"
	@.ci/install test check docs
	@touch $(VENV)/.runtime $(VENV)/.docs $@

cluster: build ## the consensus engine for .venv: WHEEL=<file>, the wheel in dist/, or built with cargo
	@.ci/raft install

raft-wheel: $(PY) ## the engine's wheel in dist/, for every Python from 3.11 on (needs cargo)
	@.ci/raft wheel

raft-check: build ## build the engine with cargo, check its stub and run its tests in Rust
	@.ci/raft check

clean: ## remove everything that was built, .venv too; data/ stays
	rm -rf $(VENV) .venv-spark .venv-spark-* build dist src/*.egg-info spark/src/*.egg-info spark/fast/build spark/fast/src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src spark raft tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
	find src spark raft -name '*.so' -exec rm -f {} +
