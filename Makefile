# Everything that is done with this repository. `make` alone lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --warn-undefined-variables --no-builtin-rules
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

GO ?= go
# Pinned: another version finds other things.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# What vet looks at: system calls differ, and everything has to compile everywhere.
SYSTEMS := linux darwin windows
# Of a release build, such as 1.2.3; empty says "devel" and the revision.
VERSION ?=
# How long each fuzz target runs.
FUZZTIME ?= 30s
# More flags for go test and the bench: make test FLAGS=-v, make bench FLAGS=-quick.
FLAGS ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## bin/sox-host
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w $(if $(VERSION),-X main.version=$(VERSION))" -o bin/sox-host ./cmd/sox-host

.PHONY: examples
examples: ## bin/plugins: echo 1.0.0, notes 1.0.0 and 1.1.0, ready to be dropped into a plugins folder
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=1.0.0" -o bin/plugins/echo_v1.0.0 ./examples/echo
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=1.0.0" -o bin/plugins/notes_v1.0.0 ./examples/notes
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=1.1.0" -o bin/plugins/notes_v1.1.0 ./examples/notes

.PHONY: demo
demo: ## an upgrade, a rollback and a refusal while a client calls without pause; under a minute
	@$(GO) run ./integration/demo

.PHONY: test
test: ## every test, with the race detector and in random order; about five minutes on two cores
	$(GO) test -race -shuffle=on -timeout 15m $(FLAGS) ./...

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
	for system in $(SYSTEMS); do echo "vet for $$system"; CGO_ENABLED=0 GOOS=$$system $(GO) vet ./...; done
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

.PHONY: bench
bench: ## cost of a call, of a start and of an idle host, as ratios to the least possible; some minutes
	$(GO) run ./integration/bench $(FLAGS)

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
	$(GO) test -timeout 60m -run 'Killed|Frozen|Frame|Reads|WhereItWas|RestartLoop|Death|QueueAndGiveUp|RollsUnderLoad' -reliability.rounds 100 $(FLAGS) ./integration

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
