# Everything runs from two commands on a bare Debian 12 with Python 3.11, Go 1.26 and root: `make demo`, `make test`.
# Every step says what it does and how long it took. What is there already is not made again.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

# Where torch comes from: testbed/torch_build.py decides. TORCH_WHEELS: a folder with its CPU wheel; TORCH=cpu|cuda picks
# the build. Both are for the whole run: image builds read them, too.
export TORCH_WHEELS
export TORCH
# The machine's own certificates: a package index may be behind one that only this machine knows.
export UV_SYSTEM_CERTS ?= 1

# pytest and hypothesis behave differently when these are set; the checks are the same everywhere.
unexport CI
unexport BUILD_NUMBER
# A test run starts hundreds of processes: each would compile all its modules again.
unexport PYTHONDONTWRITEBYTECODE
# Two cores are worth more than spinning threads.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE
# What the next run need not find out again, where its checkout is a fresh one. By place: mypy locks its cache.
CACHE := $(or $(GRAPHPOD_CACHE),$(HOME)/.cache/graphpod)
export MYPY_CACHE_DIR ?= $(CACHE)/mypy$(CURDIR)
export GRAPHPOD_STARTED := $(or $(GRAPHPOD_STARTED),$(shell date +%s))

COMPILE = $(VENV)/bin/uv pip compile --quiet --generate-hashes --no-header --no-annotate --python-version 3.11 \
	--python-platform x86_64-manylinux_2_28

# $(call step,NAME,COMMANDS): the commands in one shell that stops at the first failure, then a line with their time.
define step
@SECONDS=0; $(2); echo "$(1): $$SECONDS s"
endef

# $(call option,NAME,VARIABLE): --NAME=value when the variable is set. docs/operations/install.md lists them all.
option = $(if $($(2)),--$(1)='$($(2))')
DEMO_CLUSTER = $(call option,cluster,CLUSTER) $(call option,confirm,CONFIRM)

.PHONY: eagle-head help demo demo-down test check lint truth truth-ranks ranks samples search families support-matrix schemas peer-suites clients fuzz-api bench bench-graphs bench-front bench-operator bench-operator-growth bench-operator-gates chaos traffic ranks-node groups-node sleep-node gpus-node monitoring boards sources alerts endurance upgrade-check mutation bench-testbed images plugin images-demo images-check images-cuda crd docs lock venv tools packages

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 24

demo: venv ## from nothing to an answer on a cluster made for it; CLUSTER=current: on your own
	@$(RUN) -m demo up $(DEMO_CLUSTER) $(call option,images,IMAGES) $(call option,load,LOAD) \
		$(call option,operator-image,OPERATOR_IMAGE) $(call option,runtime-image,RUNTIME_IMAGE) \
		$(call option,demo-weights-image,WEIGHTS_IMAGE) $(call option,storage-class,CLASS)

demo-down: venv ## take away what demo made, there or (CLUSTER=current) in your own cluster
	@$(RUN) -m demo down $(DEMO_CLUSTER)

# Compiled Python, for the next run at this place: in a fresh environment each worker would compile every library.
COMPILED := $(CACHE)/pyc

test: export PYTHONPYCACHEPREFIX := $(COMPILED)
# API servers, etcd, kubectl and helm collect garbage four times as seldom: an eighth of their processor seconds.
test: export GOGC := 400
# Types are checked and images are built while one process collects the tests. Tests that need an image wait for it, or
# build it where that failed. Where lint fails the tests are interrupted, and fail even if they ignore that, as
# processes in the background of a script do. Not by the name MAKE: make -n would run the tests, too.
test: AGAIN = $(MAKE)
test: tools ## every check: lint, unit, and on clusters api, sim and e2e
	@rm -rf $(COMPILED)$${TMPDIR:-/tmp} # of copies that tests made
	@tests=$$(mktemp); trap 'rm -f "$$tests"' EXIT; \
		( $(AGAIN) lint || { echo 'lint failed: the tests end'; kill -INT $$(cat "$$tests") 2>/dev/null || :; exit 1; } ) & lint=$$!; \
		$(AGAIN) images & \
		( echo $$BASHPID > "$$tests"; exec $(RUN) -m pytest -m 'not gpu and not slow' --numprocesses 5 --durations 10 ); \
		wait $$lint

