# Every target says what it does; `make` alone prints them.
GO      ?= go
BIN     := bin
VERSION ?= $(shell cat VERSION)
LDFLAGS := -s -w -X berth/internal/cli.Version=$(VERSION)
LINT    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.14.0

.DEFAULT_GOAL := help
.PHONY: help build install test check fmt vet lint race bench fuzz sim soak clean

help: ## print the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/berth and its supervisor bin/berth-keep (static, no C compiler needed)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/berth ./cmd/berth-keep

PREFIX ?= /usr/local
install: build ## copy both programs to PREFIX/bin (default /usr/local/bin)
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(BIN)/berth $(BIN)/berth-keep $(DESTDIR)$(PREFIX)/bin/

test: ## everything CI runs: unit, property, simulation, kill -9 and story tests, with the race detector
	sh scripts/test.sh

check: fmt vet lint race ## format, vet, lint, tests with the race detector

fmt: ## fail if a file is not gofmt'ed
	@out=$$(gofmt -l cmd internal); test -z "$$out" || { echo "not gofmt'ed:"; echo "$$out"; exit 1; }

vet: ## go vet
	$(GO) vet ./...

lint: ## golangci-lint, each linter with its reason in .golangci.yml
	$(GO) run $(LINT) run

race: ## all tests with the race detector
	$(GO) test -race ./...

bench: build ## speed, as ratios against the bare operation in the same run
	$(GO) run ./scripts/bench -berth $(BIN)/berth

FUZZTIME ?= 20s
fuzz: ## run each fuzz target for FUZZTIME (default 20s)
	sh scripts/fuzz.sh $(FUZZTIME)

SEEDS ?= 100000
sim: ## simulate the engine with crashes, SEEDS seeds (default 100000)
	BERTH_SEEDS=$(SEEDS) $(GO) test ./internal/engine -run TestSimulation -count=1 -timeout 0 -v

KILLS ?= 3000
soak: ## kill -9 berth and its supervisors KILLS times (default 3000)
	BERTH_KILLS=$(KILLS) $(GO) test ./internal/soak -count=1 -timeout 0 -v

clean: ## remove what was built
	rm -rf $(BIN)
