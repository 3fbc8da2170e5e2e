# Two commands do all the set-up: `make test` and `make demo`. They need Rust (cargo) and Go 1.26.3 or newer.

SHELL := /usr/bin/env bash
CARGO ?= cargo
# Tests wait most of the time: three for each core, up to eight, as each runs several API servers of 400 MB.
export RUST_TEST_THREADS ?= $(shell n=$$(( 3 * $$(nproc 2>/dev/null || echo 1) )); echo $$(( n > 8 ? 8 : n )))
# Attacks keep the processor busy and say how long others wait meanwhile: a third as many at a time.
attack_threads = $(shell n=$$(( $(RUST_TEST_THREADS) / 3 )); echo $$(( n > 0 ? n : 1 )))
# make demo KEEP=1 leaves the demo running until Ctrl-C, make demo REAL=1 shows it on real API servers with the real Flux.
KEEP ?=
REAL ?=
export KEEP

.PHONY: help servers demo-servers bench-servers bench-fleet-servers programs test long model histories faults fuzz mutants core-mutants demo bench bench-fleet soak soak-graph shipped dashboards page page-rig lint deny advisories doc reference manifests scripts generate version static image check-image package push sign cargo

help: ## Show this
	@awk -F': .*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

cargo:
	@command -v $(CARGO) >/dev/null || { echo "error: cargo is not on PATH: install Rust ($$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer)" >&2; exit 1; }

servers: ## Build the servers that `make test` and the demo run, once, into a cache outside the clone
	@tests/servers/install.sh

bench-servers: ## Build what the benchmark runs
	@tests/servers/install.sh kubernetes etcd prometheus crossplane-changelog kube-state-metrics

# Tests and demo start these. They would build them themselves, but in silence, and apart from the
# rest of the workspace with other features of the same libraries, which means building those twice.
debug := $(abspath $(or $(CARGO_TARGET_DIR),target))/debug
release := $(abspath $(or $(CARGO_TARGET_DIR),target))/release
test long demo faults manifests: export STATUSBRIDGE_BIN_DIR ?= $(debug)

programs: cargo
	$(CARGO) build --workspace --bins

test: cargo servers programs ## Run the tests, on the real servers
	@failed=0; \
	$(CARGO) test --workspace --no-fail-fast -- --skip attacks:: || failed=1; \
	RUST_TEST_THREADS=$(attack_threads) $(CARGO) test --workspace --test end_to_end -- attacks:: || failed=1; \
	exit $$failed

long: export ATTACK_THREADS = $(attack_threads)
long: cargo programs ## Try attacks that take minutes, and recipes and pipelines with programs that take minutes to build, and note that in tests/long.txt
	@tests/long.sh

demo-servers:
	@tests/servers/install.sh kubernetes etcd prometheus kustomize-controller

ifeq ($(REAL),)
demo: cargo ## Watch a rollout through the gates, with no cluster (REAL=1: on the real servers; KEEP=1 leaves it running)
	$(CARGO) build -p statusbridge-exporter -p statusbridge-aggregator --bins
	@demo/run $(debug)
else
demo: cargo demo-servers programs
	@$(debug)/demo
endif

# SEED tries the same ones again.
model: cargo ## Try N generated histories (default 5000), always new ones, on the code that decides
	seed=$(or $(SEED),$$(od -An -N4 -tu4 /dev/urandom)) && echo SEED=$$seed && \
	STATUSBRIDGE_MODEL_SEED=$$seed STATUSBRIDGE_MODEL_HISTORIES=$(or $(N),5000) $(CARGO) test --release -p statusbridge-aggregator --lib -- --nocapture model

histories: cargo ## Play random histories for MINUTES (60) on seeds that were not played before, and note them in tests/histories.tsv
	@tests/histories.sh $(or $(MINUTES),60) $(N)

# TRANSPORT=victoria-metrics puts one behind Prometheus, TRANSPORT=push has exporters push. ONLY=Sweeper makes only the faults of that
# name before the storm. See docs/proof.md.
faults: export STATUSBRIDGE_FAULTS_MINUTES = $(MINUTES)
faults: export STATUSBRIDGE_FAULTS_SEED = $(SEED)
faults: export STATUSBRIDGE_FAULTS_TRANSPORT = $(TRANSPORT)
faults: export STATUSBRIDGE_FAULTS_ONLY = $(ONLY)
faults: cargo servers programs ## Every fault, then a storm of MINUTES (default 10) from SEED, on the real servers
	$(CARGO) test -p statusbridge-tests --test end_to_end -- --ignored --nocapture --exact faults::every_fault_and_a_long_storm

# NAME="…" runs only tests whose names have that: see tests/fuzz.sh.
fuzz: cargo ## Look for bytes that break a parser, SECONDS (600) for each
	@tests/fuzz.sh $(or $(SECONDS),600) $(NAME)

# NAME="…" breaks only what has that in its name.
mutants: cargo ## Break rules on purpose for MINUTES (60), and note in docs/mutants.md which tests notice
	@tests/mutants.sh $(or $(MINUTES),60) $(NAME)

# PART="…" tries only files with that in their path, JOBS=1 one file at a time.
core-mutants: cargo ## Have cargo-mutants break the core for MINUTES (60), and note in tests/core-mutants.tsv what no test notices
	@tests/core_mutants.sh $(or $(MINUTES),60) $(PART)

# What is measured is what ships.
shipped := $(CURDIR)/target/static/$(if $(filter aarch64 arm64,$(shell uname -m)),arm64,amd64)
shipped: cargo
	@SBOM=0 deploy/static $(notdir $(shipped))