check: lint ## the inner loop: lint and the tests that your changes touch; ALL=1: all that need no cluster
	@$(RUN) -m tests.touched $(if $(ALL),--all) $(if $(BASE),--base='$(BASE)')

lint: venv ## ruff, mypy, import law
	$(call step,ruff,$(VENV)/bin/ruff check --quiet .; $(VENV)/bin/ruff format --quiet --check .)
	$(call step,mypy,$(VENV)/bin/mypy)
	$(call step,imports,$(VENV)/bin/lint-imports --no-logo)

# On a GPU: DEVICE=cuda RUN=python3, in an environment with torch's CUDA build; WEIGHTS=DIR is SmolLM2's folder there.
truth: DEVICE ?= cpu
truth: JOBS ?= $(if $(filter cuda,$(DEVICE)),6,1)
truth: $(if $(filter cuda,$(DEVICE)),,venv) ## every graph policy against eager, by scenario and model family; table in docs/reference
	@status=0; $(RUN) -m truth --device $(DEVICE) --jobs $(JOBS) --json truth/results/$(DEVICE).json $(if $(WEIGHTS),--weights='$(WEIGHTS)') \
		$(if $(filter cpu,$(DEVICE)),--weights "$$($(RUN) -m demo.weights | tail -n 1)") $(TRUTH) || status=$$?; \
		$(RUN) -m truth --page; exit $$status

# Over N ranks, STAGES of N ranks, or N ranks with experts in EXPERTS parts; on as many GPUs: DEVICE=cuda RUN=python3. Ends
# after 58 minutes with what it has, and goes on by the next call. Every fault in every row: TRUTH=--all; from the
# beginning: TRUTH=--again; a part: TRUTH='--sample 60 --minutes 7'.
truth-ranks: DEVICE ?= cpu
truth-ranks: N ?= 2
truth-ranks: RANKS = $(N)_ranks$(if $(STAGES),_$(STAGES)_stages)$(if $(EXPERTS),_$(EXPERTS)_experts)
truth-ranks: $(if $(filter cuda,$(DEVICE)),,venv) ## every graph policy over N ranks against eager of one, an hour at most; table in docs/reference
	@status=0; OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(RUN) -m truth --device $(DEVICE) --tensor-parallel $(N) \
		$(if $(STAGES),--pipeline-parallel $(STAGES)) $(if $(EXPERTS),--expert-parallel $(EXPERTS)) --minutes 58 \
		--json truth/results/$(DEVICE)_$(RANKS).json $(TRUTH) || status=$$?; \
		$(RUN) -m truth --page; exit $$status

samples: venv tools ## in full what `make test` runs a sample of: prompts, requests, FP8 weights, values, killed testbeds, helms
	@$(RUN) -m pytest -q -m 'slow and not gpu' tests/unit tests/api/chart tests/api/operator/test_schema.py \
		$(addprefix tests/e2e/test_,truth.py testbed.py bad_weights.py current.py)

# More passes, or a part: make search PASSES=5 OF=tests/unit/operator
search: PASSES ?= 1
search: OF ?= tests/unit tests/contracts
search: export GRAPHPOD_VALUES := search
search: venv ## values by chance, ten times as many as `make test` tries, which are the same in each run; an hour a pass
	@for pass in $$(seq $(PASSES)); do $(RUN) -m pytest -q -m 'hypothesis and not slow and not gpu' $(OF) || exit 1; done

# Goes on where it was ended. A part, or all again: make support-matrix SUPPORT='--only GlmForCausalLM', SUPPORT=--again
support-matrix: venv ## families by graph policy and number format, each cell from a run; table in docs/reference
	@$(RUN) -m truth.support $(SUPPORT)

# Goes on where it was ended. A part, or all again: make families FAMILIES='--only phi3 gpt2', FAMILIES=--again. Other
# configurations, by chance: FAMILIES='--drawn 0 200'
families: venv ## every causal model type of transformers through the engine, equal to transformers; table in docs/reference
	@$(RUN) -m truth.families $(FAMILIES)

# A part: make peer-suites PEERS='--suite vllm --file test_chat.py'
peer-suites: venv .venv-clients/.installed ## other projects' test suites against our engine; table in docs/reference/api-compatibility.md
	@$(RUN) -m peers $(PEERS)

# More, or fewer: make fuzz-api FUZZ='--bodies 1000 --connections 200'
fuzz-api: venv ## mutated bodies, broken streams, slow senders, 2000 connections: answers documented, nothing left behind
	@$(RUN) -m peers.fuzz $(FUZZ)

