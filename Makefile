# Everything that is done with this repository. `make` alone lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --warn-undefined-variables --no-builtin-rules
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO ?= go
# Pinned: another version finds other things.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# What vet looks at: system calls and the size of an int differ, and everything has to compile everywhere.
SYSTEMS := linux/amd64 linux/386 darwin/arm64 windows/amd64
# Of a release build, such as 1.2.3; empty says "devel" and the revision.
VERSION ?=
# How long each fuzz target runs.
FUZZTIME ?= 30s
# More flags for go test and the bench: make test FLAGS=-v, make bench FLAGS=-quick, make bench FLAGS=-h.
FLAGS ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## bin/sox-host and bin/sox-remote, which belong beside each other
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w $(if $(VERSION),-X main.version=$(VERSION))" -o bin/sox-host ./cmd/sox-host
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w $(if $(VERSION),-X main.version=$(VERSION))" -o bin/sox-remote ./cmd/sox-remote

.PHONY: examples
examples: ## bin/plugins: every example as a plugin, ready to be dropped into a plugins folder
	for plugin in echo_v1.0.0 notes_v1.0.0 notes_v1.1.0 counter_v1.0.0 counter_v1.1.0; do \
		CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$${plugin#*_v}" -o "bin/plugins/$$plugin" "./examples/$${plugin%_v*}"; \
	done
	@if python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2> /dev/null; then \
		install -m 755 examples/py-clock/py-clock.py bin/plugins/py-clock_v1.0.0; \
	else echo "py-clock is left out: it needs Python 3.8 or later"; fi
	@if node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2> /dev/null; then \
		install -m 755 examples/node-dice/node-dice.cjs bin/plugins/node-dice_v1.0.0; \
	else echo "node-dice is left out: it needs Node 20 or later"; fi

.PHONY: demo
demo: ## an upgrade, a rollback and a refusal while a client calls without pause; under a minute
	@echo "the demo is being built"
	@$(GO) run ./integration/demo

# Without this every program with the race detector takes a second to end.
RACE := atexit_sleep_ms=0
# Packages that are linked into people's programs, and those that test whole programs from outside.
LIBRARIES := ./host/... ./plugin/... ./sdk/...
PROGRAMS := ./cmd/... ./examples/... ./integration/...
.PHONY: test
test: ## every test in random order, the libraries with the race detector; under five minutes on two cores
	GORACE=$(RACE) $(GO) test -race -shuffle=on -timeout 15m -p 4 $(FLAGS) $(LIBRARIES)
	$(GO) test -shuffle=on -timeout 15m $(FLAGS) $(PROGRAMS)

.PHONY: race
race: ## the tests of whole programs once more, with the race detector in them and in the host
	GORACE=$(RACE) $(GO) test -race -shuffle=on -timeout 20m -p 1 $(FLAGS) $(PROGRAMS)

.PHONY: integration
integration: ## only the tests with real binaries and real clients
	$(GO) test -shuffle=on -timeout 15m $(FLAGS) ./integration/...

.PHONY: interop
interop: integration/interop/node_modules/.package-lock.json ## servers and clients of other makers, from npm; needs Node 20, takes some minutes
	$(GO) test -v -tags interop -timeout 15m ./integration/interop $(FLAGS)

# npm writes this file last.
integration/interop/node_modules/.package-lock.json: integration/interop/package-lock.json
	cd integration/interop && npm ci
	touch $@

.PHONY: check
check: ## formatting, vet for each system, staticcheck, go.mod
	@unformatted="$$(git ls-files -z '*.go' | xargs -0 gofmt -l)"; \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi
	for system in $(SYSTEMS); do echo "vet for $$system"; CGO_ENABLED=0 GOOS=$${system%/*} GOARCH=$${system#*/} $(GO) vet ./...; done
	$(GO) run $(STATICCHECK) ./...
	$(GO) mod tidy -diff

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (30s)
	$(GO) list ./... | while read -r package; do \
		{ $(GO) test -list '^Fuzz' "$$package" | grep '^Fuzz' || true; } | while read -r target; do \
			echo "fuzz $$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "$$package"; \
		done; \
	done

# Reports and plots of the bench; ignored by git.
BENCH_OUT := integration/bench/out
BENCH := mkdir -p $(BENCH_OUT) && CGO_ENABLED=0 $(GO) run ./integration/bench

.PHONY: bench
bench: ## cost of calls, of a start and of an idle host, as ratios to the least possible, and against bench-baseline; minutes; Linux
	@$(BENCH) -out $(BENCH_OUT)/latest.json $(if $(wildcard $(BENCH_OUT)/baseline.json),-baseline $(BENCH_OUT)/baseline.json) $(FLAGS)

.PHONY: bench-baseline
bench-baseline: ## the same, kept for later runs of bench to be compared with
	@$(BENCH) -out $(BENCH_OUT)/baseline.json $(FLAGS)

.PHONY: bench-peers
bench-peers: ## calls through sox-host and through proxies of other makers, in the same rounds; needs Node 20
	@$(BENCH) -peers -out $(BENCH_OUT)/peers.json $(FLAGS)

.PHONY: bench-growth
bench-growth: ## cost by the number of plugins, tools and hosts, with plots in integration/bench/out
	@$(BENCH) -growth -plots $(BENCH_OUT) -out $(BENCH_OUT)/growth.json $(FLAGS)

.PHONY: bench-events
bench-events: ## latency of calls during upgrades, and beside plugins that flood, freeze and crash
	@$(BENCH) -events -out $(BENCH_OUT)/events.json $(FLAGS)

.PHONY: dev-bench
dev-bench: ## fifty saves of sox-host dev under load, and how much longer a save takes than go build
	$(GO) test -v -timeout 30m -run 'TestDevUnderLoad|TestDevIsQuick' ./integration -dev.saves 50 -dev.timed 50 $(FLAGS)

# How long the soak goes on, and with which seed; 0 is one at random.
DURATION ?= 3m
SEED ?= 0
.PHONY: soak
soak: ## break everything at random for DURATION (3m) from SEED, and prove that every promise was kept; Linux
	$(GO) run ./integration/soak -duration $(DURATION) -seed $(SEED) $(FLAGS)

.PHONY: soak-mutants
soak-mutants: ## builds that break a promise on purpose: the soak has to catch each within a minute; Linux
	@report="$$(mktemp)"; trap 'rm -f "$$report"' EXIT; \
	for plant in replay_all answer_twice lose_list_changed close_before_drain id_float; do \
		$(GO) run ./integration/soak -duration 60s -seed 7 -partial -json "$$report" -tags planted_$$plant || true; \
		grep -o '"invariant": "[^"]*"' "$$report" | sort | uniq -c || { echo "planted_$$plant was not caught"; exit 1; }; \
		: > "$$report"; \
	done

.PHONY: reliability
reliability: ## the tests that kill, crash and restart, a hundred times each; Linux
	$(GO) test -timeout 15m -run thundering ./host/internal/shared -rounds 100
	$(GO) test -timeout 60m -run 'Killed|Frozen|LeavesInTime|NullInput|Frame|Reads|WhereItWas|LongDay|RestartLoop|Death|QueueAndGiveUp|RollsUnderLoad' $(FLAGS) ./integration -reliability.rounds 100 -reliability.timed

.PHONY: cover
cover: ## test coverage of each package, and cover.out for go tool cover -html
	$(GO) test -shuffle=on -timeout 15m -coverprofile=cover.out -coverpkg=./host/...,./plugin/...,./sdk/...,./cmd/... ./cmd/... ./host/... ./plugin/... ./sdk/...
	$(GO) tool cover -func=cover.out | tail -n 1

.PHONY: release-check
release-check: ## the tag of this commit is the top entry of CHANGELOG.md, and nothing waits under Unreleased
	@tag="$$(git describe --tags --exact-match 2>/dev/null)" || { echo "this commit has no tag"; exit 1; }; \
	unreleased="$$(awk '/^## /{n++; next} n==1 && NF' CHANGELOG.md)"; \
	top="$$(grep -m1 -oE '^## v?[0-9]+\.[0-9]+\.[0-9]+[^ ]*' CHANGELOG.md | sed -E 's/^## v?//')"; \
	[ "v$$top" = "$$tag" ] || { echo "the tag is $$tag, the top entry of CHANGELOG.md is $$top"; exit 1; }; \
	if grep -q '^## Unreleased' CHANGELOG.md && [ -n "$$unreleased" ]; then echo "entries under Unreleased:"; echo "$$unreleased"; exit 1; fi; \
	echo "$$tag is in CHANGELOG.md"

.PHONY: clean
clean: ## remove what the other targets made
	rm -rf bin cover.out