# BENCH=packages, resources, joins, central, series, churn or changelog runs one part, PACKAGES="…", RESOURCES="…", JOINS="…",
# CENTRAL="…" and SERIES="…" say with how many, MINUTES how long churn takes (60): see docs/bench.md.
bench: cargo bench-servers shipped ## Measure the exporter beside kube-state-metrics, and memory for an hour of new names
	$(CARGO) build --release -p statusbridge-tests --bin bench
	STATUSBRIDGE_BIN_DIR=$(shipped) $(release)/bench

# VALUES=file changes values of dashboards/values.yaml, OUT=directory writes elsewhere.
dashboards: cargo ## Write Grafana dashboards, recording and alerting rules
	$(CARGO) run -p statusbridge-dashboards -- --out $(or $(OUT),dashboards) $(if $(VALUES),--values $(VALUES))

bench-fleet-servers:
	@tests/servers/install.sh kubernetes etcd victoria-metrics prometheus $(if $(filter engines,$(BENCH)),mimir thanos victoria-metrics-cluster)

# BENCH=generated, victoria, propagation or engines runs one part, CLUSTERS and PACKAGES say how large, SPEAKERS how many management
# clusters tell of them, ROLLOUTS and WAVES how many packages are rolled out: see docs/bench-fleet.md. ENGINE=mimir, thanos or victoria
# is one of the engines, MINUTES how long each is watched: see docs/engine.md.
bench-fleet: export MIMALLOC_PURGE_DELAY ?= $(shell sed -n 's/^ENV MIMALLOC_PURGE_DELAY=//p' deploy/Containerfile)
bench-fleet: cargo bench-fleet-servers shipped ## Measure the aggregator over ten thousand clusters
	$(CARGO) build --release -p statusbridge-tests --bin bench_fleet
	STATUSBRIDGE_BIN_DIR=$(shipped) $(release)/bench_fleet

# Each run adds a stretch to TO (docs/soak.tsv); SEED lives the same life again, STATUSBRIDGE_BIN_DIR takes the programs from there.
# See docs/soak.md.
soak: export STATUSBRIDGE_BIN_DIR ?= $(debug)
soak: cargo programs ## Run everything for MINUTES (default 60), note memory, descriptors, series and etcd, and fail where one grows
	@tests/servers/install.sh kubernetes etcd prometheus
	@$(debug)/soak

soak-graph: cargo ## Draw what the soak has noted so far, and print which figures grow
	$(CARGO) run -p statusbridge-tests --bin soak -- graph

# The binaries have page/dist in them, so that building them needs no Node. CHROMIUM=program tests in another browser.
page-rig: export FLEET = $(abspath $(or $(CARGO_TARGET_DIR),target))/debug/fleet_on_command
page-rig: cargo programs ## Try the page in a real browser over a real aggregator, hub and Prometheus
	@tests/servers/install.sh kubernetes etcd prometheus
	@page/install
	cd page && node_modules/.bin/vitest run --dir rig

page: ## Build the page of packages by clusters, and test it in a real browser
	@page/check

lint: cargo ## Check formatting and clippy, warnings denied
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

deny: cargo ## Check licences, sources and bans of dependencies
	@tools/deny bans licenses sources

advisories: cargo ## Look for known vulnerabilities in dependencies, in RustSec's database
	@tools/deny advisories

doc: cargo ## Build the API documentation, warnings denied
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

reference: cargo ## Write the reference pages in docs/: API, sources, metrics
	$(CARGO) run -p statusbridge-reference

manifests: cargo programs ## Check charts, kustomize bases and all other manifests, without a cluster
	@deploy/check

scripts: ## Check workflows and shell scripts
	@deploy/lint

generate: ## Write what in deploy/ is made from something else
	@deploy/generate

# make version VERSION=1.2.3 makes that the version, everywhere.
version: ## Print the version, or change it
	@deploy/version $(VERSION)

# PROFILE=dev is quicker, SBOM=0 leaves out the bill of materials.
static: cargo ## Build static binaries for amd64 and arm64 into target/static
	@deploy/static

# PREBUILT=1 takes what `make static` has left; BUILDER=…, IMAGE_PREFIX=registry.example.org/statusbridge/, TAG=… .
BUILDER ?= $(firstword $(foreach b,docker podman buildah,$(if $(shell command -v $(b) 2>/dev/null),$(b))))
TAG ?= $(shell deploy/version)
image: ## Build all container images
	@test -n "$(BUILDER)" || { echo "error: there is no docker, podman or buildah; make static builds the binaries" >&2; exit 1; }
	for program in statusbridge-exporter statusbridge-aggregator statusbridge-changelog statusbridge; do \
	  $(BUILDER) build --file deploy/Containerfile --target $$program $(if $(PREBUILT),--build-arg BINARIES=prebuilt) \
	    --tag $(IMAGE_PREFIX)$$program:$(TAG) . || exit 1; \
	done

check-image: ## Build all container images from what `make static` has left, and look into them
	@deploy/check-image

# The rest is what a release consists of: REGISTRY=ghcr.io/example SOURCE=https://github.com/example/statusbridge.
package: ## Pack binaries, charts, CRDs, checksums and notes of a release into target/release-files
	@deploy/package

push: ## Push images and charts to REGISTRY
	@deploy/push

sign: ## Sign what was pushed, and the checksums, with cosign
	@deploy/sign