# A part: make ranks RANKS='-k pipeline'
ranks: venv ## models over several processes, every case: stages, shares, policies, families, faults; 20 minutes at most
	@OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(RUN) -m pytest -q tests/unit/runtime/ranks $(RANKS)

# A part: make clients CLIENTS='-k langchain'
clients: venv .venv-clients/.installed ## openai, LangChain, LiteLLM, LlamaIndex, instructor, anthropic and lm-eval against our engine
	@$(RUN) -m peers.clients $(CLIENTS)

.venv-clients/.installed: locks/clients.txt | $(VENV)/bin/uv
	$(call step,venv-clients,$(VENV)/bin/uv venv --quiet --clear --python $(RUN) .venv-clients; \
		$(VENV)/bin/uv pip install --quiet --python .venv-clients/bin/python --require-hashes -r locks/clients.txt; touch $@)

bench: export OMP_NUM_THREADS := $(shell nproc)
bench: venv ## prefill and decode on this machine, as ratios, and a chat over HTTP; results in benchmarks/results
	@model="$$($(RUN) -m demo.weights | tail -n 1)"; $(RUN) -m benchmarks.cpu_generate --model "$$model"; \
		$(VENV)/bin/graphpod-engine bench serve --model "$$model" --suite cpu --again --json benchmarks/results/bench_serve_cpu.json

# On a GPU: DEVICE=cuda RUN=python3, in an environment with torch's CUDA build; WEIGHTS=DIR is SmolLM2's folder there.
eagle-head: DEVICE ?= cpu
eagle-head: $(if $(filter cuda,$(DEVICE)),,venv) ## trains the EAGLE head of SmolLM2 on its own answers, in draft_heads/; goes on where it was interrupted
	@$(RUN) -m draft_heads --device $(DEVICE) --model "$(or $(WEIGHTS),$$($(RUN) -m demo.weights | tail -n 1))" $(HEAD)

# Another model: make bench-graphs MODEL=/path/to/folder; on a GPU: graphpod-engine bench graphs --help
bench-graphs: export OMP_NUM_THREADS := $(shell nproc)
bench-graphs: venv ## what graphs bring on this machine: a table, a picture and benchmarks/results/bench_graphs_*
	@model="$(or $(MODEL),$$($(RUN) -m demo.weights | tail -n 1))"; out=benchmarks/results/bench_graphs_$$(basename "$$model"); \
		$(VENV)/bin/graphpod-engine bench graphs --quick --model "$$model" --json $$out.json --png $$out.png

bench-front: venv ## CPU time of a streamed token in the front, against the front before it wrote by pass; two minutes idle
	@$(RUN) -m benchmarks.front_streams --json benchmarks/results/front_streams.json

# More: make bench-operator SCALE='--services 300 --runs 2 --floor'
SCALE ?= --services 1000 --json --page --gate
bench-operator: venv tools ## the operator with 1000 services: time, memory, writes, restart, failover; about five minutes idle
	@$(RUN) -m benchmarks.operator_scale $(SCALE)

bench-operator-growth: venv tools ## how much longer do 5000 services take than 1000? about 50 minutes idle
	@status=0; $(RUN) -m benchmarks.operator_scale.growth --json --gate || status=$$?; \
		$(RUN) -m benchmarks.operator_scale.page; exit $$status

bench-operator-gates: venv tools ## that, and five runs with 1000: results, picture, page and gates; 80 minutes idle
	@status=0; $(RUN) -m benchmarks.operator_scale.growth --json --gate || status=$$?; \
		$(RUN) -m benchmarks.operator_scale --services 1000 --runs 5 --floor --json --gate --set-gates \
			--png benchmarks/results/operator_scale.png || status=$$?; \
		$(RUN) -m benchmarks.operator_scale.page; exit $$status

bench-testbed: venv tools ## each level of the testbed up and down, many times: does anything stay?
	@$(RUN) -m benchmarks.testbed_cycles --level api --cycles 50
	@$(RUN) -m benchmarks.testbed_cycles --level sim --cycles 10
	@$(RUN) -m benchmarks.testbed_cycles --level node --nodes 2 --cycles 10

