#!/bin/sh
# All tests, on a machine with Go and perhaps nothing else. Lists what it skips.
# With "quick", only what needs no other program and takes no long time.
set -eu
cd "$(dirname "$0")/.."
export GOFLAGS="${GOFLAGS:-} -trimpath" # as berth is built: tests and programs share what is compiled
export CGO_ENABLED=0                     # two flavours are compiled: this one, and one with the race detector
export CGO_CFLAGS="-O2 -g -Wno-deprecated-declarations" # NVML's header warns about deprecated calls even if they are not used

say() { printf '\n== %s\n' "$*"; }
skipped=""
skip() { skipped="$skipped
  skipped: $*"; }
has() { for program; do command -v "$program" >/dev/null || return 1; done; }

has go || { echo "make test needs Go 1.26 or newer"; exit 2; }
formatted() {
	say "format"
	unformatted=$(gofmt -l cmd docs internal scripts *.go)
	[ -z "$unformatted" ] || { echo "run gofmt -w on: $unformatted"; exit 1; }
}
stories='^Test(Stories|SomeStories)'
if [ "${1:-}" = quick ]; then
	formatted
	go vet ./...
	# Packages that nothing touched are not tested again.
	# shellcheck disable=SC2046 # a list of packages
	BERTH_SEED=1 BERTH_SEEDS=100 go test -short -timeout 10m -p $(($(nproc) + 2)) -skip "$stories" $(go list ./... | grep -v '/slurm\|/tests/\|/browser\|scripts/gputest\|compat/')
	exit
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export BERTH_TEST_BIN="$scratch/bin" # the packages share the programs that they build
mkdir "$BERTH_TEST_BIN"

updated=""
install() { # WHAT PACKAGE...: as root, where there is apt
	[ "$(id -u)" = 0 ] && has apt-get || return 0
	say "installing $*"
	[ -n "$updated" ] || { apt-get update >/dev/null 2>&1 || true; }
	updated=yes
	apt-get install -y --no-install-recommends "$@" >/dev/null 2>&1 || true
}
missing=""
has cc || missing="$missing gcc libc6-dev"
has curl || missing="$missing curl"
has useradd || missing="$missing passwd"
has screen || missing="$missing screen"
has debootstrap || missing="$missing debootstrap"
has rpm || missing="$missing rpm"
has npm || missing="$missing nodejs npm"
# shellcheck disable=SC2086 # a list of packages
[ -z "$missing" ] || install $missing
# Chromium is large, and not every archive has it: the rest does not wait for it.
browser() { has chromium || has chromium-browser || has google-chrome; }
browser || install chromium
# Slurm's packages start services where systemd would run them.
if ! has slurmctld slurmdbd mariadbd && [ ! -d /run/systemd/system ]; then
	install slurm-wlm munge
	install slurmdbd mariadb-server
fi
# Prometheus is only unpacked: its package would start a service.
if ! has prometheus && has apt-get dpkg-deb; then
	say "unpacking prometheus"
	[ "$(id -u)" != 0 ] || [ -n "$updated" ] || apt-get update >/dev/null 2>&1 || true
	(cd "$scratch" && apt-get download prometheus && dpkg-deb -x prometheus_*.deb .) >/dev/null 2>&1 && PATH=$PATH:$scratch/usr/bin
fi
browser || skip "the page in a real browser: chromium is missing"
has slurmctld || skip "a real Slurm beside berth: slurm-wlm and munge are missing"
has slurmdbd mariadbd || skip "a real Slurm with accounting: slurmdbd and mariadb-server are missing"
has prometheus || skip "a real Prometheus with the board and the alert rules: prometheus is missing"
has debootstrap && [ "$(id -u)" = 0 ] || skip "the deb and rpm packages in a new Debian: it needs root and debootstrap"
has rpm || skip "the rpm package: rpm is missing"
has curl || skip "the examples of docs/reference/api.md: curl is missing"
has screen || skip "jobs in screen sessions: screen is missing"
python3 -m venv --help >/dev/null 2>&1 || skip "clients of Slurm (submitit, PSI/J, Parsl, Snakemake, ...): python3 with venv is missing"
has nextflow || skip "Nextflow on berth: nextflow is missing"
has useradd || skip "tests with several users: useradd is missing"
[ "$(id -u)" = 0 ] || skip "tests that need root (a full disk on a tmpfs, cgroups, several users, also in a browser)"
# What SQLite and its C library use is outside Go's heap, where the race detector sees
# nothing: it would only make each query seven times slower. SQLite's driver is watched.
race="CGO_ENABLED=1 -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false"
if ! has cc; then
	race="CGO_ENABLED=0"
	skip "the race detector, and berth-gpu with a fake driver: no C compiler"
fi

formatted
if make -s lint-install >/dev/null 2>&1; then
	say "lint"
	make -s lint
else
	skip "golangci-lint: it cannot be installed"
	go vet ./...
fi

say "a test for every promise of the programs that berth replaces"
make -s seeds >/dev/null # missing ones go to stderr

say "the build, with and without a C compiler"
go build -o /dev/null ./...
make -s build

say "the page: its tests, and whether the committed bundle is what web/ builds"
if ! has npm; then
	skip "the page's own tests and its bundle: npm is missing"
elif [ "$(node -p 'parseInt(process.versions.node)')" -lt 20 ]; then
	skip "the page's own tests and its bundle: expected Node 20 or newer, found $(node --version)"
elif ! make -s web/node_modules >/dev/null 2>&1; then
	skip "the page's own tests and its bundle: npm cannot install what web/package-lock.json names"
else
	make -s web-check
fi

# Most tests wait rather than compute, so the groups run at the same time, the one that
# kills programs, which takes longest, first. In each, the longest packages begin first.
# Packages that only drive programs need no race detector of their own; pure packages
# and the tests of the sources start no goroutine that it could watch.
say "all other tests"
drivers="./internal/tests/soak ./internal/tests/siege ./internal/tests/browser ./internal/compat/... $(go list ./scripts/... | grep -v /release)"
pure="berth
$(sed -n 's|^. `\(internal[^`]*\)` \*pure\*.*|berth/\1|p' ARCHITECTURE.md)"
long="./internal/queue/daemon ./internal/slurm/cluster ./internal/cli ./internal/machine/run ./internal/queue/engine ./internal/slurm/allocation ./internal/slurm/node ./internal/machine/gpu"
others=$(go list ./... | grep -v '/tests/\(soak\|siege\|browser\)$\|/compat\|/scripts/' | grep -vxF "$pure")
limit="-vet=off -timeout 40m -p 2" # the linter includes vet
# shellcheck disable=SC2086 # lists of arguments
BERTH_SEED=1 go run ./scripts/runtests \
	$limit $drivers -- \
	$limit -run "$stories" ./internal/cli -- \
	$race BERTH_SEEDS=50 $limit -skip "$stories" $long $others -- \
	GOGC=400 $limit $pure -- \
	GOGC=400 BERTH_SEEDS=2000 $limit -run TestSimulation ./internal/queue/engine -- \
	GOGC=400 $limit -rapid.checks=30000 -run TestDecideIsWhatTheOracleSays ./internal/sched

# Compilers beside tests that wait for processes would only make those late.
say "what make dist builds, installed and used"
go run ./scripts/runtests -timeout 30m ./scripts/release

say "the Python client"
if has python3 && python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))'; then
	scripts/pythontests "$scratch/venv" || exit 1
	[ -e "$scratch/venv/complete" ] || skip "mypy, Optuna, submitit and Hydra on the Python client: pip cannot install python/tests/requirements.txt"
else
	skip "the Python client: python3 3.9 or newer is missing"
fi

say "done$skipped"
