# Every target describes itself; `make` alone lists them.
GO      ?= go
BIN     := bin
VERSION ?= $(shell cat VERSION)
LDFLAGS := -s -w -X berth/internal/cli/front.Version=$(VERSION)
# Lazy binding: a driver that lacks an NVML function still works with the others.
# NVML's header warns about deprecated calls even if they are not used.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations
LAZY    := -extldflags=-Wl,-z,lazy
# The linter is built once, and kept in Go's cache.
LINT_VERSION := v2.14.0
LINT    := $(shell $(GO) env GOCACHE)/golangci-lint-$(LINT_VERSION)

.DEFAULT_GOAL := help
.PHONY: help build man install install-service install-links uninstall-links install-slurm-links uninstall-slurm-links test quick check fmt vet lint lint-install race bench bench-check bench-decide live-day fuzz sim soak siege seeds web web-check pictures screens gpu-test dist clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/berth, bin/berth-main and bin/berth-keep (static), and bin/berth-gpu if there is a C compiler
	@echo "building into $(BIN)/ (the first build takes one to two minutes and prints nothing)"
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/berth-keep ./cmd/berth-keep
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/berth-main ./cmd/berth
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/berth ./cmd/berth-front
	@rm -f $(BIN)/berth-gpu
	@if command -v cc >/dev/null; then \
		CGO_ENABLED=1 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION) $(LAZY)' -o $(BIN)/ ./cmd/berth-gpu; \
	else echo "no C compiler (cc): berth-gpu was not built, so berth reads GPUs through nvidia-smi"; fi

man: build ## write the man pages of the verbs and topics into bin/man
	rm -rf $(BIN)/man && $(BIN)/berth help --man $(BIN)/man