schemas: venv ## 1000 JSON schemas of other projects, answered under their grammars: each answer valid; page in docs/reference
	@$(RUN) -m benchmarks.schemas --packages "$${XDG_CACHE_HOME:-$$HOME/.cache}/graphpod/schemas" \
		--tokenizer "$$($(RUN) -m demo.weights | tail -n 1)"

# A part of it, whose rows take the place of their earlier ones: make chaos ROWS='watch and delete'
chaos: export GRAPHPOD_CHAOS := benchmarks/results/chaos.json
chaos: venv tools ## break everything the operator stands on, in every scenario; counts in benchmarks/results
	@status=0; $(RUN) -m pytest tests/sim/chaos tests/api/operator -m chaos -s -q $(if $(ROWS),-k '$(ROWS)') || status=$$?; \
		$(RUN) -m tests.sim.chaos.page; exit $$status

traffic: venv tools images ## ask and stream all through both rollouts, a killed operator and a drained node
	@$(RUN) -m pytest tests/e2e/test_traffic.py -s -q

ranks-node: venv tools images ## a service of several ranks on a real node: answered, one rank killed, restarted with its cause
	@$(RUN) -m pytest tests/e2e/test_ranks.py -m slow -s -q

sleep-node: venv tools images ## a service on a real node sleeps, wakes with the same answer, and takes new weights in place
	@$(RUN) -m pytest tests/e2e/test_asleep.py -m slow -s -q

groups-node: venv tools images ## a service over two real nodes by LeaderWorkerSet: answered, its worker killed, its group made again, rolled
	@$(RUN) -m pytest tests/e2e/test_groups.py -m slow -s -q

gpus-node: venv tools images ## services of 2, 4 and 4 GPUs on a real node with eight from a device plugin: the third waits and says for what
	@$(RUN) -m pytest tests/e2e/test_gpu_scheduling.py -m slow -s -q

monitoring: venv ## test alerts and dashboards with a real Prometheus
	@$(RUN) -m testbed build promtool prometheus dashboard-linter alertmanager kube-state-metrics prometheusconfig
	@$(RUN) -m pytest -q tests/monitoring tests/e2e/monitoring/test_scrape.py

boards: export GRAPHPOD_FILLED := benchmarks/results/boards.json
boards: export GRAPHPOD_BOARDS := docs/how-to/boards
boards: venv tools images ## the chart on real nodes, an example, a load with faults and a rollout: which panels have data; pictures in docs/how-to/boards
	@$(RUN) -m testbed build prometheus prometheusconfig
	@$(RUN) -m pytest -q -s tests/e2e/monitoring/test_filled_boards.py

sources: export GRAPHPOD_SOURCES := benchmarks/results/sources.json
sources: venv tools images ## hub, object storage and registry on real nodes, each to an answer; Jobs that are killed; benchmarks/results/sources.json
	@rm -f $(GRAPHPOD_SOURCES)
	@$(RUN) -m pytest -q -s tests/e2e/test_sources.py

alerts: export GRAPHPOD_ALERTS := benchmarks/results/alerts.json
alerts: venv ## every fault fires its alert in a real Alertmanager and a healthy hour fires none; benchmarks/results/alerts.json
	@$(RUN) -m testbed build promtool prometheus alertmanager kube-state-metrics prometheusconfig
	@$(RUN) -m pytest -q -s tests/e2e/monitoring/test_alerts.py

endurance: venv tools ## what takes the operator minutes: half an hour of quiet, watches frozen for ever, faults by chance
	@$(RUN) -m pytest -q -m slow tests/api/operator

# Another commit: make upgrade-check BASE=COMMIT
upgrade-check: export GRAPHPOD_UPGRADE_BASE := $(BASE)
upgrade-check: venv tools ## what an upgrade from an earlier commit changes: plans of 4000 specs, and both operators on one API server
	@$(RUN) -m tests.upgrade_check $(if $(BASE),--base='$(BASE)')
	@$(RUN) -m pytest -q -m slow tests/api/operator/test_upgrade_from_commit.py

# One part alone: python -m benchmarks.mutation --help
mutation: venv ## small faults in engine, operator, front and policy: do the tests find them? results in benchmarks/results
	@status=0; $(RUN) -m benchmarks.mutation --table --drawn 60 --json benchmarks/results/mutation.json || status=$$?; \
		$(RUN) -m benchmarks.mutation.policy "$$(mktemp -d)" || status=$$?; exit $$status

images: venv packages ## container images, as OCI layouts in the cache
	@$(RUN) -m testbed.images build operator runtime

