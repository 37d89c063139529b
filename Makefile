# The commands of this repository. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup build test demo bench bench-instructions ablations figures book campaign consumers pauses fuzz sanitize install packages clean

PREFIX ?= /usr/local
SEEDS ?= 2000
FIRST ?= 0
FUZZ_SECONDS ?= 60

help:            ## this list
	@sed -n 's/^\([a-z-]*\): *[a-z ]*## *\(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 26

setup:           ## install what building and testing need (Debian packages, MPI wheels under .venv)
	@scripts/setup.sh

build:           ## compile and stage: target/srd/bin/srd, the software EFA's libraries, the libfabric provider
	@scripts/build.sh

test:            ## set up, build and run every test; ONLY="proto msg": those of these crates, or abi, simulated, cluster, museum, consumers, packages, campaign, fuzz, bench
	@SEEDS=$(SEEDS) ONLY="$(ONLY)" scripts/test.sh

demo:            ## an MPI program over OpenSRD (software EFA, libfabric provider) and over TCP while a spine fails, and on 64 simulated hosts: tables and target/demo/index.html
	@scripts/setup.sh demo
	@scripts/build.sh
	@demo/demo.py

bench: setup build ## latency, bandwidth, message rate, processor time and a short lab suite beside kernel TCP, MPI beside libfabric: docs/RESULTS.md's tables (25 minutes)
	@scripts/bench.sh

bench-instructions: setup build ## instructions of a message in each layer, compared with docs/INSTRUCTIONS.md (a minute)
	@bench/instructions.py

ablations: build ## docs/ABLATIONS.md: what each part of congestion control is good for, simulated (some minutes)
	@target/srd/bin/srd sim sweep sweeps/ablations.toml --markdown docs/ABLATIONS.md

figures: build   ## every published figure and table again, SRD beside its rivals: target/figures/index.html (some minutes)
	@target/srd/bin/srd figures --out target/figures

book:            ## the documents as a book in target/book, if mdBook is installed (cargo install mdbook)
	@command -v mdbook >/dev/null && mdbook build || { echo "book: no mdbook here (cargo install mdbook); the pages are docs/SUMMARY.md's"; exit 1; }

campaign:        ## SEEDS=N [FIRST=N]: the deterministic world, one run per seed, and random programs of messages
	@scripts/campaign.sh $(SEEDS) $(FIRST)

consumers: setup build ## unmodified programs over the software EFA and the provider, also those that take minutes to build; clean, with loss, with a dead path
	@for t in efa srd; do for f in clean loss blackhole; do tests/consumers/run.py --all --transport $$t --fault $$f || exit 1; done; done

pauses:          ## RUNS=N [PAUSES_S=2,31,45]: processes that stand still for so long lose and double no message (minutes)
	@cargo test --release -p srd-libfabric --test pauses -- --ignored --nocapture pauses_of

fuzz:            ## FUZZ_SECONDS=N: fuzz what reads what others wrote, each target that long
	@scripts/fuzz.sh $(FUZZ_SECONDS)

sanitize:        ## tests of the crates with unsafe code under address and thread sanitizer (takes a nightly toolchain)
	@scripts/sanitize.sh

install:         ## PREFIX=/usr/local: install what was built
	@scripts/install.sh "$(PREFIX)"

packages:        ## a wheel for each architecture, opensrd.deb and libfabric-srd.deb in target/packages (compiles all for glibc 2.28)
	@scripts/setup.sh packages
	@packaging/build.sh

clean:           ## remove everything built (not .venv)
	rm -rf target