# Without root: make install PREFIX=~/.local
PREFIX ?= /usr/local
override PREFIX := $(patsubst ~/%,$(HOME)/%,$(PREFIX))
install: build man ## copy the programs to PREFIX/bin and the man pages to PREFIX/share/man (default /usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin
	for program in berth-keep berth-gpu berth-main berth; do \
		if [ -e $(BIN)/$$program ]; then install -m 755 $(BIN)/$$program $(DESTDIR)$(PREFIX)/bin/; fi; done
	for section in 1 5 7; do \
		install -d $(DESTDIR)$(PREFIX)/share/man/man$$section && \
		install -m 644 $(BIN)/man/man$$section/* $(DESTDIR)$(PREFIX)/share/man/man$$section/ || exit 1; done

# The other schedulers that berth can replace (docs/howto/from-*.md).
NAMES := gpusched gpu-scheduler tgpu mgpu_scheduler_server mgpu_srun mgpu_queue mgpu_cancel
install-links: install ## install, and link berth under the names of other schedulers in PREFIX/bin
	@sh scripts/links.sh install $(DESTDIR)$(PREFIX)/bin $(NAMES)

uninstall-links: ## remove those links from PREFIX/bin
	@sh scripts/links.sh uninstall $(DESTDIR)$(PREFIX)/bin $(NAMES)

SLURM_NAMES := srun scontrol sbatch squeue scancel sinfo sacct salloc sacctmgr sshare
install-slurm-links: install ## install, and link berth under the names of Slurm's programs, where there is no Slurm
	@sh scripts/links.sh install-if-missing $(DESTDIR)$(PREFIX)/bin $(SLURM_NAMES)

uninstall-slurm-links: ## remove those links from PREFIX/bin
	@sh scripts/links.sh uninstall $(DESTDIR)$(PREFIX)/bin $(SLURM_NAMES)

UNITDIR ?= /etc/systemd
install-service: install ## install, and run as a service for all users (systemd, as root); docs/howto/share-a-server.md
	@for unit in berth.service berth.socket user/berth.service user/berth.socket; do \
		case $$unit in user/*) to=$(DESTDIR)$(UNITDIR)/$$unit ;; *) to=$(DESTDIR)$(UNITDIR)/system/$$unit ;; esac; \
		install -d $$(dirname $$to) && sed 's|/usr/local/bin/|$(PREFIX)/bin/|' packaging/$$unit >$$to.new && chmod 644 $$to.new && mv $$to.new $$to || exit 1; \
	done
	@if [ -e $(DESTDIR)/etc/berth/config.toml ]; then echo "kept /etc/berth/config.toml; packaging/config.toml has every key"; \
	else install -d $(DESTDIR)/etc/berth && install -m 644 packaging/config.toml $(DESTDIR)/etc/berth/config.toml; fi
	@if [ -n "$(DESTDIR)" ] || [ ! -d /run/systemd/system ]; then echo "installed; systemd is not running here, so nothing was started"; \
	else systemctl daemon-reload && systemctl enable berth.socket berth.service && systemctl start berth.socket && systemctl restart berth.service; fi

test: ## all tests: lint, unit, property, simulation, kill -9 and story tests, with the race detector
	sh scripts/test.sh

quick: ## while coding: format, vet, and the tests that take no long time, where something changed
	sh scripts/test.sh quick

check: fmt vet lint race ## format, vet, lint, tests with the race detector

fmt: ## fail if a file is not formatted
	@out=$$(gofmt -l cmd docs internal scripts *.go); test -z "$$out" || { echo "run gofmt -w on:"; echo "$$out"; exit 1; }

vet: ## go vet
	$(GO) vet ./...

lint: $(LINT) ## golangci-lint, each linter with its reason in .golangci.yml
	CGO_ENABLED=0 $(LINT) run
	if command -v cc >/dev/null; then CGO_ENABLED=1 $(LINT) run ./cmd/berth-gpu; fi

lint-install: $(LINT)
$(LINT):
	CGO_ENABLED=0 GOBIN=$@.new $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv $@.new/golangci-lint $@ && rmdir $@.new

race: ## all tests with the race detector
	$(GO) test -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false ./...

BENCH := docs/studies/bench.json
bench: build ## measure speed, as ratios to the bare operation in the same run, and write docs/studies/bench.json (at most a quarter of an hour)
	$(GO) run ./scripts/bench -berth $(BIN)/berth -write $(BENCH)

bench-check: build ## measure the rows of docs/studies/bench.json again: one that is a fifth worse fails (three minutes, quiet machine)
	$(GO) run ./scripts/bench -berth $(BIN)/berth -check $(BENCH)

bench-decide: ## measure a decision (budget: p99 1 ms with 10,000 queued jobs, 5 ms with 100,000 different ones), a replay (5 s), and reading 8 GPUs
	$(GO) test ./internal/sched -run '^$$' -bench 'Decide|Explain'
	$(GO) test ./internal/sched/sim -run '^$$' -bench 'Decision|Replay' -benchtime 1x
	@if command -v cc >/dev/null; then $(GO) test ./cmd/berth-gpu -run '^$$' -bench Sample8; fi

FUZZTIME ?= 20s
fuzz: ## run each fuzz target for FUZZTIME (default 20s)
	sh scripts/fuzz.sh $(FUZZTIME)

DAY ?= 1
live-day: build ## run a day of jobs on simulated GPUs and replay it (needs root, twelve minutes; DAY=2 is another day)
	$(GO) run ./scripts/liveday -berth $(BIN)/berth -seed $(DAY)

SEEDS ?= 100000
sim: ## simulate the engine with crashes, SEEDS seeds (default 100000)
	$(GO) test ./internal/queue/engine -run TestSimulation -count=1 -timeout 0 -v -seeds $(SEEDS)

KILLS ?= 10000
soak: ## kill -9 berth, its daemon and its supervisors, KILLS times in all (default 10000, an hour or two)
	BERTH_KILLS=$(KILLS) $(GO) test ./internal/tests/soak -count=1 -timeout 0 -v

siege: ## attack a shared daemon as hostile users (needs root), 10,000 tries per race
	BERTH_SIEGE=1 $(GO) test ./internal/tests/siege -count=1 -timeout 0 -v

seeds: ## list the tests of each promise of the programs that berth replaces (docs/reference/compatibility.md)
	@$(GO) run ./scripts/seeds

web/node_modules: web/package-lock.json
	cd web && npm ci --no-audit --no-fund && touch node_modules

web: web/node_modules ## build the page from web/ into internal/api/web/dist (needs Node 20 or newer)
	cd web && npm run -s build

web-check: web/node_modules ## test the page, and fail if internal/api/web/dist is not what web/ builds
	cd web && npx tsc --noEmit && npm test && npx vite build --logLevel warn --emptyOutDir --outDir ../$(BIN)/page
	diff -r $(BIN)/page internal/api/web/dist || { echo "internal/api/web/dist is not what web/ builds: run make web and commit it"; exit 1; }

pictures: ## draw the pictures of docs/explanation
	$(GO) run ./scripts/pictures

screens: ## make the pictures of README.md, from a daemon with simulated GPUs (needs root and Chromium)
	$(GO) test ./internal/tests/browser -run TestPictures -count=1 -update

BUNDLE := dist/gpu-test
gpu-test: build ## build dist/gpu-test.tar.gz, a test for hosts with a real GPU (docs/studies/hardware.md)
	rm -rf $(BUNDLE) $(BUNDLE).tar.gz && mkdir -p $(BUNDLE)
	cp $(BIN)/berth* $(BUNDLE)/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(BUNDLE)/gpu-test ./scripts/gputest
	tar -C dist -czf $(BUNDLE).tar.gz gpu-test
	@echo "copy $(BUNDLE).tar.gz to a host with a GPU, unpack it, and run ./gpu-test/gpu-test"

dist: ## build wheels, tarballs, deb and rpm packages into dist/, the same bytes for the same commit
	$(GO) run ./scripts/release -out dist

clean: ## remove the build output
	rm -rf $(BIN) dist