images-demo: venv packages ## operator, runtime and the weights of the demo, as `make demo CLUSTER=current` needs them
	@weights="$$($(RUN) -m demo.weights | tail -n 1)"; \
		$(RUN) -m testbed.images build operator runtime demo-weights --weights "$$weights"

images-check: venv packages ## build operator and runtime twice from nothing and compare them byte by byte
	@$(RUN) -m testbed.images.reproducible operator runtime

# flashinfer's kernels built ahead of time: a folder or .tgz laid out as its own cache; without it the image has none.
KERNELS ?=
images-cuda: venv packages ## the image for NVIDIA GPUs, and a look inside; needs 30 GB of disk while it runs
	@$(RUN) -m testbed.images.cuda_image $(if $(KERNELS),--kernels $(KERNELS))

plugin: venv ## the archive of the kubectl plugin, for krew
	@$(RUN) -m plugin.archive dist/kubectl-graphpod.zip

crd: venv ## crds/, docs/reference/, rules and the chart's copies, from the code
	$(call step,crd,$(VENV)/bin/graphpod crd --out crds; $(VENV)/bin/graphpod docs; $(RUN) -m monitoring; \
		$(RUN) -m graphpod_runtime.front.reference docs/reference/http.md; \
		cp crds/*.yaml operator/graphpod_operator/rbac*.yaml charts/graphpod/files/)

# Its own environment: nothing of it reaches the engine, the operator or their tests. With --quiet mkdocs counts no
# warnings, and --strict would pass whatever is broken.
docs: .venv-docs/.installed ## the documentation as a site in site/; every link is checked
	$(call step,docs,NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict 2>&1 | { grep -vE '^INFO|^ *$$' || true; })

.venv-docs/.installed: locks/docs.txt | $(VENV)/bin/uv
	$(call step,venv-docs,$(VENV)/bin/uv venv --quiet --clear --python $(RUN) .venv-docs; \
		$(VENV)/bin/uv pip install --quiet --python .venv-docs/bin/python --require-hashes -r locks/docs.txt; touch $@)

lock: venv ## locks/ from pyproject.toml; needs torch's CPU wheel
	$(call step,locks,from="$$($(RUN) -m testbed.torch_build options)"; \
		grep -oE 'uv>=[^"]*' pyproject.toml | $(COMPILE) - -o locks/uv.txt; \
		$(COMPILE) pyproject.toml --extra operator -o locks/operator.txt; \
		$(COMPILE) pyproject.toml --extra runtime --extra families -c locks/cpu.in $$from -o locks/runtime-cpu.txt; \
		$(COMPILE) pyproject.toml --extra gpu --extra families -c locks/cuda.in -o locks/runtime-cuda.txt; \
		$(COMPILE) pyproject.toml --extra dev -c locks/cpu.in $$from -o locks/dev.txt; \
		$(COMPILE) pyproject.toml --extra dev -c locks/cuda.in -o locks/dev-cuda.txt; \
		$(COMPILE) --group docs -o locks/docs.txt; \
		$(COMPILE) --group clients -o locks/clients.txt)

tools: venv ## Debian packages and Kubernetes binaries
	@$(RUN) -m testbed build

packages: venv ## the Debian packages alone
	@$(RUN) -m testbed build --packages

venv: $(VENV)/.installed ## the Python environment in .venv

$(VENV)/.installed: locks/dev.txt locks/dev-cuda.txt pyproject.toml $(VENV)/.torch $(VENV)/bin/uv
	$(call step,venv,$(RUN) -m testbed.torch_build install; touch $@)

# The environment with uv alone, which is all that the documentation needs.
$(VENV)/bin/uv: locks/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
		|| { echo 'error: $(PYTHON) is not Python 3.11, for which the locks are: make PYTHON=/path/to/python3.11 …' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2> /dev/null || { echo 'venv: installing the Debian package python3-venv …'; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv > /dev/null; }
	$(call step,uv,[ -x $(RUN) ] || $(PYTHON) -m venv $(VENV); \
		$(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/uv.txt; touch $@)

# What TORCH asked for last time: another build is another environment.
$(VENV)/.torch: FORCE
	@mkdir -p $(VENV); [ "$(TORCH)" = "$$(cat $@ 2> /dev/null || echo none)" ] || echo '$(TORCH)' > $@
.PHONY: FORCE
FORCE:
