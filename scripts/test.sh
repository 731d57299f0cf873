#!/bin/sh
# All tests, on a machine with Go and perhaps nothing else. Lists what it skips.
set -eu
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }
skipped=""
skip() { skipped="$skipped
  skipped: $*"; }

command -v go >/dev/null || { echo "make test needs Go 1.26 or newer"; exit 2; }

# The race detector needs a C compiler, the examples of the API curl, the siege
# useradd, gpu-scheduler's sessions GNU Screen, and the page npm.
missing=""
command -v cc >/dev/null || command -v gcc >/dev/null || missing="$missing gcc libc6-dev"
command -v curl >/dev/null || missing="$missing curl"
command -v useradd >/dev/null || missing="$missing passwd"
command -v screen >/dev/null || missing="$missing screen"
command -v npm >/dev/null || missing="$missing nodejs npm"
if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	say "installing$missing"
	# shellcheck disable=SC2086 # a list of packages
	{ apt-get update && apt-get install -y --no-install-recommends $missing; } >/dev/null 2>&1 || true
fi
# Chromium is large, and not every archive has it: the rest does not wait for it.
browser() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
if ! browser >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	say "installing chromium"
	[ -n "$missing" ] || apt-get update >/dev/null 2>&1 || true
	apt-get install -y --no-install-recommends chromium >/dev/null 2>&1 || true
fi
browser >/dev/null || skip "the page in a real browser: chromium is missing"
# Slurm's packages start services where systemd would run them.
if ! { command -v slurmctld && command -v slurmdbd && command -v mariadbd; } >/dev/null && [ "$(id -u)" = 0 ] && [ ! -d /run/systemd/system ] && command -v apt-get >/dev/null; then
	say "installing slurm-wlm, munge, slurmdbd and mariadb-server"
	[ -n "$missing" ] || apt-get update >/dev/null 2>&1 || true
	apt-get install -y --no-install-recommends slurm-wlm munge >/dev/null 2>&1 || true
	apt-get install -y --no-install-recommends slurmdbd mariadb-server >/dev/null 2>&1 || true
fi
command -v slurmctld >/dev/null || skip "a real Slurm beside berth: slurm-wlm and munge are missing"
command -v slurmdbd >/dev/null && command -v mariadbd >/dev/null || skip "a real Slurm with accounting: slurmdbd and mariadb-server are missing"
# Prometheus is only unpacked: its package would start a service.
if ! command -v prometheus >/dev/null && command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then
	say "unpacking prometheus"
	tools=$(mktemp -d)
	trap 'rm -rf "$tools"' EXIT
	[ "$(id -u)" != 0 ] || [ -n "$missing" ] || apt-get update >/dev/null 2>&1 || true
	if (cd "$tools" && apt-get download prometheus && dpkg-deb -x prometheus_*.deb .) >/dev/null 2>&1; then
		PATH=$PATH:$tools/usr/bin
	fi
fi
command -v prometheus >/dev/null || skip "a real Prometheus with the board and the alert rules: prometheus is missing"
command -v curl >/dev/null || skip "the examples of docs/reference/api.md: curl is missing"
command -v screen >/dev/null || skip "jobs in screen sessions: screen is missing"
python3 -m venv --help >/dev/null 2>&1 || skip "clients of Slurm (submitit, PSI/J, Parsl, Snakemake, ...): python3 with venv is missing"
command -v nextflow >/dev/null || skip "Nextflow on berth: nextflow is missing"
command -v useradd >/dev/null || skip "tests with several users: useradd is missing"
race="-race"
export CGO_ENABLED=1
export CGO_CFLAGS="-O2 -g -Wno-deprecated-declarations" # NVML's header warns about deprecated calls even if they are not used
if ! command -v cc >/dev/null && ! command -v gcc >/dev/null; then
	race=""
	export CGO_ENABLED=0
	skip "the race detector, and berth-gpu with a fake driver: no C compiler"
fi
[ "$(id -u)" = 0 ] || skip "tests that need root (a full disk on a tmpfs, cgroups, several users, also in a browser)"

say "format and vet"
unformatted=$(gofmt -l cmd internal scripts *.go)
[ -z "$unformatted" ] || { echo "run gofmt -w on: $unformatted"; exit 1; }
go vet ./...

say "a test for every promise of the programs that berth replaces"
make -s seeds-list >/dev/null # missing ones go to stderr

say "the build, with and without a C compiler"
CGO_ENABLED=0 go build -trimpath -o /dev/null ./...
make -s build

say "the page: its tests, and whether the committed bundle is what web/ builds"
if ! command -v npm >/dev/null; then
	skip "the page's own tests and its bundle: npm is missing"
elif [ "$(node -p 'parseInt(process.versions.node)')" -lt 20 ]; then
	skip "the page's own tests and its bundle: expected Node 20 or newer, found $(node --version)"
elif ! make -s web/node_modules >/dev/null 2>&1; then
	skip "the page's own tests and its bundle: npm cannot install what web/package-lock.json names"
else
	make -s web-check
fi

say "the tree itself: its structure, its words, its links"
go run ./scripts/runtests -timeout 20m .

say "all other tests ${race:-without the race detector} (a quarter of an hour)"
# The kill tests take longest. Most tests wait rather than compute, so more packages
# than cores run at a time. Thousands of seeds follow below.
BERTH_SEED=1 BERTH_SEEDS=500 go run ./scripts/runtests $race -p $(($(nproc) + 1)) -timeout 20m ./internal/tests/soak ./cmd/... ./docs/... ./internal/... ./scripts/...

say "the Python client"
if command -v python3 >/dev/null && python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))'; then
	BERTH_BINARY=$PWD/bin/berth python3 -m unittest discover -s python/tests -t python
else
	skip "the Python client: python3 3.9 or newer is missing"
fi

say "thousands of seeds, without the race detector"
BERTH_SEEDS=8000 go test -count=1 -run TestSimulation ./internal/queue/engine
go test -count=1 -run TestDecideIsWhatTheOracleSays ./internal/sched -rapid.checks=100000

say "done$skipped"
