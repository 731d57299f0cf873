#!/bin/sh
# Run every fuzz target for the given time: scripts/fuzz.sh 20s
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# Minimising an input may take longer than finding it: one try is enough.
fuzz() { go test -run '^$' -fuzz "^$2\$" -fuzztime "$3" -fuzzminimizetime 1x "./$1" >"$out" 2>&1; }

for file in $(grep -rl --include='*_test.go' '^func Fuzz' internal); do
	for target in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$file"); do
		dir=$(dirname "$file")
		echo "$dir $target"
		fuzz "$dir" "$target" "${1:-20s}" && continue
		# On a busy machine the fuzzer may miss its own deadline at the end,
		# which is not a finding: a finding names its input.
		if ! grep -q 'Failing input' "$out" && grep -q 'context deadline exceeded' "$out"; then
			fuzz "$dir" "$target" "${1:-20s}" && continue
		fi
		cat "$out"
		exit 1
	done
done
